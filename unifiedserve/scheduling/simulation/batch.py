"""Run a batch of the encoder in layers. Short prompts may go in between."""

from unifiedserve.scheduling.simulation.machine import Task, Work

_ROUNDING = 1e-9  # of a layer


class Batch:
    """Hold the layers that are left of a batch. They run as one task, which a request that comes cuts short."""

    def __init__(self, work: Work, layers: int) -> None:
        self.layers = layers  # that have not begun
        self.looks = True  # whether short prompts may go in before the next layer though none has come
        self._work = work
        self._layer = work.seconds / layers
        self._task: Task | None = None

    def next(self) -> Work:
        """Return the layers to run now: all that are left, or one if prompts may go in after it."""
        count = 1 if self.looks else self.layers
        self.layers -= count
        return Work(count * self._layer, self._work.stage, self._stop)

    def run(self, task: Task) -> None:
        """Note that these layers run."""
        self._task = task

    def cut(self) -> None:
        """Let what runs end with its present layer."""
        if self._task and self._layer:
            later = int(self._task.seconds / self._layer + _ROUNDING)
            self._task.seconds = max(0.0, self._task.seconds - later * self._layer)
            self.layers += later

    def end(self) -> None:
        """Do what follows from the batch when no layers are left."""
        self._work.end()

    def _stop(self) -> None:
        self._task = None
