from __future__ import annotations

import typing

import numpy
import numpy.typing
import typing_extensions

import ipc_buffers.page_index

__all__: list[str] = [
    "Arena",
    "ArenaError",
    "ArenaInfo",
    "MessageQueue",
    "MessageTooLarge",
    "PageError",
    "PagePool",
    "PagedBuffer",
    "list_arenas",
    "remove_stale_arenas",
]

class ArenaError(RuntimeError):
    """A shared-memory segment cannot be created, attached to or used; the text says what to do."""

class PageError(ValueError):
    """A page number that is out of range, or a page that is free where one in use is needed."""

class MessageTooLarge(ValueError):
    """A message above a quarter of its queue's capacity."""

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
    """What is known of an arena, page pool or message queue of this machine."""
    def __repr__(self) -> str: ...
    @property
    def alive(self) -> bool:
        """Whether the creator still runs; one in another pid namespace counts as alive."""
    @property
    def kind(self) -> str:
        """One of "plain arena", "page pool" or "message queue"."""
    @property
    def name(self) -> str: ...
    @property
    def pid(self) -> int:
        """The creator's process id."""
    @property
    def size(self) -> int:
        """Bytes."""

class PagePool:
    """Fixed-size pages in an arena of their own, used by many processes at once without a lock.

    A page knows its owner, so whatever a dead process held can be found and freed by `reclaim`. `pages` arguments are
    array-likes of integers, of any shape.
    """
    @staticmethod
    def attach(name: str) -> PagePool:
        """Map a pool of another handle, by name; raises as `Arena.attach`."""
    @staticmethod
    def create(name: str, num_pages: int, page_bytes: int) -> PagePool:
        """Create a pool; raises as `Arena.create`, and ValueError for counts or sizes out of range."""
    def allocate(self, count: int, request: int, instance: int = 0) -> numpy.typing.NDArray[numpy.int32] | None:
        """Return int32[count] page numbers with one reference each, tagged with their owner; None if not enough are free.

        Callers that race for the last pages may all get None. Raises ValueError unless 0 <= request < 2**32 and
        0 <= instance < 4096.
        """
    def close(self) -> None: ...
    def data(self) -> memoryview:
        """Return all pages, num_pages * page_bytes bytes, without a copy, page-aligned; the view keeps them mapped."""
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
    def retain(self, pages: numpy.typing.ArrayLike) -> None:
        """Add a reference to each page; if one is free or out of range, to none of them, and raise PageError."""
    def unlink(self) -> None: ...
    def used_pages(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def num_pages(self) -> int: ...
    @property
    def page_bytes(self) -> int: ...

class PagedBuffer:
    """Rows of a fixed size over a page pool; passive: allocating pages is the caller's business.

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

def list_arenas() -> list[ArenaInfo]:
    """Return all arenas, page pools and message queues on this machine, by name."""

def remove_stale_arenas() -> list[str]:
    """Unlink what dead creators left behind; return the names."""
