from __future__ import annotations

import collections.abc
import typing

import numpy
import numpy.typing
import typing_extensions

import ipc_buffers.page_index

__all__: list[str] = [
    "AllReduce",
    "Arena",
    "ArenaError",
    "ArenaInfo",
    "Bell",
    "Collective",
    "CollectiveError",
    "Gpu",
    "Memory",
    "MessageQueue",
    "MessageTooLarge",
    "NetError",
    "PageClient",
    "PageCopier",
    "PageError",
    "PagePool",
    "PageServer",
    "PagedBuffer",
    "free_bytes",
    "list_arenas",
    "list_gpus",
    "remove_stale_arenas",
]

class ArenaError(RuntimeError):
    """Shared memory, of the host or a GPU, cannot be created, attached to or used; the text says what to do."""

class PageError(ValueError):
    """A page number that is out of range, or a page that is free where one in use is needed."""

class MessageTooLarge(ValueError):
    """A message above a quarter of its queue's capacity."""

class NetError(RuntimeError):
    """A connection that cannot be served; the text says why."""

class CollectiveError(RuntimeError):
    """A rank did not come in time; the text names it. The collective is of no more use."""

class _Region:
    pass

class Arena:
    """A named region of POSIX shared memory.

    Its creator's process owns the name: it stays until `unlink`, and nothing removes it behind the owner's back. Names are
    machine-wide: 1 to 200 letters, digits, '.', '_' or '-'.
    """
    @staticmethod
    def attach(name: str) -> Arena:
        """Map an arena of another handle, by name.

        Raises ArenaError if there is no such arena, or it is something else or still being created.
        """
    @staticmethod
    def create(name: str, size: int) -> Arena:
        """Take `size` bytes, zeroed, all at once, so that a later access cannot fail.

        Raises ArenaError if /dev/shm has no room for it or the name is in use, ValueError for a bad name or size.
        """
    def buffer(self) -> memoryview:
        """Return all bytes, writable, without a copy; the view keeps them mapped, also after `close`."""
    def close(self) -> None:
        """Give up this handle's mapping. Idempotent."""
    def unlink(self) -> None:
        """Remove the name, if it still is this arena's. Idempotent, and works after `close`."""
    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int:
        """Bytes."""

class ArenaInfo:
    """What is known of an arena, memory, page pool or message queue of this machine."""
    def __repr__(self) -> str: ...
    @property
    def alive(self) -> bool:
        """Whether the creator still runs; one in another pid namespace counts as alive."""
    @property
    def kind(self) -> str:
        """One of "plain arena", "memory", "page pool", "message queue" or "collective"."""
    @property
    def name(self) -> str: ...
    @property
    def pid(self) -> int:
        """The creator's process id."""
    @property
    def size(self) -> int:
        """Bytes of host memory."""

class Gpu:
    """A GPU that this process sees."""
    def __repr__(self) -> str: ...
    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability, such as (9, 0)."""
    @property
    def compute_mode(self) -> str:
        """Who may use it: "default" (all processes), "exclusive process" or "prohibited"."""
    @property
    def driver(self) -> tuple[int, int]:
        """The CUDA version that the driver supports, such as (13, 0)."""
    @property
    def multiprocessors(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def place(self) -> str:
        """As this process numbers its GPUs: "cuda:N"."""
    @property
    def total_bytes(self) -> int: ...
    @property
    def uuid(self) -> str:
        """As nvidia-smi writes it: "GPU-…"."""

class Memory:
    """A named block of bytes in a place: host memory, or a GPU.

    What lies on a GPU is shared by CUDA IPC. It belongs to the process that created it, and is freed when that has closed
    it and no view is left there, or ends; the others must have closed theirs before, or what they see is undefined. Its
    name, and what it needs to be found, are a small arena: `list_arenas` shows it, and `remove_stale_arenas` removes it if
    its creator is dead. It needs nothing of CUDA but the driver.

    `torch.from_dlpack(memory)` gives a view, uint8 [nbytes], that keeps it mapped, also after `close` and `unlink`. No
    stream is waited for: whoever writes says when it is done.
    """
    @staticmethod
    def attach(name: str) -> Memory:
        """Map a memory of another handle, by name; within a process that is one mapping on a GPU.

        Raises ArenaError if there is no such memory, it is something else or still being created, its creator is dead or has
        closed its file, or this process does not see its GPU.
        """
    @staticmethod
    def create(name: str, size: int, place: str = "host", manifest: typing_extensions.Buffer = b"") -> Memory:
        """Take `size` bytes, zeroed, at a place: "host", or "cuda:N" as this process numbers its GPUs.

        `manifest` is what others are told of the contents; it stays in host memory.
        Raises ArenaError if the place has no room for it, there is no such GPU or no driver, or the name is in use; ValueError
        for a bad name, size or place.
        """
    @staticmethod
    def map_file(name: str, path: str, offset: int, size: int, manifest: typing_extensions.Buffer = b"") -> Memory:
        """Map `size` bytes of a file for reading, from `offset`, a multiple of 4096; copies nothing.

        All processes share the pages of the kernel's file cache. A write ends the process by SIGSEGV. The file may lose its
        name meanwhile. It must not get shorter, because a read beyond its end ends the process by SIGBUS. Others attach
        through this process, while it has the memory open, and must have the right to see its descriptors.
        Raises ArenaError if the file cannot be mapped or is shorter, this process lets nobody see its descriptors (prctl's
        PR_GET_DUMPABLE), or the name is in use; ValueError as `create` does, and for other offsets.
        """
    def __dlpack__(
        self,
        *,
        stream: typing.Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> typing_extensions.CapsuleType:
        """Return a capsule of uint8 [nbytes], as DLPack's Python specification says.

        It is a versioned one if `max_version` is (1, 0) or later. Raises BufferError for a copy or another device.
        """
    def __dlpack_device__(self) -> tuple[int, int]:
        """Return (1, 0) for host memory, (2, N) for a GPU."""
    def close(self) -> None:
        """Give up this handle's mapping. Idempotent."""
    def pin(self, place: str) -> None:
        """Page-lock host memory for copies to and from a GPU, until the memory is closed and no view is left.

        Raises ArenaError if the driver refuses or the memory is not in host memory, ValueError if `place` is no GPU.
        """
    def protect(self) -> None:
        """Protect host memory from this process, as far as this handle maps it: a write ends the process by SIGSEGV.

        Handles and processes that map it otherwise may still write. Raises ArenaError if it is on a GPU.
        """
    def read(self, offset: int, size: int) -> bytes:
        """Return a copy of `size` bytes from `offset`; raises IndexError if they are not within the memory."""
    def unlink(self) -> None:
        """Remove the name, if it still is this memory's. Idempotent, and works after `close`."""
    def write(self, offset: int, data: typing_extensions.Buffer) -> None:
        """Copy `data` to `offset`; done when it returns.

        Raises IndexError if it does not fit there, ArenaError if these are bytes of a file.
        """
    @property
    def manifest(self) -> bytes:
        """What its creator told of the contents."""
    @property
    def name(self) -> str: ...
    @property
    def nbytes(self) -> int:
        """Bytes."""
    @property
    def place(self) -> str:
        """Where it is: "host" or "cuda:N", as this process numbers its GPUs."""
    @property
    def writable(self) -> bool:
        """Whether its bytes can be written: those of a file cannot."""

class PagePool:
    """Fixed-size pages, used by many processes at once without a lock.

    Who owns them is told in host memory; what they hold is a `Memory`, there or on a GPU: of the pool's own, under the same
    name, or one that outlives it (`over`).
    A page knows its owner, so whatever a dead process held can be found and freed by `reclaim`. `pages` arguments are
    array-likes of integers, of any shape.
    """
    @staticmethod
    def attach(name: str) -> PagePool:
        """Map a pool of another handle, by name, and its memory; raises as `Memory.attach`."""
    @staticmethod
    def create(name: str, num_pages: int, page_bytes: int, place: str = "host") -> PagePool:
        """Create a pool with its pages at a place; raises as `Memory.create`, and ValueError for counts or sizes out of range."""
    @staticmethod
    def over(name: str, memory: Memory, page_bytes: int) -> PagePool:
        """Create a pool whose pages are those of a memory, which keeps its contents, its name and a life of its own.

        All pages are free, and their epochs begin anew. So a pool is renewed by closing and unlinking it and laying another
        over the same memory; handles of the old one know nothing of the new one, and must not write to pages any more.
        Raises ArenaError if the name is in use or /dev/shm has no room; ValueError for a bad name, a memory that is no whole
        number of pages, or one that is a pool's own.
        """
    def allocate(self, count: int, request: int, instance: int = 0) -> numpy.typing.NDArray[numpy.int32] | None:
        """Return int32[count] page numbers with one reference each, tagged with their owner; None if not enough are free.

        Callers that race for the last pages may all get None. Raises ValueError unless 0 <= request < 2**32 and
        0 <= instance < 4095.
        """
    def close(self) -> None: ...
    def correct(self, page: int, word: int, references: int) -> bool:
        """Give a shared page so many references, as its holders were counted; none frees it, and what it holds stays known.

        Returns False, and does nothing, if its word is another one by now, or tells of fewer. Raises PageError for a page out of
        range.
        """
    def data(self) -> memoryview:
        """Return all pages, page-aligned in host memory, without a copy; the view keeps them mapped.

        Raises ArenaError if they are on a GPU: `memory` gives a view there.
        """
    def epoch_words(self) -> memoryview:
        """Return the epochs of all pages, uint64 each as they lie in shared memory; only to be read."""
    def epochs(self, pages: numpy.typing.ArrayLike) -> numpy.typing.NDArray[numpy.uint64]:
        """Return the epochs that pages are in, whoever holds them or nobody; nothing becomes worth keeping by it.

        Who has read pages without a reference compares these with the epochs in which they held what was wanted: where they are
        equal, what was read before this call is what they held. Raises PageError for a page out of range.
        """
    def free_pages(self) -> int: ...
    def owner(self, page: int) -> tuple[int, int] | None:
        """Return (request, instance), or None if the page is free. Raises PageError if it is out of range."""
    def recall(
        self,
        pages: numpy.typing.ArrayLike,
        epochs: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64],
        request: int,
        instance: int = 0,
    ) -> int:
        """Add a reference to the leading pages that have not been taken anew since `remember`; return how many.

        A free one becomes the given owner's; one in use belongs to request 0 from now on, so that `reclaim` takes it from
        nobody. Raises PageError for a page out of range, ValueError as `allocate`.
        """
    def reclaim(self, request: int | None = None, instance: int | None = None) -> int:
        """Free all pages of the owner, whatever their references; return how many. Raises ValueError without an owner."""
    def references(self, page: int) -> int:
        """Return a page's references, 0 if it is free. Raises PageError if it is out of range."""
    def release(self, pages: numpy.typing.ArrayLike) -> int:
        """Drop a reference of each page; return how many became free.

        Raises PageError if a page is free or out of range. Nothing is released then, unless the array repeats a page more often
        than it has references: those before it are.
        """
    def remember(self, pages: numpy.typing.ArrayLike) -> numpy.typing.NDArray[numpy.uint64]:
        """Return the epochs of pages that the caller holds a reference of, for `recall`.

        What they hold is from now on worth keeping when they are free: they are taken anew last, those unused for longest
        before the others, and of pages released together the later ones first. Raises PageError for a free page or one out of
        range.
        """
    def remembered_pages(self) -> int:
        """Return the free pages whose contents are worth keeping; `free_pages` counts them too."""
    def renew(
        self, pages: numpy.typing.ArrayLike, epochs: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64]
    ) -> tuple[int, int]:
        """Return how many leading pages `recall` would find now, and how many of these are in use.

        They count as used just now. Raises PageError for a page out of range.
        """
    def requests(self) -> list[int]:
        """Return the requests that own pages, ascending; pages that several share belong to none."""
    def retain(self, pages: numpy.typing.ArrayLike) -> None:
        """Add a reference to each page; if one is free or out of range, to none of them, and raise PageError."""
    def settle(self, request: int, pages: numpy.typing.ArrayLike) -> int:
        """Give each page of a request as many references as it has places in `pages`, none of which frees it.

        Pages of others and shared ones stay as they are. For a request whose holder has died. Returns how many became free;
        raises PageError for a page out of range.
        """
    def shared(self) -> tuple[numpy.typing.NDArray[numpy.int32], numpy.typing.NDArray[numpy.uint64]]:
        """Return the pages that several requests share, int32[n], and the word of each, uint64[n].

        A word changes with each reference that is added or dropped; see `correct`.
        """
    def unlink(self) -> None:
        """Remove the name, if it still is this pool's; that of a memory it was laid over stays."""
    def used_pages(self) -> int: ...
    @property
    def inode(self) -> int:
        """What tells this pool from others of its name, earlier or later ones."""
    @property
    def memory(self) -> Memory:
        """A handle of all pages, num_pages * page_bytes bytes."""
    @property
    def name(self) -> str: ...
    @property
    def num_pages(self) -> int: ...
    @property
    def page_bytes(self) -> int: ...

class PagedBuffer:
    """Rows of a fixed size over a page pool; passive: allocating pages is the caller's business.

    They are copied by the processor: ArenaError is raised for a pool on a GPU.
    All methods check every bound before they touch memory: ValueError for an index that contradicts itself or its rows,
    IndexError for a request or rows outside it, PageError for pages that are free or out of range.
    """
    def __init__(self, pool: PagePool, row_bytes: int) -> None: ...
    def consume(self, index: ipc_buffers.page_index.PageIndex, request: int, start: int, stop: int) -> int:
        """Release the request's pages that [start, stop) finishes: those whose last row lies in it.

        So pages with a row at or behind `stop` stay, and consecutive calls release each page once. Returns how many pages
        became free.
        """
    def pages_for(self, rows: int) -> int:
        """Return the pages that `rows` rows fill."""
    def read(
        self,
        index: ipc_buffers.page_index.PageIndex,
        request: int,
        start: int,
        stop: int,
        out: numpy.ndarray | None = None,
    ) -> numpy.ndarray:
        """Copy rows [start, stop) of one request, counted from its first.

        Returns uint8 [stop - start, row_bytes], or `out`, C-contiguous and of just as many bytes.
        """
    def write(self, index: ipc_buffers.page_index.PageIndex, rows: numpy.ndarray) -> None:
        """Copy a flattened batch, C-contiguous [n, row_bytes] in bytes of any dtype, to its pages."""
    @property
    def row_bytes(self) -> int: ...
    @property
    def rows_per_page(self) -> int: ...

class MessageQueue:
    """Bounded queue of messages between processes, in the order they were sent.

    Any number of senders; several receivers share the messages. A sender that is killed leaves no half message, a receiver
    that is killed while it takes a message leaves it to the next one. Waiting threads sleep in the kernel, without the GIL,
    and Python's signal handlers run.
    """
    @staticmethod
    def attach(name: str) -> MessageQueue:
        """Map a queue of another handle, by name; raises as `Arena.attach`."""
    @staticmethod
    def create(name: str, capacity: int) -> MessageQueue:
        """Create a queue of `capacity` bytes, 8 to 15 of which each message needs for itself; raises as `Arena.create`."""
    def close(self) -> None:
        """Close this handle. Idempotent. Other threads that wait on it raise ArenaError."""
    def pending(self) -> int:
        """Return the number of messages in the queue; counts them, one by one."""
    def receive(self, timeout: float | None = None) -> bytes | None:
        """Return the next message; None if there is none within `timeout` seconds (None: waits forever, 0: looks once)."""
    def receive_many(self, limit: int, timeout: float | None = None) -> list[bytes]:
        """Wait for a first message as `receive`, and return what is there, up to `limit` messages."""
    def send(self, message: typing_extensions.Buffer, timeout: float | None = None) -> None:
        """Wait up to `timeout` seconds for room (None: forever), and send.

        Raises TimeoutError if there was none, MessageTooLarge if there never will be.
        """
    def unlink(self) -> None: ...
    @property
    def capacity(self) -> int:
        """Bytes."""
    @property
    def max_message(self) -> int:
        """Bytes: a quarter of the capacity."""
    @property
    def name(self) -> str: ...

class AllReduce:
    """What sums up values over processes for the code of another core."""

class Collective(AllReduce):
    """Operations that all ranks of a group do together, through shared memory.

    Each process is one rank, from one thread at a time, and all do the same operations in the same order. Sums are taken in
    the order of the ranks in float32, so that each rank gets the same bits whatever the timing. Every operation raises
    CollectiveError, which names a rank, if that rank does not come within `timeout` seconds.
    """
    @staticmethod
    def create(name: str, ranks: int, slot_bytes: int = 1048576) -> Arena:
        """Create the shared memory of up to 64 ranks, and return it as an arena, to be unlinked in the end.

        Each rank has two slots of `slot_bytes`, from 1 to 2**30; larger operands go in pieces. Raises as `Arena.create`.
        """
    @staticmethod
    def join(name: str, rank: int, timeout: float = 60.0) -> Collective:
        """Become a rank, which nobody has been before; raises ValueError otherwise, and as `Arena.attach`.

        As an `AllReduce` it waits `timeout` seconds for the others, and its rank 0 adds what is common to all.
        """
    def all_gather(self, own: typing_extensions.Buffer, all: typing_extensions.Buffer, timeout: float = 60.0) -> None:
        """Fill a writable buffer with the bytes of all ranks, in their order; raises ValueError if its size is another."""
    def all_reduce(self, values: typing_extensions.Buffer, dtype: str, timeout: float = 60.0) -> None:
        """Replace a contiguous, writable buffer by the sums over all ranks; `dtype` is "float32" or "bfloat16".

        Sums of bfloat16 are rounded once, to the nearest.
        """
    def barrier(self, timeout: float = 60.0) -> None:
        """Wait until all ranks have come."""
    def broadcast(self, root: int, values: typing_extensions.Buffer, timeout: float = 60.0) -> None:
        """Replace a writable buffer by that of the rank `root`."""
    def close(self) -> None:
        """Give up this handle's mapping. Idempotent."""
    def gather(
        self,
        root: int,
        own: typing_extensions.Buffer,
        all: typing_extensions.Buffer | None = None,
        timeout: float = 60.0,
    ) -> None:
        """Fill the writable buffer `all` of the rank `root` as `all_gather` does; the other ranks give none."""
    @property
    def name(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def ranks(self) -> int: ...

class Bell:
    """Wakes whoever waits for messages of a queue, by one that says so."""
    def __init__(self, queue: MessageQueue, message: typing_extensions.Buffer) -> None:
        """Raises MessageTooLarge, and ArenaError if the queue is closed."""
    def ring(self) -> None:
        """Send the message, unless the queue is full: then its reader does not sleep. Any thread may call it."""

class PageCopier:
    """Copies pages from pools that are mapped here into one's own, in threads without the GIL.

    Both are in host memory, or both on GPUs. Their owner need not know, and may give pages away meanwhile: epochs tell. The
    bell is rung when `poll` has something to tell.
    """
    def __init__(self, bell: Bell, threads: int = 1) -> None: ...
    def close(self, transfer: int) -> None:
        """Drop a transfer, under way or not: nothing is written to its pages, and nothing told of it, after this."""
    def poll(self) -> list[tuple[int, str, int, float]]:
        """Return (transfer, error, bytes, seconds) of those that have ended since the last call.

        The error is empty if all pages are there as they were in their epochs.
        """
    def read(
        self,
        sources: collections.abc.Mapping[str, PagePool],
        own: collections.abc.Mapping[str, PagePool],
        copies: collections.abc.Sequence[
            tuple[
                str,
                numpy.typing.ArrayLike,
                typing.Annotated[numpy.typing.ArrayLike, numpy.uint64],
                numpy.typing.ArrayLike,
            ]
        ],
    ) -> int:
        """Begin to copy, and return the transfer's number.

        A copy is (pool, source pages, their epochs, pages of one's own). Raises ValueError for pools that are not one's own or
        counts that differ, PageError for pages of one's own that are free or out of range, ArenaError for what is wrong with the
        source: pools or pages that it does not have, pages of another size, a place where nothing leads from.
        """
    def shut(self) -> None:
        """Drop all transfers and end the threads. Idempotent."""

class PageServer:
    """Lets others read pages over TCP, straight from the pools, in a thread without the GIL.

    `patience` is how many seconds a client may take to send a request, or to receive a frame of a megabyte. Nobody can keep
    the others from being served.
    """
    def __init__(self, patience: float = 10.0) -> None:
        """Raises ValueError for a patience that is none."""
    def serve(self, client: int, pools: collections.abc.Sequence[tuple[str, PagePool | None]]) -> None:
        """Serve a client that was introduced, over a descriptor, which is closed with the connection.

        `pools` are (name, pool, or None for one that is not here), in the order in which the client numbers them. Raises
        NetError if there are too many clients, ArenaError for a pool on a GPU.
        """
    def shut(self) -> None:
        """End the thread and all connections: nothing is read from the pools after this. Idempotent."""

class PageClient:
    """Reads pages from servers over TCP, straight into pools, in a thread without the GIL.

    It has any number of transfers under way on a connection to each server, which somebody else makes. The bell is rung
    when `poll` has something to tell. `patience` is how many seconds a server may take to answer, or for a frame of a
    megabyte.
    """
    def __init__(self, bell: Bell, patience: float = 10.0) -> None:
        """Raises ValueError for a patience that is none."""
    def close(self, transfer: int) -> None:
        """Drop a transfer, under way or not: nothing is written to its pages, and nothing told of it, after this."""
    def connect(self, server: str, name: str, connected: int) -> None:
        """Ask a server that was introduced for what waits, over a descriptor, which is closed with the connection."""
    def fail(self, server: str, why: str) -> None:
        """End all transfers from a server that could not be connected to, with one line that says why."""
    def poll(self) -> list[tuple[int, str, int, float]]:
        """Return (transfer, error, bytes, seconds) of those that have ended since the last call.

        The error is empty if all pages are there as they were in their epochs.
        """
    def read(
        self,
        server: str,
        copies: collections.abc.Sequence[
            tuple[
                str,
                numpy.typing.ArrayLike,
                typing.Annotated[numpy.typing.ArrayLike, numpy.uint64],
                numpy.typing.ArrayLike,
            ]
        ],
    ) -> tuple[int, bool]:
        """Begin to read from a server; return the transfer's number, and whether `connect` or `fail` must follow.

        Any text tells servers apart. A copy is (pool, source pages, their epochs, pages of one's own). Raises ValueError for
        pools that are not in use here, PageError for pages of one's own that are free or out of range; whatever is wrong with
        the server is told by `poll`.
        """
    def shut(self) -> None:
        """Drop all transfers and end the threads. Idempotent."""
    def use(self, pools: collections.abc.Mapping[str, PagePool]) -> None:
        """Have these pools read into; to be called once, before `read`. Raises ArenaError for one on a GPU."""

def free_bytes(place: str) -> int:
    """Return the bytes of a GPU, "cuda:N", that nobody uses; what this process's context takes counts as used.

    Raises ArenaError if there is no such GPU or no driver, ValueError if `place` is no GPU. Processes that are forked later
    cannot use CUDA.
    """

def list_arenas() -> list[ArenaInfo]:
    """Return all arenas, memories, page pools and message queues on this machine, by name."""

def list_gpus() -> list[Gpu]:
    """Return the GPUs that this process sees, as it numbers them; that takes no memory of theirs.

    Raises ArenaError if there is none, no driver or too old a driver. Processes that are forked later cannot use CUDA.
    """

def remove_stale_arenas() -> list[str]:
    """Unlink what dead creators left behind; return the names."""
