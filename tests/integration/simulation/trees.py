"""The two vLLM trees that tests compare: the series' checkout, and its base commit."""

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

from scripts import paths

_PRISTINE = paths.BUILD / "pristine"


def tree_path(name: str) -> Path:
    """Where the tree is: "patched" or "pristine" (made, once a base commit, if need be)."""
    if not (paths.CHECKOUT / ".git").exists():
        raise FileNotFoundError(f"no checkout in {paths.CHECKOUT}; run `make checkout`")
    match name:
        case "patched":
            return paths.CHECKOUT
        case "pristine":
            return _pristine()
    raise ValueError(f"no tree {name!r}; there are patched and pristine")


def _pristine() -> Path:
    commit = _git("rev-parse", "--short=12", "base^{commit}").decode().strip()
    tree = _PRISTINE / commit
    if not tree.exists():
        partial = _PRISTINE / f"{commit}.partial"
        with tarfile.open(fileobj=BytesIO(_git("archive", "base"))) as archive:
            archive.extractall(partial, filter="data")
        partial.rename(tree)
    return tree


def _git(*args: str) -> bytes:
    return subprocess.run(
        ["git", "-C", str(paths.CHECKOUT), *args], check=True, capture_output=True
    ).stdout
