"""An endless answer to a text, read by a thread, and when its tokens came."""

import threading
import time

import httpx

PATIENCE = 120.0  # seconds between tokens


class TextStream:
    """Begins at once; `arrivals` are perf_counter seconds, one for each event with text."""

    def __init__(self, url: str, number: int, max_tokens: int) -> None:
        self.arrivals: list[float] = []
        self._body = {
            "messages": [{"role": "user", "content": f"Tell me very long story number {number} about a river."}],
            "max_tokens": max_tokens,
            "stream": True,
            "ignore_eos": True,
            "temperature": 0,
        }
        self._url, self._ending = url, False
        self._came = threading.Condition()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def await_tokens(self, count: int) -> None:
        """Return when so many have come. Raises RuntimeError if they do not."""
        with self._came:
            if not self._came.wait_for(lambda: self._error or len(self.arrivals) >= count, PATIENCE):
                raise RuntimeError(f"a stream stands still after {len(self.arrivals)} tokens")
        if self._error:
            raise RuntimeError(f"a stream broke off: {self._error}")

    def stop(self) -> None:
        """Hang up."""
        self._ending = True
        self._thread.join()

    def _read(self) -> None:
        try:
            with httpx.stream("POST", f"{self._url}/v1/chat/completions", json=self._body, timeout=PATIENCE) as answer:
                answer.raise_for_status()
                for line in answer.iter_lines():
                    if self._ending:
                        return
                    if line.startswith("data: {"):
                        with self._came:
                            self.arrivals.append(time.perf_counter())
                            self._came.notify_all()
            if not self._ending:
                raise RuntimeError("it ended")
        except Exception as error:
            with self._came:
                self._error = error
                self._came.notify_all()
