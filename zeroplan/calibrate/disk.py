"""A disk's rates: a temporary file written and read by several threads, past the page cache where the system allows."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

THREADS, BLOCK = 8, 8 << 20
"""Blocks in flight, and bytes of each; DeepSpeed's aio has 8 of 1 MiB by default (queue_depth, block_size)."""
SIZE, QUICK_SIZE = 4 << 30, 512 << 20


class DiskBandwidth(NamedTuple):
    """Bytes/s of a folder's file system, and how they came about."""

    read: float
    write: float
    how: str


def measure(folder: str, size: int) -> DiskBandwidth:
    """Write `size` bytes, wait until they lie there, and read them; `size` is a multiple of BLOCK. Raises OSError."""
    handle, path = tempfile.mkstemp(dir=folder, prefix=".zeroplan-calibrate-")
    os.close(handle)
    blocks = [mmap.mmap(-1, BLOCK) for _ in range(THREADS)]  # page-aligned, as O_DIRECT wants them
    try:
        for block in blocks:
            block[:] = os.urandom(BLOCK)  # which no disk compresses
        file, direct = _opened(path)
        try:
            start = time.perf_counter()
            _moved(file, size, os.pwrite, blocks)
            os.fsync(file)
            written = time.perf_counter() - start
            if not direct:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            start = time.perf_counter()
            _moved(file, size, lambda descriptor, block, at: os.preadv(descriptor, [block], at), blocks)
            read = time.perf_counter() - start
        finally:
            os.close(file)
    finally:
        os.unlink(path)
        for block in blocks:
            block.close()
    way = "O_DIRECT" if direct else "through the page cache, dropped in between"
    how = f"{size >> 20} MiB by {THREADS} threads in blocks of {BLOCK >> 20} MiB, {way}"
    return DiskBandwidth(size / read, size / written, how)


def _opened(path: str) -> tuple[int, bool]:
    """The file, and whether it goes past the page cache."""
    try:
        return os.open(path, os.O_RDWR | os.O_DIRECT), True
    except (OSError, AttributeError):  # a file system, or a system, that has no such thing
        return os.open(path, os.O_RDWR), False


def _moved(file: int, size: int, move: Callable[[int, mmap.mmap, int], int], blocks: list[mmap.mmap]) -> None:
    """Each thread moves every so manieth block of the file."""

    def part(index: int) -> None:
        for at in range(index * BLOCK, size, len(blocks) * BLOCK):
            if move(file, blocks[index], at) != BLOCK:
                raise OSError(errno.EIO, "fewer bytes than a block were moved")

    with ThreadPoolExecutor(len(blocks)) as threads:
        list(threads.map(part, range(len(blocks))))
