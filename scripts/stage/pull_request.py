"""Fills the text of the pull request from this repository's dated tables and from the staging.

In upstream/pull_request.md `{{name}}` is filled here. `{{person: what}}` is what only a person can
say: it is left marked, and staging names it.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from scripts import paths
from scripts.errors import Fault

TEMPLATE = paths.ROOT / "upstream" / "pull_request.md"
UPSTREAM_TEMPLATE = ".github/PULL_REQUEST_TEMPLATE.md"
BENCH = paths.ROOT / "docs" / "bench"
VERIFIED = paths.ROOT / "docs" / "verified"

_FIELD = re.compile(r"\{\{([a-z_]+)\}\}")
_PERSON = re.compile(r"\{\{person: (.+?)\}\}", re.DOTALL)
_DATED = re.compile(r"\d{4}-\d{2}-\d{2}")
# Tokens of a decode step, for which the claim of speed is made.
DECODE = 32


def fill(template: str, fields: Mapping[str, str]) -> tuple[str, list[str]]:
    """The text with its fields filled, and what is left for a person. Fault for an unknown one."""
    unknown = [name for name in _FIELD.findall(template) if name not in fields]
    if unknown:
        raise Fault(f"{TEMPLATE.name}: nothing fills {{{{{unknown[0]}}}}}; see pull_request.py")
    left = _PERSON.findall(template)
    text = _PERSON.sub(lambda match: f"**[TO BE FILLED BY A PERSON: {match[1]}]**", template)
    return _FIELD.sub(lambda match: fields[match[1]], text), left


def lacking(text: str, upstream: str) -> list[str]:
    """Headings and checklist lines of vLLM's template that a text does not have."""
    wanted = re.findall(r"^(?:## .+|- \[ \] .+)$", upstream, re.MULTILINE)
    have = {line.replace("[x]", "[ ]") for line in text.splitlines()}
    return [line for line in wanted if line not in have]


def newest(folder: Path, pattern: str) -> Path:
    """The newest file below a folder that matches, by the date in its path; Fault where none is."""
    found = [path for path in folder.glob(pattern) if _DATED.search(str(path))]
    if not found:
        raise Fault(f"{folder} has no dated {pattern}; the pull request needs one")
    return max(found, key=lambda path: (_DATED.findall(str(path))[-1], str(path)))


def bench_rows(table: str) -> list[dict[str, str]]:
    """The rows of the first table of a speed report, by column."""
    lines = [line for line in table.split("\n## ")[1].splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def speed(table: str, device: str) -> str:
    """The range of what is gained over unfused in a decode step, in one sentence."""
    rows = [row for row in bench_rows(table) if int(row["T"]) <= DECODE]
    gains = [float(row["over unfused"]) for row in rows]
    return (
        f"{min(gains):.1f} to {max(gains):.1f} times faster than the kernels it replaces at "
        f"{DECODE} tokens or fewer, on {device}."
    )


def bench(table: str) -> str:
    """What was measured, of a decode step's sizes."""
    intro = table.splitlines()[2]
    columns = ["shape", "T", "unfused", "ours", "over unfused", "spread"]
    lines = [f"| {' | '.join(columns)} |", "| " + " | ".join("---" for _ in columns) + " |"]
    for row in bench_rows(table):
        if int(row["T"]) <= DECODE:
            lines.append(f"| {' | '.join(row[column] for column in columns)} |")
    return "\n".join([intro, "", *lines])


def gpu_tests(report: str) -> str:
    """What ran on a GPU, and what did not and why, from the report of `make test-gpu`."""
    title, *sections = report.split("\n## ")
    heading, _, facts = title.partition("\n")
    lines = [heading.removeprefix("# ") + ".", *(line for line in facts.splitlines() if line)]
    for section in sections:
        name, _, body = section.partition("\n")
        if name in ("Failed", "Not run", "Compute-sanitizer"):
            lines += ["", f"{name}:", "", *(line for line in body.splitlines() if line)]
    return "\n".join(lines)
