"""Keep what workers found out as they started, so that later ones need not."""

from dataclasses import dataclass, field

from unifiedserve.messages.wire import Ready


@dataclass(frozen=True)
class Learned:
    """Keep sums of weights by memory, and seconds of lone decode steps by instance. The memories are devices' own."""

    weights_sums: dict[str, int] = field(default_factory=dict)
    _decode_steps: dict[str, float] = field(default_factory=dict)

    def take_in(self, message: Ready, memory: str) -> None:
        """Take in what a worker of this memory has found; the first finding stays."""
        if message.weights_sum is not None:
            self.weights_sums.setdefault(memory, message.weights_sum)
        if message.decode_step is not None:
            self._decode_steps.setdefault(message.instance, message.decode_step)

    def decode_step(self, instance: str) -> float | None:
        """Return the seconds of a lone step of an instance, or the slowest other's. None: of none so far."""
        return self._decode_steps.get(instance, max(self._decode_steps.values(), default=None))
