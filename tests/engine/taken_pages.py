"""Pages that are written to as soon as they are given back."""

from collections.abc import Callable

from unifiedserve.memory.device_pages import DevicePages, PageNumbers

POISON = 0xFF  # NaN in each float
Release = Callable[[DevicePages, PageNumbers], None]


def taken_at_once(release: Release) -> Release:
    """Give pages back to somebody who waits for them, as another process may, and writes to them at once."""

    def release_and_take(pages: DevicePages, numbers: PageNumbers) -> None:
        release(pages, numbers)
        memory, size = pages.pool.memory, pages.pool.page_bytes
        for number in {int(number) for number in numbers if pages.pool.references(int(number)) == 0}:
            memory.write(number * size, bytes([POISON]) * size)

    return release_and_take
