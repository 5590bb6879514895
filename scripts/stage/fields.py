"""What the text of the pull request is filled with, from the staged commits and their checks."""

import datetime
from collections.abc import Sequence
from pathlib import Path

from scripts import paths
from scripts.git import Git
from scripts.pin import Pin
from scripts.stage import hooks, pull_request
from scripts.stage.commits import Staged


def all_fields(
    git: Git,
    pin: Pin,
    base: str,
    staged: list[Staged],
    files: Sequence[str],
    results: list[hooks.Result],
    tests: dict[str, object],
) -> dict[str, str]:
    """Everything that the text of the pull request has from here, by its field's name."""
    table = pull_request.newest(pull_request.BENCH, "*/*h200.md").read_text(encoding="utf-8")
    gpu = pull_request.newest(pull_request.VERIFIED, "*-h200.md").read_text(encoding="utf-8")
    docs = [name for name in files if name.startswith("docs/")]
    today = datetime.datetime.now(datetime.UTC).date()
    return {
        "date": str(today),
        "version": pin.version,
        "commit": pin.commit,
        "speed": pull_request.speed(table, "an NVIDIA H200"),
        "bench": pull_request.bench(table),
        "gpu_tests": pull_request.gpu_tests(gpu),
        "staged_tests": f"{tests['passed']} passed, 0 failed.",
        "test_files": " ".join(name for name in files if _is_test(name)),
        "hooks": _hooks(results),
        "models": _models(),
        "commits": "\n\n".join(_described(git, each) for each in staged),
        "size": _size(git, base, staged[-1].commit),
        "docs": ", ".join(f"`{name}`" for name in docs) or "none",
    }


def _hooks(results: Sequence[hooks.Result]) -> str:
    """A list of the hooks that ran, and of those that did not by the reason."""
    by_reason: dict[str, list[str]] = {}
    for result in results:
        of_reason = by_reason.setdefault(result.not_run, [])
        if result.id not in of_reason:
            of_reason.append(result.id)
    lines = [f"- clean: {', '.join(by_reason.pop('', []))}"]
    lines += [f"- not run, {reason}: {', '.join(ids)}" for reason, ids in by_reason.items()]
    return "\n".join(lines)


def _models() -> str:
    """What was compared in the place of an evaluation."""
    if not any(paths.ROOT.glob("tests/models/test_*.py")):
        return "No model was run."
    return (
        "On the simulated machine the outputs of small models with the fusions on were compared "
        "with eager's."
    )


def _is_test(name: str) -> bool:
    return name.startswith("tests/") and Path(name).name.startswith("test_")


def _described(git: Git, each: Staged) -> str:
    """A commit's message without its trailers, its subject in bold."""
    subject, _, body = git.text("log", "-1", "--format=%B", each.commit).partition("\n\n")
    paragraphs = [part for part in body.split("\n\n") if "Signed-off-by: " not in part]
    return "\n\n".join([f"**{subject}.**", *paragraphs])


def _size(git: Git, base: str, tip: str) -> str:
    """Lines added and removed below each top folder, as a table."""
    sums: dict[str, list[int]] = {}
    for line in git.lines("diff", "--numstat", "-z", "--no-renames", base, tip):
        added, removed, name = line.split("\t", 2)
        count = sums.setdefault(name.split("/")[0], [0, 0])
        for side, text in enumerate((added, removed)):
            count[side] += int(text) if text.isdigit() else 0
    rows = [f"| {folder} | {a} | {r} |" for folder, (a, r) in sorted(sums.items())]
    return "\n".join(["| | added | removed |", "| --- | --- | --- |", *rows])
