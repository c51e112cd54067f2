"""Cost the stages' work on one machine with one model: measured once, kept as JSON."""

from pathlib import Path

import msgspec

from unifiedserve.errors import NO_JSON, ConfigError
from unifiedserve.messages.costs import Costs
from unifiedserve.scheduling.profile import StepSeconds


class StageCosts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Give the seconds that pieces of work take alone on the machine. Work that is not given takes no time.

    `half` and `waste` are what is lost when they share it. A pass over the weights takes as long for one token as for a
    few: the cost of tokens comes on top. Context is counted in tokens that are attended to, by each sequence that
    decodes and by each prompt token.
    """

    decode_pass: float = 0.0
    sequence: float = 0.0  # each that decodes
    context_token: float = 0.0  # of a sequence that decodes
    half: float = 1.0  # factor of a step that only decodes and leaves half of the cores to others
    waste: float = 0.0  # of a step's threads that do not all run: see `machine.Cores`
    prefill_pass: float = 0.0  # also with sequences beside the prompts
    prompt_token: float = 0.0
    prompt_context: float = 0.0  # a prompt token and a token of its context
    encode_batch: float = 0.0
    visual_token: float = 0.0
    encoder_layers: int = 1  # of equal length, in between which short prompts may go
    image: float = 0.0  # to decode one, on a core
    video_second: float = 0.0  # to decode all of a second of a video, on a core
    gop_seconds: float = 10.0  # of a video's groups of pictures, by default 250 frames
    intake: float = 0.0  # a request in the HTTP server
    medium: float = 0.0  # the same for each image or video: read, analysed, planned
    analysis: float = 0.0  # of a request's media in vision, before the first unit is decoded
    message: float = 0.0  # from one process to another
    pull: float = 0.0  # from one memory to another, whatever it is, and each page of it
    pull_kv_page: float = 0.0
    pull_visual_page: float = 0.0
    reply: float = 0.0  # from a token to the client that reads it
    worker_start: float = 0.0  # from the end of a worker until its successor serves
    lone_step: float = 0.0  # a decode step, as the worker measures it at its start

    @classmethod
    def load(cls, path: Path) -> "StageCosts":
        """Read costs from a file. Raises ConfigError if it has none."""
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (OSError, *NO_JSON) as error:
            raise ConfigError(f"{path}: no costs of stages ({error}): measure them anew") from error

    def save(self, path: Path) -> None:
        """Write the costs to a file."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")

    def decode(self, sequences: int, context: int, *, half: bool = False) -> float:
        """Return the seconds of a step that takes so many sequences one token further.

        `context` counts all of theirs.
        """
        seconds = self.decode_pass + sequences * self.sequence + context * self.context_token
        return seconds * self.half if half else seconds

    def prefill(self, tokens: int, attended: float) -> float:
        """Return the seconds of a pass over prompt tokens. They attend to so many tokens, summed over them."""
        return self.prefill_pass + tokens * self.prompt_token + attended * self.prompt_context

    def mixed(self, tokens: int, attended: float, sequences: int, context: int) -> float:
        """Return the seconds of one pass over both: the cost of sequences comes on top of that of prompts."""
        return self.prefill(tokens, attended) + sequences * self.sequence + context * self.context_token

    def encode(self, visual_tokens: int) -> float:
        """Return the seconds of a batch of the encoder."""
        return self.encode_batch + visual_tokens * self.visual_token

    def video(self, seconds: float, frames: int) -> float:
        """Return the seconds that decoding a video takes a core.

        So many frames, evenly spread, are looked at. A GOP is decoded up to the last of them within it, and not at all
        without any.
        """
        spacing, gop = seconds / frames, min(self.gop_seconds, seconds)
        part = 1 - spacing / gop / 2 if spacing <= gop else gop / spacing / 2
        return part * seconds * self.video_second

    def steps(self, slower: float = 1.0) -> StepSeconds:
        """Return the steps' costs in a worker alone on its device, so many times slower."""
        return StepSeconds(
            lambda tokens: slower * self.prefill(tokens, tokens * tokens / 2),
            lambda tokens: slower * self.encode(tokens),
        )

    def at_first(self) -> Costs:
        """Return what an engine knows by these costs before its workers have measured any."""
        return Costs(decode=self.lone_step, prompt_token=self.prompt_token, visual_token=self.visual_token)
