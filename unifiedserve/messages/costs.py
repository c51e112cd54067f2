"""Report the seconds that work takes here, as workers have measured lately."""

import msgspec


class Costs(msgspec.Struct, frozen=True):
    """Give the latest seconds of a step that only decodes, and of each further token. 0: unknown.

    So did decoding: each pixel of an image, and each second that FlashCodec's cost model told for a video.
    """

    decode: float = 0.0
    prompt_token: float = 0.0
    visual_token: float = 0.0
    image_pixel: float = 0.0
    video_second: float = 0.0

    def alone(self, prompt_tokens: int, visual_tokens: int) -> float:
        """Return the seconds to the first token of a request with the machine to itself: to encode and to prefill."""
        return prompt_tokens * self.prompt_token + visual_tokens * self.visual_token

    def learned(self, told: "Costs") -> "Costs":
        """Return the costs after what a worker has measured; unknown costs (0) stay as they are."""
        known = {name: value for name, value in msgspec.structs.asdict(told).items() if value}
        return msgspec.structs.replace(self, **known)
