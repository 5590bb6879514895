"""One run at a time over what several targets write."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from scripts import paths


@contextmanager
def held(name: str) -> Iterator[int]:
    """Holds the lock of that name; a second process waits, and says so. Ends with the process.

    Gives a file descriptor: a program started with it holds the lock too, until it has ended.
    """
    paths.BUILD.mkdir(exist_ok=True)
    with (paths.BUILD / f"{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{name}: waiting for another run to end", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()
