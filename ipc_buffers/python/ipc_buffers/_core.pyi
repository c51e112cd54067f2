from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Buffer

from ipc_buffers.page_index import PageIndex

class ArenaError(RuntimeError):
    """A shared-memory segment cannot be created, attached to or used; the text says what to do."""

class PageError(ValueError):
    """A page number that is out of range, or a page that is free where one in use is needed."""

class MessageTooLarge(ValueError):  # noqa: N818
    """A message above a quarter of its queue's capacity."""

class Arena:
    """A named region of POSIX shared memory.

    Its creator's process owns the name: it stays until `unlink`, and nothing removes it behind the owner's back.
    Names are machine-wide: 1 to 200 letters, digits, '.', '_' or '-'.
    """

    @staticmethod
    def create(name: str, size: int) -> Arena:
        """Takes `size` bytes, zeroed, all at once, so that a later access cannot fail.

        Raises ArenaError if /dev/shm has no room for it or the name is in use, ValueError for a bad name or size.
        """

    @staticmethod
    def attach(name: str) -> Arena:
        """Raises ArenaError if there is no such arena, or it is something else or still being created."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int:
        """Bytes."""

    def buffer(self) -> memoryview:
        """All bytes, writable, without a copy; the view keeps them mapped, also after `close`."""

    def close(self) -> None:
        """Gives up this handle's mapping. Idempotent."""

    def unlink(self) -> None:
        """Removes the name, if it still is this arena's. Idempotent, and works after `close`."""

class ArenaInfo:
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str:
        """ "plain arena", "page pool" or "message queue"."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def pid(self) -> int:
        """Of the creator."""

    @property
    def alive(self) -> bool:
        """Whether the creator still runs; one in another pid namespace counts as alive."""

def list_arenas() -> list[ArenaInfo]:
    """All arenas, page pools and message queues on this machine, by name."""

def remove_stale_arenas() -> list[str]:
    """Unlinks what dead creators left behind; returns the names."""

class PagePool:
    """Fixed-size pages in an arena of their own, used by many processes at once without a lock.

    A page knows its owner, so whatever a dead process held can be found and freed by `reclaim`. `pages` arguments
    are array-likes of integers, of any shape.
    """

    @staticmethod
    def create(name: str, num_pages: int, page_bytes: int) -> PagePool:
        """Raises as `Arena.create`, and ValueError for counts or sizes out of range."""

    @staticmethod
    def attach(name: str) -> PagePool:
        """Raises as `Arena.attach`."""

    @property
    def name(self) -> str: ...
    @property
    def num_pages(self) -> int: ...
    @property
    def page_bytes(self) -> int: ...
    def allocate(self, count: int, request: int, instance: int = 0) -> NDArray[np.int32] | None:
        """int32[count] page numbers with one reference each, tagged with their owner; None if not enough are free.

        Callers that race for the last pages may all get None. Raises ValueError unless
        0 <= request < 2**32 and 0 <= instance < 4096.
        """

    def retain(self, pages: ArrayLike) -> None:
        """Adds a reference to each page; if one is free or out of range, to none of them, and raises PageError."""

    def release(self, pages: ArrayLike) -> int:
        """Drops a reference of each page; returns how many became free.

        Raises PageError if a page is free or out of range. Nothing is released then, unless the array repeats a
        page more often than it has references: those before it are.
        """

    def reclaim(self, request: int | None = None, instance: int | None = None) -> int:
        """Frees all pages of the owner, whatever their references; returns how many. ValueError without an owner."""

    def remember(self, pages: ArrayLike) -> NDArray[np.uint64]:
        """The epochs of pages that the caller holds a reference of, for `recall`.

        What they hold is from now on worth keeping when they are free: they are taken anew last, those unused for
        longest before the others, and of pages released together the later ones first. Raises PageError for a free
        page or one out of range.
        """

    def recall(self, pages: ArrayLike, epochs: ArrayLike, request: int, instance: int = 0) -> int:
        """Adds a reference to the leading pages that have not been taken anew since `remember`; returns how many.

        A free one becomes the given owner's; one in use belongs to request 0 from now on, so that `reclaim` takes
        it from nobody. Raises PageError for a page out of range, ValueError as `allocate`.
        """

    def renew(self, pages: ArrayLike, epochs: ArrayLike) -> tuple[int, int]:
        """How many leading pages `recall` would find now, and how many of these are in use.

        They count as used just now. Raises PageError for a page out of range.
        """

    def owner(self, page: int) -> tuple[int, int] | None:
        """(request, instance), or None if the page is free. Raises PageError if it is out of range."""

    def references(self, page: int) -> int:
        """0 if the page is free. Raises PageError if it is out of range."""

    def free_pages(self) -> int: ...
    def used_pages(self) -> int: ...
    def remembered_pages(self) -> int:
        """Free pages whose contents are worth keeping; `free_pages` counts them too."""

    def data(self) -> memoryview:
        """All pages, num_pages * page_bytes bytes, without a copy, page-aligned; keeps them mapped."""

    def close(self) -> None: ...
    def unlink(self) -> None: ...

class PagedBuffer:
    """Rows of a fixed size over a page pool; passive: allocating pages is the caller's business.

    All methods check every bound before they touch memory: ValueError for an index that contradicts itself or its
    rows, IndexError for a request or rows outside it, PageError for pages that are free or out of range.
    """

    def __init__(self, pool: PagePool, row_bytes: int) -> None: ...
    @property
    def rows_per_page(self) -> int: ...
    @property
    def row_bytes(self) -> int: ...
    def pages_for(self, rows: int) -> int:
        """The pages that `rows` rows fill."""

    def write(self, index: PageIndex, rows: NDArray[Any]) -> None:
        """Copies a flattened batch, C-contiguous [n, row_bytes] in bytes of any dtype, to its pages."""

    def read(
        self, index: PageIndex, request: int, start: int, stop: int, out: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Copies rows [start, stop) of one request, counted from its first.

        Returns uint8 [stop - start, row_bytes], or `out`, C-contiguous and of just as many bytes.
        """

    def consume(self, index: PageIndex, request: int, start: int, stop: int) -> int:
        """Releases the request's pages that [start, stop) finishes: those whose last row lies in it.

        So pages with a row at or behind `stop` stay, and consecutive calls release each page once. Returns how
        many pages became free.
        """

class MessageQueue:
    """Bounded queue of messages between processes, in the order they were sent.

    Any number of senders; several receivers share the messages. A sender that is killed leaves no half message, a
    receiver that is killed while it takes a message leaves it to the next one. Waiting threads sleep in the kernel,
    without the GIL, and Python's signal handlers run.
    """

    @staticmethod
    def create(name: str, capacity: int) -> MessageQueue:
        """`capacity` in bytes, 8 to 15 of which each message needs for itself. Raises as `Arena.create`."""

    @staticmethod
    def attach(name: str) -> MessageQueue:
        """Raises as `Arena.attach`."""

    @property
    def name(self) -> str: ...
    @property
    def capacity(self) -> int:
        """Bytes."""

    @property
    def max_message(self) -> int:
        """Bytes: a quarter of the capacity."""

    def send(self, message: Buffer, timeout: float | None = None) -> None:
        """Waits up to `timeout` seconds for room (None: forever).

        Raises TimeoutError if there was none, MessageTooLarge if there never will be.
        """

    def receive(self, timeout: float | None = None) -> bytes | None:
        """The next message; None if there is none within `timeout` seconds (None: waits forever, 0: looks once)."""

    def receive_many(self, limit: int, timeout: float | None = None) -> list[bytes]:
        """Waits for a first message as `receive`, and takes what is there, up to `limit` messages."""

    def pending(self) -> int:
        """Messages in the queue; counts them, one by one."""

    def close(self) -> None:
        """Idempotent. Other threads that wait on this handle raise ArenaError."""

    def unlink(self) -> None: ...
