"""Takes out of a file what is the series' own and not for upstream.

Such a part stands between two comment lines of its own, `series only: begin` and
`series only: end`, which go with it.
"""

import re

from scripts.errors import Fault

_MARK = re.compile(rb"^[ \t]*(?:#|//) series only: (begin|end)[ \t]*$")


def kept_lines(content: bytes, name: str) -> list[int]:
    """Numbers (from 1) of the lines that stay. Fault, naming the file, where marks do not pair."""
    kept, opened = [], 0
    for number, line in enumerate(content.split(b"\n"), 1):
        mark = _MARK.match(line)
        if mark is None:
            if not opened:
                kept.append(number)
        elif (mark[1] == b"begin") == bool(opened):
            other = f"the one in line {opened} is not ended" if opened else "nothing has begun"
            raise Fault(f"{name}:{number}: `series only: {mark[1].decode()}`, but {other}")
        else:
            opened = 0 if opened else number
    if opened:
        raise Fault(f"{name}:{opened}: `series only: begin` has no end")
    return kept


def strip(content: bytes, name: str) -> bytes:
    """The file as upstream gets it."""
    lines = content.split(b"\n")
    return b"\n".join(lines[number - 1] for number in kept_lines(content, name))
