"""Serve POST /v1/files, GET and DELETE /v1/files/{id}."""

from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from unifiedserve.server.access.caller import caller_of
from unifiedserve.server.endpoint import Endpoint, Services, json_response
from unifiedserve.server.files.upload import FileObject, file_object, upload
from unifiedserve.server.requests.receive import check_origin


class FileDeleted(msgspec.Struct):
    id: str
    object: Literal["file"] = "file"
    deleted: bool = True


async def post_file(services: Services, request: Request) -> Response:
    """Keep an uploaded file for a while; raises RequestError."""
    check_origin(services, request)
    with services.files.uploading():
        return json_response(await upload(request, services.files, services.bodies, caller_of(request)))


async def get_file(services: Services, request: Request) -> Response:
    """Describe an uploaded file; raises RequestError 404 if there is none."""
    id: str = request.path_params["id"]
    return json_response(file_object(id, services.files.facts(id, caller_of(request))))


async def delete_file(services: Services, request: Request) -> Response:
    """Forget an uploaded file; raises RequestError 404 if there is none."""
    id: str = request.path_params["id"]
    services.files.delete(id, caller_of(request))
    return json_response(FileDeleted(id))


ENDPOINTS = [
    Endpoint(
        "POST",
        "/v1/files",
        "Upload an image or a video, so that messages can name it by its id",
        post_file,
        answer=FileObject,
    ),
    Endpoint("GET", "/v1/files/{id}", "Describe an uploaded file", get_file, answer=FileObject),
    Endpoint("DELETE", "/v1/files/{id}", "Delete an uploaded file", delete_file, answer=FileDeleted),
]
