"""What is this repository's alone, and must not be in the staged commits."""

import re
from collections.abc import Iterator

from scripts.git import Git
from scripts.stage.commits import Staged

# The library that is loaded at run time, the wheel it is laid over, and the series as such.
ALONE = re.compile(
    r"librdna35|\bop library\b|\bbase[- ]wheel\b|\bthe series\b|\bseries only\b|vllm_overlay"
    r"|\bcsrc/runtime\b|\bmake (?:stage|refresh|checkout|compat|repin)\b",
    re.IGNORECASE,
)


def faults(git: Git, parent: str, staged: list[Staged]) -> list[str]:
    """`where: what` for each word of ours in a commit's message or in a line that it adds."""
    found = []
    for each in staged:
        message = git.text("log", "-1", "--format=%B", each.commit)
        for line in message.splitlines():
            if match := ALONE.search(line):
                found.append(f"{each.name}: its message names {match[0]!r}: {line.strip()}")
        for path, number, line in added_lines(git, parent, each.commit):
            if match := ALONE.search(line):
                found.append(f"{path}:{number}: names {match[0]!r}, which is not for upstream")
        parent = each.commit
    return found


def added_lines(git: Git, parent: str, commit: str) -> Iterator[tuple[str, int, str]]:
    """(path, line number, text) of each line that a commit adds."""
    path, number = "", 0
    diff = git.bytes("diff-tree", "-p", "-U0", "--no-renames", "--src-prefix=a/", parent, commit)
    for line in diff.decode(errors="replace").splitlines():
        if line.startswith("+++ "):
            path = line[4:].removeprefix("b/")
        elif match := re.match(r"@@ -\S+ \+(\d+)", line):
            number = int(match[1])
        elif line.startswith("+"):
            yield path, number, line[1:]
            number += 1
