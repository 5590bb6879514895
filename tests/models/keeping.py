"""What long runs keep, so that an interrupted one goes on where it was."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from scripts import op

TESTS = Path(__file__).resolve().parents[1]


def state(commit: str, files: Iterable[Path]) -> str:
    """A name for everything that a result depends on: the tree, the op, and what made it."""
    digest = hashlib.sha256(commit.encode())
    for file in sorted(files):
        digest.update(file.read_bytes())
    digest.update(op.build().read_bytes())
    return digest.hexdigest()[:12]


def write(path: Path, content: bytes) -> None:
    """Writes a file as a whole, or not at all; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_bytes(content)
    new.replace(path)
