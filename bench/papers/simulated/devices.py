"""Where a paper's instances run: a GPU each, and media on the host."""

from unifiedserve.placement import Instance, Placement, Stage
from unifiedserve.placement.parts import split_parts, stages_of


def placement(text: str, *, irp: bool = False) -> Placement:
    """Return a placement such as `5ep+3d`, with a GPU for each instance; media are decoded on the host.

    Each instance has a memory of its own, and pages travel between all of them. With `irp` encoders have one in common,
    so that the units of a request are spread over them: the simulator then has them on one GPU, where they must not
    slow each other.
    """
    instances = [Instance("host", (Stage.VISION,))]
    for part in split_parts(text):
        for _ in range(part.count):
            number, stages = len(instances) - 1, stages_of(part.stages)
            together = irp and stages == (Stage.ENCODE,)
            instances.append(Instance(f"{part.stages}-{number}", stages, (), f"mem{0 if together else number}"))
    return Placement(text, tuple(instances), irp=irp)


def count(text: str) -> int:
    """Return how many instances a placement has, without those of the host."""
    return sum(part.count for part in split_parts(text))
