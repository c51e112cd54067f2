"""The daemon in this process: uvicorn in a thread, the workers as processes of their own."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import openai
import uvicorn
import uvloop

from unifiedserve.config import EngineConfig
from unifiedserve.engine.engine import Engine
from unifiedserve.server.app import create_app
from unifiedserve.server.listener import KEEP_ALIVE_SECONDS

KEY = "sk-anne-0123456789"  # which a daemon with `api_key_file` asks for
STOP_SECONDS = 60.0  # after which nobody reads any more what a test has asked for


@dataclass
class Daemon:
    url: str
    engine: Engine
    loop: asyncio.AbstractEventLoop
    client: openai.OpenAI

    def answer(self, video: Path, question: str, *, frames: int, max_tokens: int) -> str:
        """The greedy answer about a video's frames, not streamed."""
        file = self.client.files.create(file=video, purpose="vision")
        content = [{"type": "video_url", "video_url": {"url": file.id}}, {"type": "text", "text": question}]
        completion = self.client.chat.completions.create(
            model=self.engine.model_name,
            messages=[{"role": "user", "content": content}],  # type: ignore[list-item,misc]
            temperature=0,
            max_tokens=max_tokens,
            extra_body={"media_io_kwargs": {"video": {"num_frames": frames}}},
        )
        return (completion.choices[0].message.content or "").strip()

    def wait_healthy(self, healthy: bool = True) -> None:
        """Returns when the engine is (or is not) healthy."""
        self.wait_for(lambda: self.engine.healthy == healthy)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Returns when the condition holds."""
        asyncio.run_coroutine_threadsafe(self.engine.wait_for(condition), self.loop).result()

    def wait_idle(self) -> None:
        """Returns when everything is free again; raises if pages stay in use, or the pools' books do not balance."""
        asyncio.run_coroutine_threadsafe(self.engine.wait_idle(), self.loop).result()
        assert {name: used for name, (used, _) in self.engine.observation.buffers().items() if used} == {}


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()

    async def startup(self, sockets: object = None) -> None:
        try:
            await super().startup(sockets)  # type: ignore[arg-type]
        finally:
            self.up.set()


@contextmanager
def running(config: EngineConfig) -> Iterator[Daemon]:
    engine = Engine(config)
    compared = Engine(config.compared) if config.compared else None
    server = _Server(
        uvicorn.Config(
            create_app(engine, compared),
            host="127.0.0.1",
            port=0,
            log_level="warning",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,  # clients let go of connections before
        )
    )
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(server.serve(),))
    thread.start()
    server.up.wait()
    try:
        assert server.started, "the server did not start"
        port = server.servers[0].sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=300, max_retries=0) as client:
            yield Daemon(url, engine, loop, client)
    finally:
        server.should_exit = True
        thread.join(STOP_SECONDS)
        held = (
            [f"{getattr(each, 'scope', None)}" for each in server.server_state.connections] if thread.is_alive() else []
        )
        server.force_exit = True
        thread.join()
        loop.close()
    assert not held, f"clients have left connections open: {held}"
