"""Learn the costs of decoding images and videos."""

import threading

import msgspec

from unifiedserve.scheduling import Costs, blend


class DecodingCosts:
    """Learn the present `costs` from what has been decoded. Safe to use from several threads."""

    def __init__(self) -> None:
        self.costs = Costs()
        self._lock = threading.Lock()

    def image(self, pixels: int, seconds: float) -> None:
        """Learn from images of so many pixels together."""
        if not pixels:
            return
        with self._lock:
            cost = blend(self.costs.image_pixel, seconds / pixels)
            self.costs = msgspec.structs.replace(self.costs, image_pixel=cost)

    def video(self, told: float, seconds: float) -> None:
        """Learn from a video for which FlashCodec's cost model told so many seconds."""
        with self._lock:
            cost = blend(self.costs.video_second, seconds / told)
            self.costs = msgspec.structs.replace(self.costs, video_second=cost)
