"""Threads that share work; they start when they are first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_THREADS = 8


class Threads:
    """A pool of threads."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def map(self, function: Callable[[T], R], values: Iterable[T]) -> list[R]:
        """Return ``function`` of each value, in order; runs in several threads."""
        listed = list(values)
        if len(listed) < 2:
            return [function(value) for value in listed]
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix=self._name)
            tasks = [self._pool.submit(function, value) for value in listed]
        # Wait for all before an error is raised: a cleanup must not race with tasks that write.
        wait(tasks)
        return [task.result() for task in tasks]

    def close(self) -> None:
        """End the threads; a later call starts them again."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()
