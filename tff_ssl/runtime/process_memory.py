"""Resident memory of a process and its descendants."""

import contextlib
import threading
from collections.abc import Iterator

import psutil

_POLL_SECONDS = 0.02


class MemoryWatch:
    """Samples the resident memory of a process and its descendants.

    Attributes:
      peak: Largest sum so far, bytes.
    """

    def __init__(self, pid: int):
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(pid,), daemon=True)
        self._thread.start()

    def _run(self, pid: int) -> None:
        while not self._stop.wait(_POLL_SECONDS):
            self.peak = max(self.peak, tree_resident(pid))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def process_tree(pid: int) -> Iterator[psutil.Process]:
    """Yields a process and all its descendants; nothing if it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        yield process
        yield from process.children(recursive=True)


def tree_resident(pid: int) -> int:
    """Resident memory of a process and its descendants now, bytes."""
    return sum(map(resident, process_tree(pid)))


def resident(process: psutil.Process) -> int:
    """Resident memory of a process, bytes; 0 if it has ended."""
    try:
        return process.memory_info().rss
    except psutil.NoSuchProcess:
        return 0
