"""The staged tree as files, in build/stage-tree: what the hooks and compilers read."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from scripts import paths
from scripts.git import Git
from scripts.stage.commits import Home

FOLDER = paths.BUILD / "stage-tree"


def place(git: Git, commit: str, folder: Path = FOLDER) -> Git:
    """Makes `folder` a work tree of the repository with that commit; files alike are kept."""
    tree = Git(folder, git.epoch)
    if (folder / ".git").exists() and tree.commit_id("HEAD") and _is_of(git, tree):
        tree.bytes("reset", "--quiet", "--hard")
        tree.bytes("checkout", "--quiet", "--detach", commit)
        tree.bytes("clean", "-fdq")
        return tree
    if folder.exists():
        shutil.rmtree(folder)
    git.bytes("worktree", "prune")
    git.bytes("worktree", "add", "--quiet", "--force", "--detach", str(folder), commit)
    return tree


def _is_of(git: Git, tree: Git) -> bool:
    where = ("rev-parse", "--path-format=absolute", "--git-common-dir")
    return git.text(*where) == tree.text(*where)


def at_home(line: str, homes: Mapping[str, Home], folder: Path = FOLDER) -> str:
    """A tool's line with file and line number as they are where one edits them."""
    match = re.match(rf"(?:{re.escape(str(folder))}/)?([^\s:]+)(:(\d+))?(.*)", line, re.DOTALL)
    if match is None:
        return line
    path, number, rest = match[1], match[3], match[4]
    if path not in homes:
        inside = (folder / path).is_file()
        return f"{folder.relative_to(paths.ROOT)}/{path}{match[2] or ''}{rest}" if inside else line
    home = homes[path]
    if number is None:
        return f"{home.path}{rest}"
    staged = min(max(int(number), 1), len(home.lines))
    return f"{home.path}:{home.lines[staged - 1]}{rest}"
