"""Serve the playground: a page at `/` that asks questions through this API and shows the stages at work."""

import os
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from unifiedserve.config import MIB
from unifiedserve.messages.media import MediaKind
from unifiedserve.models.default import DEFAULT_CHECKPOINT
from unifiedserve.samples import FOLDER as SAMPLES
from unifiedserve.samples import sample_questions
from unifiedserve.server.endpoint import get_route, json_response
from unifiedserve.server.protocol import ServingEngine

_FOLDER = Path(__file__).parent / "playground"
_KINDS: dict[str, MediaKind] = {".mp4": "video", ".jpg": "image", ".png": "image"}
_BUNDLED = "This bundled model knows drawn shapes only. For real videos serve another one: unifiedserve serve MODEL"
_HEADERS = {
    # nothing from elsewhere, and no script or style in the page itself
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Sample(msgspec.Struct):
    name: str
    url: str
    kind: MediaKind
    questions: list[str]


class PageSettings(msgspec.Struct):
    """Hold the server's settings that the page needs."""

    model: str
    model_note: str
    max_model_len: int
    max_upload_bytes: int
    compared: str
    samples: list[Sample]


class _Files(StaticFiles):
    """Serve the page's own files, never from a browser's cache without a question."""

    def file_response(
        self, full_path: "str | os.PathLike[str]", stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(_HEADERS)
        return response


def page_routes(engine: ServingEngine, compared: str) -> list[BaseRoute]:
    """Return the page's routes; `compared` is the path of a second engine's API, empty if there is none."""

    async def get_page(request: Request) -> Response:
        return FileResponse(_FOLDER / "index.html", headers=_HEADERS)

    async def get_settings(request: Request) -> Response:
        samples = [
            Sample(name, f"/playground/samples/{name}", _KINDS[Path(name).suffix], questions)
            for name, questions in sample_questions().items()
        ]
        config = engine.config
        note = "" if config.checkpoint.model not in ("", str(DEFAULT_CHECKPOINT)) else _BUNDLED
        limit = config.media.max_media_mib * MIB
        return json_response(PageSettings(engine.model_name, note, engine.max_model_len, limit, compared, samples))

    return [
        get_route("/", get_page),
        get_route("/playground/settings", get_settings),
        Mount("/playground/samples", _Files(directory=SAMPLES)),
        Mount("/playground", _Files(directory=_FOLDER)),
    ]
