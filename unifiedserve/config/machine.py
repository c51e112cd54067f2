"""Choose the processes, and what each may use of the machine."""

import os
from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from unifiedserve.errors import ConfigError
from unifiedserve.placement import MODEL_STAGES, Instance, Network, Placement, Stage, networks_of, read_placement
from unifiedserve.placement.cores import cores_by_node
from unifiedserve.placement.encoder_ranks import FIRST_ALONE, EncoderRanks, read_encoder_ranks
from unifiedserve.placement.numa import place_by_node

DeviceName = Literal["cpu", "cuda"]
Share = Literal["auto", "mps", "none"]
AttentionBackend = Literal["auto", "triton", "flashinfer"]
Memories = Literal["placed", "numa"]
_MOST_GPU_MIB = 1 << 24


class MachineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Choose the processes, and what each may use of the machine."""

    placement: Annotated[
        str,
        Meta(
            description="Which processes host the stages, and on which cores. shared: vision, encode + prefill and "
            "decode have a process each on all cores, so that videos do not stop streams; monolithic, split, ep-d, "
            "ed-p, e-p-d, one: other systems' ways, for comparisons; or parts, such as e+p+d or ep@0-3+d@4-5, or a "
            ".toml file. A part may name the memory of its pages, ep@0-3,mem0+d@4-5,mem1, or its GPU, "
            "ep@cuda:0+d@cuda:1. `unifiedserve placement X` draws it"
        ),
    ] = "shared"
    memories: Annotated[
        Memories,
        Meta(
            description="Which memories hold the pages and the weights (CPU only). placed: those that --placement "
            "names, else a single one; numa: each NUMA node has one, and a worker uses that of its cores. Each memory "
            "has a copy of the weights, and buffers of the sizes that the options give, as far as its workers need them"
        ),
    ] = "placed"
    carrier: Annotated[
        Literal["auto", "shared", "tcp", "nixl"],
        Meta(
            description="The carrier of pages from one memory to another, where there are several. shared: the reader "
            "maps the other memory and copies; tcp: over loopback, as a comparison; nixl: NVIDIA's library, if it is "
            "installed (pip install 'unifiedserve[nixl]'). auto: shared, and between GPUs copies by CUDA IPC"
        ),
    ] = "auto"
    irp: Annotated[
        Literal["auto", "on", "off"],
        Meta(
            description="Spread the units of one request (groups of a video's frames, images, tiles) over all workers "
            "that encode (EPD's intra-request parallelism). off: one encodes all of them, as an ablation. "
            "auto: on, where several encode"
        ),
    ] = "auto"
    roles: Annotated[
        Literal["fixed", "auto"],
        Meta(
            description="Let workers change what they host by themselves (EPD's role switching). auto: a worker that "
            "encodes, prefills or decodes tokens takes over the stage with the most work left, once that would be far "
            "less for 5 seconds on end, at most every 30 seconds; needs several workers for a stage, as in "
            "2e+2p+2d. fixed: only when POST /v1/placement asks for it"
        ),
    ] = "fixed"
    compare: Annotated[
        bool,
        Meta(
            description="Serve the model a second time, with --placement monolithic, under the path /monolithic, so "
            "that the playground can compare both. Needs twice the memory"
        ),
    ] = False
    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        Meta(description="The device that runs the model. auto: cuda if a usable GPU is found, else cpu"),
    ] = "auto"
    attention_backend: Annotated[
        AttentionBackend,
        Meta(
            description="The attention kernels on a GPU. auto: triton, which needs no further package and gives the "
            "same tokens in any batch; flashinfer: needs the package flashinfer-python"
        ),
    ] = "auto"
    batch_invariant: Annotated[
        bool,
        Meta(
            description="Give the same answer, to the bit, alone and in any batch, whatever the chunks of its prompt. "
            "On a CPU that is always so. On a GPU it takes kernels with one order of sums, which are slower, and "
            "llama-like language models"
        ),
    ] = False
    share: Annotated[
        Share,
        Meta(
            description="The way in which workers share a GPU. mps: at the same time, as clients of an MPS daemon that "
            "the engine starts; none: in turns; auto: mps where it works, else none"
        ),
    ] = "auto"
    gpu_threads: Annotated[
        tuple[str, ...],
        Meta(
            description="With MPS, limit a worker to this percentage of the GPU's threads, as in encode-prefill=50. "
            "May be repeated. Most make an H100's products wrong, and a worker that finds that does not start: 10, 25, "
            "50 and 90 were right. Default: no limit"
        ),
    ] = ()
    gpu_memory_limits: Annotated[
        tuple[str, ...],
        Meta(
            description="With MPS, limit the GPU memory in MiB that a worker may take beside the shared buffers, as "
            "in encode-prefill=8192, so that only this worker fails if it takes more. May be repeated. "
            "Default: no limit"
        ),
    ] = ()
    tensor_parallel_size: Annotated[
        int,
        Meta(
            ge=1,
            le=64,
            description="The number of processes, or ranks, over which each worker spreads the language model. Each "
            "has an equal part of the attention heads and of the weights, and of the worker's cores, or a GPU of its "
            "own: that of the worker's memory and the next ones. The number must divide the heads; the vision encoder "
            "stays whole, on the first rank, without --encoder-ranks",
        ),
    ] = 1
    encoder_ranks: Annotated[
        str,
        Meta(
            description="How a worker's ranks share its vision encoder: with dp2 each of two encodes some of a batch's "
            "images, tiles or frame groups; with tp2 two share the heads of each; dp2xtp2 are two such pairs. As many "
            "ranks as --tensor-parallel-size. Default: the first encodes all"
        ),
    ] = ""
    vision_threads: Annotated[int, Meta(ge=0, description="Threads that decode videos. 0: one for each core")] = 0
    torch_threads: Annotated[
        int, Meta(ge=0, description="Threads that a worker, or each of its ranks, computes with. 0: one for each core")
    ] = 0
    sandbox: Annotated[
        Literal["auto", "require", "off"],
        Meta(
            description="Deny the network, other programs and other files to the processes that decode media and "
            "check grammars. auto: as far as the kernel supports it; require: refuse to start "
            "where it does not; off: no sandbox"
        ),
    ] = "auto"
    worker_timeout: Annotated[
        float,
        Meta(
            ge=0.2,
            description="Seconds without a sign of life after which a worker is replaced; a worker that is "
            "computing has forty times as long. Raise it on a machine that stalls",
        ),
    ] = 15.0
    startup_timeout: Annotated[
        float,
        Meta(gt=0, description="Seconds in which all workers must be ready. Raise it for large models on slow disks"),
    ] = 300.0

    @property
    def workers(self) -> Placement:
        """Return the processes that host the stages. Raises ConfigError for a placement that cannot be."""
        placement = _placement(self.placement, self.memories, tuple(sorted(os.sched_getaffinity(0))))
        if self.irp != "auto" and len(placement.hosts(Stage.ENCODE)) == 1:
            raise ConfigError(
                f"--irp {self.irp}: --placement {self.placement} has one encoder; leave --irp out, or have several"
            )
        if self.carrier != "auto" and len(placement.memories) == 1 and placement.is_whole:
            raise ConfigError(
                f"--carrier {self.carrier}: --placement {self.placement} has one memory, in which nothing travels; "
                "leave --carrier out, or have several"
            )
        return msgspec.structs.replace(placement, irp=self.irp != "off")

    def ranks_of(self, instance: Instance) -> int:
        """Return how many processes an instance is: its ranks, if it hosts the language model."""
        return self.tensor_parallel_size if Network.LANGUAGE in networks_of(instance.stages) else 1

    @property
    def gpus_of_memories(self) -> dict[str, range]:
        """Return the numbers of the GPUs that hold each memory: the ranks of its workers have one each.

        Raises ConfigError if ranks of several memories would have the same.
        """
        placement, used = self.workers, dict[str, range]()
        for memory in placement.memories:
            ranks = max(self.ranks_of(each) for each in placement.instances if each.memory == memory)
            used[memory] = gpus = range(placement.gpu_of(memory), placement.gpu_of(memory) + ranks)
            for other, others in used.items():
                if other != memory and self.tensor_parallel_size > 1 and not set(gpus).isdisjoint(others):
                    raise ConfigError(
                        f"--tensor-parallel-size {self.tensor_parallel_size}: {other} is on {named_gpus(others)}, and "
                        f"{memory} on {named_gpus(gpus)}; name a first GPU behind those, as in pd@cuda:{others.stop}"
                    )
        return used

    @property
    def shared_encoder(self) -> EncoderRanks:
        """Return how ranks share the vision encoder. Raises ConfigError for an impossible sharing."""
        return read_encoder_ranks(self.encoder_ranks, self.tensor_parallel_size)

    def encoder_ranks_of(self, instance: Instance) -> EncoderRanks:
        """Return how an instance's ranks share the vision encoder. Raises ConfigError as `shared_encoder`."""
        if Stage.ENCODE not in instance.stages:
            return FIRST_ALONE
        encoder = self.shared_encoder
        if encoder.total > 1 and not instance.has_both_models:
            raise ConfigError(
                f"--encoder-ranks {self.encoder_ranks}: the worker {instance.name} has no language model and is one "
                "process; leave it out, or have a worker encode and prefill"
            )
        return encoder

    @property
    def processes(self) -> int:
        """Return how many processes the workers are, all ranks counted."""
        return sum(map(self.ranks_of, self.workers.instances))

    @property
    def threads_of(self) -> dict[str, int]:
        """Return the percentages of a GPU's threads, by instance. Raises ConfigError for what is none."""
        return self._by_instance("--gpu-threads", self.gpu_threads, "a percentage", 100)

    @property
    def memory_limits_of(self) -> dict[str, int]:
        """Return the MiB of a GPU's memory, by instance. Raises ConfigError for what is none."""
        return self._by_instance("--gpu-memory-limits", self.gpu_memory_limits, "a number of MiB", _MOST_GPU_MIB)

    def check(self) -> None:
        """Raise ConfigError for options that contradict each other, or name workers that there are not."""
        if self.compare and self.placement == "monolithic":
            raise ConfigError("--compare serves --placement monolithic beside another placement: leave one out")
        if self.roles == "auto" and not any(len(self.workers.hosts(stage)) > 1 for stage in MODEL_STAGES):
            raise ConfigError(
                f"--roles auto: --placement {self.placement} has one worker a stage; have several, as in 2e+2p+2d"
            )
        for option, given in ("--gpu-threads", self.gpu_threads), ("--gpu-memory-limits", self.gpu_memory_limits):
            if given and self.share == "none":
                raise ConfigError(f"{option} needs --share mps: workers that take turns have no limits")
        _ = self.threads_of, self.memory_limits_of, self.workers

    def _by_instance(self, option: str, values: tuple[str, ...], what: str, most: int) -> dict[str, int]:
        known = [instance.name for instance in self.workers.instances]
        found: dict[str, int] = {}
        for given in values:
            name, _, number = given.partition("=")
            if name not in known:
                raise ConfigError(f"{option} {given}: there is no worker {name!r}; the workers are {', '.join(known)}")
            if not (number.isdecimal() and 1 <= int(number) <= most):
                raise ConfigError(f"{option} {given}: expected NAME=N, with {what} from 1 to {most} as N")
            found[name] = int(number)
        return found


def named_gpus(gpus: range) -> str:
    """Return GPUs of consecutive numbers in words."""
    return f"cuda:{gpus.start}" if len(gpus) == 1 else f"cuda:{gpus.start} to cuda:{gpus.stop - 1}"


@lru_cache
def _placement(text: str, memories: Memories, cores: tuple[int, ...]) -> Placement:
    placement = read_placement(text, cores)
    return placement if memories == "placed" else place_by_node(placement, cores_by_node(cores))
