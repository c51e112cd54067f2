"""The playground: a page at `/` that asks questions through this very API, and shows the stages at work."""

import os
from pathlib import Path

import msgspec
from fastapi import FastAPI
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from unifiedserve.config import MIB
from unifiedserve.models.media import MediaKind
from unifiedserve.sample_clips import FOLDER as SAMPLES
from unifiedserve.sample_clips import sample_questions
from unifiedserve.server.protocol import ServingEngine

_FOLDER = Path(__file__).parent / "playground"
_KINDS: dict[str, MediaKind] = {".mp4": "video", ".jpg": "image", ".png": "image"}
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
    """What the page must know of the server."""

    model: str
    max_model_len: int
    max_upload_bytes: int
    compared: str
    samples: list[Sample]


class _Files(StaticFiles):
    """The page's own files, never from a browser's cache without a question."""

    def file_response(
        self, full_path: "str | os.PathLike[str]", stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(_HEADERS)
        return response


def add_page(app: FastAPI, engine: ServingEngine, compared: str) -> None:
    """`compared` is the path of a second engine's API; empty: there is none."""

    @app.get("/", include_in_schema=False)
    async def get_page() -> Response:
        return FileResponse(_FOLDER / "index.html", headers=_HEADERS)

    @app.get("/playground/settings", include_in_schema=False)
    async def get_settings() -> Response:
        samples = [
            Sample(name, f"/playground/samples/{name}", _KINDS[Path(name).suffix], questions)
            for name, questions in sample_questions().items()
        ]
        limit = engine.config.max_media_mib * MIB
        settings = PageSettings(engine.model_name, engine.max_model_len, limit, compared, samples)
        return Response(msgspec.json.encode(settings), media_type="application/json")

    app.mount("/playground/samples", _Files(directory=SAMPLES))
    app.mount("/playground", _Files(directory=_FOLDER))
