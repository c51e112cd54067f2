"""Count the GPUs that items see."""

from ipc_buffers import ArenaError, list_gpus


def gpus_here() -> int:
    """Return how many GPUs this process sees."""
    try:
        return len(list_gpus())
    except ArenaError:
        return 0
