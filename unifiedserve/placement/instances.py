"""Name stages, the worker processes that host them, and all processes of an engine."""

from collections.abc import Container, Iterable
from enum import StrEnum

import msgspec


class Network(StrEnum):
    """Name the two networks of a multimodal model. One of texts has the second alone."""

    ENCODER = "encoder"
    LANGUAGE = "language model"


class Stage(StrEnum):
    """Name the four stages of a request, in order."""

    VISION = "vision"
    ENCODE = "encode"
    PREFILL = "prefill"
    DECODE = "decode"

    @property
    def following(self) -> "Stage | None":
        """Return the stage that comes next in a request, or None after the last one."""
        stages = list(Stage)
        return next(iter(stages[stages.index(self) + 1 :]), None)

    @property
    def preceding(self) -> "Stage | None":
        """Return the stage that comes before in a request, or None before the first one."""
        return next((stage for stage in Stage if stage.following is self), None)

    @property
    def network(self) -> Network | None:
        """Return what it runs of the model, or None if it needs nothing of it."""
        return {Stage.VISION: None, Stage.ENCODE: Network.ENCODER}.get(self, Network.LANGUAGE)


def networks_of(stages: Iterable[Stage]) -> tuple[Network, ...]:
    """Return what these stages run of a model."""
    run = {stage.network for stage in stages}
    return tuple(network for network in Network if network in run)


#: the memory of instances that name none
FIRST_MEMORY = "mem0"

#: who stands in a route, and among the sources of pages, for the nodes that host the stages which an engine lacks
ENGINE = "engine"

#: what a node of a stage pool hosts
NODE_STAGES = ((Stage.VISION, Stage.ENCODE), (Stage.PREFILL, Stage.DECODE))


def numbered_memory(number: int) -> str:
    """Return the name of the memory of a number."""
    return f"mem{number}"


def number_of_memory(memory: str) -> int:
    """Return the number of a memory, by its name."""
    return int(memory.removeprefix("mem"))


#: those that need the model; vision, which does not, may be alone in a sandbox
MODEL_STAGES = (Stage.ENCODE, Stage.PREFILL, Stage.DECODE)


class Instance(msgspec.Struct, frozen=True):
    """Describe a worker process: its stages, the cores that it may use, and the memory of its pages.

    Without `cores` it may use all of the engine's.
    """

    name: str
    stages: tuple[Stage, ...]
    cores: tuple[int, ...] = ()
    memory: str = FIRST_MEMORY

    @property
    def nice(self) -> int:
        """Return how far the process's CPU priority is lowered.

        Decoding, which streams to a reader, takes the cores at once from work that nobody sees yet, and vision works
        ahead of the others. A paced decode leaves the cores again; the levels only set the order, and are low enough to
        leave the machine's other programs their share.
        """
        if Stage.DECODE in self.stages or not self.stages:  # none: the API's process
            return 0
        return 15 if self.only_decodes_media else 7

    @property
    def client_priority(self) -> int:
        """Return its priority as a client of MPS: the work of those of 1 comes behind that of 0 on a GPU."""
        return int(bool(self.nice))

    @property
    def only_decodes_media(self) -> bool:
        """Tell whether it needs nothing of the model. A sandbox can then take everything else from it."""
        return self.stages == (Stage.VISION,)

    @property
    def has_both_models(self) -> bool:
        """Tell whether it runs the vision encoder and the language model."""
        return len(networks_of(self.stages)) == len(Network)

    def threads(self, wanted: int) -> int:
        """Return how many threads can run at once here, of so many."""
        return min(wanted, len(self.cores) or wanted)

    def meets(self, other: "Instance") -> bool:
        """Return whether two instances may want the same cores."""
        return not (self.cores and other.cores) or not set(self.cores).isdisjoint(other.cores)


class Placement(msgspec.Struct, frozen=True):
    """Map instances to the stages that they host. Every one of them runs the same worker.

    With `irp` the units of one request are spread over all that encode (EPD §3.3.2: intra-request parallelism).
    """

    name: str
    instances: tuple[Instance, ...]
    irp: bool = True
    gpus: dict[str, int] = {}  # the number of each memory's GPU, if it says so

    @property
    def memories(self) -> list[str]:
        """Return the names of all memories, in the order in which the instances name them."""
        return list(dict.fromkeys(instance.memory for instance in self.instances))

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Return the stages that are hosted; other nodes have the others."""
        return tuple(stage for stage in Stage if self.hosts(stage))

    @property
    def is_whole(self) -> bool:
        """Tell whether all stages are hosted."""
        return len(self.stages) == len(Stage)

    @property
    def encodes_for_others(self) -> bool:
        """Tell whether what is encoded goes to other nodes."""
        return Stage.PREFILL not in self.stages

    @property
    def encoded_elsewhere(self) -> bool:
        """Tell whether other nodes encode the media of its requests."""
        return Stage.ENCODE not in self.stages

    def gpu_of(self, memory: str) -> int:
        """Return the number of a memory's GPU, if memories are on GPUs: the memory's own, unless it says otherwise."""
        return self.gpus.get(memory, number_of_memory(memory))

    @property
    def sends_back(self) -> bool:
        """Tell whether requests may return to decode to the memory that encoded them."""
        hosted = list(map(self.hosted_in, self.memories))
        leaves = any({Stage.ENCODE, Stage.DECODE} <= stages and Stage.PREFILL not in stages for stages in hosted)
        return leaves and any(Stage.PREFILL in stages and Stage.DECODE not in stages for stages in hosted)

    def hosted_in(self, memory: str) -> set[Stage]:
        """Return the stages that the instances of a memory host."""
        return {stage for instance in self.instances if instance.memory == memory for stage in instance.stages}

    def named(self, name: str) -> Instance:
        """Return the instance of that name. Raises KeyError if there is none."""
        return {instance.name: instance for instance in self.instances}[name]

    def memory_of(self, name: str) -> str:
        """Return the memory of the instance of that name. Raises KeyError if there is none."""
        return self.named(name).memory

    def hosts(self, stage: Stage) -> list[str]:
        """Return the names of the instances that host `stage`."""
        return [instance.name for instance in self.instances if stage in instance.stages]

    def takers(self, stage: Stage, memory: str) -> list[str]:
        """Return the names of the hosts of `stage` that take pages of a memory: vision does where media are encoded."""
        if stage is Stage.VISION:
            return self.hosts(stage) if Stage.ENCODE in self.hosted_in(memory) else []
        return [each.name for each in self.instances if stage in each.stages and each.memory == memory]

    def without(self, names: Container[str]) -> "Placement":
        """Return the placement without the instances of these names."""
        left = tuple(instance for instance in self.instances if instance.name not in names)
        return msgspec.structs.replace(self, instances=left)

    def changed(self, changed: Instance) -> "Placement":
        """Return the placement with this instance in place of the one of its name."""
        instances = tuple(changed if each.name == changed.name else each for each in self.instances)
        return msgspec.structs.replace(self, instances=instances)

    def beside(self, name: str) -> list[Instance]:
        """Return the other instances that may want the cores, or the GPU, of this one."""
        own = next(instance for instance in self.instances if instance.name == name)
        others = (other for other in self.instances if other.name != name and other.meets(own))
        return [other for other in others if self._shares_gpu(own, other)]

    def _shares_gpu(self, one: Instance, other: Instance) -> bool:
        return not self.gpus or self.gpu_of(one.memory) == self.gpu_of(other.memory)
