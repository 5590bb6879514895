"""Whether each staged commit builds by itself: its native sources compile, its Python imports.

What a commit leaves as it was is not built again, in this run or a later one: build/stage-built
has an empty folder for each tree that was found good.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from scripts import in_tree, op, paths
from scripts.errors import Fault
from scripts.git import Git
from scripts.stage import tree
from scripts.stage.commits import Staged

BUILT = paths.BUILD / "stage-built"


def faults(
    git: Git, parent: str, staged: Sequence[Staged], say: Callable[[str], None]
) -> list[str]:
    """`file:line: what` or `module: what` of what does not build, in the first commit with any."""
    BUILT.mkdir(parents=True, exist_ok=True)
    for each in staged:
        found = _native(git, each, say) or _modules(git, parent, each, say)
        if found:
            return [f"{fault} (in {each.name})" for fault in found]
        parent = each.commit
    return []


def _native(git: Git, each: Staged, say: Callable[[str], None]) -> list[str]:
    mark = BUILT / f"csrc-{git.text('rev-parse', f'{each.commit}:csrc')}"
    if mark.exists() or in_tree.DEVICE_SOURCE not in git.files(each.commit):
        return []
    say(f"compiling csrc of {each.name} for the host and gfx1151")
    place = tree.place(git, each.commit)
    with tempfile.TemporaryDirectory(dir=BUILT, prefix="partial-") as folder:
        try:
            in_tree.compile_all(place.folder, Path(folder))
        except Fault as fault:
            return [str(fault).split(": ", 1)[-1]]
    mark.mkdir()
    return []


def _modules(git: Git, parent: str, each: Staged, say: Callable[[str], None]) -> list[str]:
    mark = BUILT / f"vllm-{git.text('rev-parse', f'{each.commit}:vllm')}"
    changed = ("diff", "--name-only", "-z", "--no-renames", "--diff-filter=d")
    files = git.lines(*changed, parent, each.commit, "--", "vllm")
    modules = [module_of(name) for name in files if name.endswith(".py")]
    if mark.exists() or not modules:
        return []
    say(f"importing what {each.name} changes")
    place = tree.place(git, each.commit)
    command = [sys.executable, "-m", "tests.upstream.imports", str(place.folder), str(op.build())]
    done = subprocess.run([*command, *modules], cwd=paths.ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        return done.stdout.splitlines() or [f"importing ended with status {done.returncode}"]
    mark.mkdir()
    return []


def module_of(name: str) -> str:
    """A file's name as a module."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
