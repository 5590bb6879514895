"""The two vLLM trees that tests compare: the series' checkout, and its base commit."""

import tempfile
from pathlib import Path

from scripts import lock, paths
from scripts.git import Git

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
    git = Git(paths.CHECKOUT, epoch=0)
    commit = git.text("rev-parse", "--short=12", "base^{commit}")
    tree = _PRISTINE / commit
    with lock.held("pristine"):
        if not tree.exists():
            partial = _PRISTINE / f"{commit}.partial"
            with tempfile.TemporaryDirectory() as folder:
                staged = git.with_index(Path(folder) / "index")
                staged.bytes("read-tree", commit)
                staged.bytes("checkout-index", "--all", "--force", f"--prefix={partial}/")
            partial.rename(tree)
    return tree
