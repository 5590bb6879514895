"""The table of a series on another vLLM."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scripts.compat.tests import Outcome
from scripts.diagnose import parse
from scripts.transplant import Fit, State

# Lines of upstream's change that are shown of one conflict.
MOST_LINES = 40


@dataclass(frozen=True)
class Report:
    """All that the table says."""

    target: str
    pinned: str
    # The commit of the series in build/vllm: its contents, in short.
    series: str
    date: datetime.date
    fits: Sequence[Fit]
    tests: Outcome
    # Test file -> the patch that it needs and that does not fit.
    left_out: Mapping[str, str]

    @property
    def is_good(self) -> bool:
        """Whether the whole series fits, the tests can be run, and none fails."""
        fits = all(fit.state is not State.CONFLICT for fit in self.fits)
        return fits and not self.tests.failed and not self.tests.obstacle


def as_markdown(report: Report) -> str:
    """The table, the conflicts and the tests."""
    lines = [
        f"# The series on vLLM {report.target}",
        "",
        f"{report.date}, `make compat VLLM={report.target}`; the series on vLLM {report.pinned} is "
        f"commit {report.series[:12]}.",
        "",
        "| patch | result | where |",
        "| --- | --- | --- |",
    ]
    for fit in report.fits:
        where = "<br>".join(_cell(f"`{c.path}`: {c.reason}") for c in fit.conflicts)
        name = fit.patch.name.removeprefix("patches/").removesuffix(".patch")
        lines.append(f"| {name} | {fit.state.value} | {where} |")
    lines += _conflicts(report.fits)
    return "\n".join([*lines, *_tests(report)]) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _conflicts(fits: Sequence[Fit]) -> list[str]:
    """What upstream has changed at each conflict, and which patches to the file were missing."""
    lines: list[str] = []
    missing: dict[str, set[str]] = {}
    for fit in fits:
        for conflict in fit.conflicts:
            lines += ["", f"## {fit.patch.name}: {conflict.path}", "", f"{conflict.reason}."]
            if without := [name for name, files in missing.items() if conflict.path in files]:
                lines += ["", f"Tried without {', '.join(without)}, so its lines are not there."]
            if conflict.changed:
                shown = conflict.changed[:MOST_LINES]
                left = len(conflict.changed) - len(shown)
                more = [f"and {left} lines more"] if left else []
                lines += ["", "```diff", *shown, *more, "```"]
        if fit.state is State.CONFLICT:
            diffs = parse(fit.patch.mail.decode(errors="replace"))
            missing[fit.patch.name] = {diff.path for diff in diffs}
    return lines


def _tests(report: Report) -> list[str]:
    tests = report.tests
    failed, not_run = sum(tests.failed.values()), sum(tests.not_run.values())
    lines = ["", "## Tests", ""]
    lines.append(f"{tests.passed} passed, {failed} failed, {not_run} skipped.")
    if tests.obstacle:
        lines[-1] = f"None was run; a simulated machine cannot be made of it: {tests.obstacle}."
    items = [f"{count} failed: {reason}" for reason, count in tests.failed.items()]
    items += [f"{count} skipped: {reason}" for reason, count in tests.not_run.items()]
    items += [f"{file} not run: it needs {patch}" for file, patch in report.left_out.items()]
    if items:
        lines += ["", *(f"- {item}" for item in items)]
    return lines
