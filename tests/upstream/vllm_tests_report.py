"""The report of vLLM's own tests on both trees: build/vllm_tests/report.md."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from scripts import paths
from scripts.pin import load_pin
from tests.upstream.vllm_tests import LISTS, Outcomes, count, differences

FILE = paths.BUILD / "vllm_tests" / "report.md"
Results = Mapping[str, tuple[Outcomes, Outcomes]]


def write(results: Results) -> Path:
    """Writes what each machine's tests came to: (pristine, patched) by architecture."""
    lines = [
        "# vLLM's own tests, on both trees",
        "",
        f"{datetime.now(UTC).date()}, tests/upstream/test_vllm_tests.py: the tests of vLLM "
        f"{load_pin().version} that touch what the series changes, on the pristine and the patched "
        "tree, on simulated machines.",
        "",
        *_totals(results),
    ]
    for arch, (pristine, patched) in results.items():
        lines += ["", f"## {arch}", "", *_files(patched)]
        lines += ["", f"Not passed on {arch}, on both trees:", "", *_reasons(pristine)]
    lines += ["", "## Left out", "", *_left_out()]
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return FILE


def _totals(results: Results) -> Iterator[str]:
    yield "| machine | tree | passed | skipped | failed | differ |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for arch, trees in results.items():
        differ = len(differences(*trees))
        for name, outcomes in zip(("pristine", "patched"), trees, strict=True):
            counts = [count(outcomes, what) for what in ("passed", "skipped", "failed")]
            yield f"| {arch} | {name} | {' | '.join(map(str, counts))} | {differ} |"


def _files(outcomes: Outcomes) -> Iterator[str]:
    yield "| file | passed | skipped | failed |"
    yield "| --- | --- | --- | --- |"
    counts: dict[str, Counter[str]] = {}
    for test, each in outcomes.items():
        counts.setdefault(test.split("::")[0], Counter())[each.outcome] += 1
    for file, found in counts.items():
        yield f"| {file} | {found['passed']} | {found['skipped']} | {found['failed']} |"


def _reasons(outcomes: Outcomes) -> Iterator[str]:
    found = Counter(
        (each.outcome, each.reason[:150], test.split("::")[0])
        for test, each in outcomes.items()
        if each.outcome != "passed"
    )
    for (outcome, reason, file), number in found.items():
        yield f"- {file}: {number} {outcome}: {reason or 'no reason given'}"


def _left_out() -> Iterator[str]:
    for test, reason in (LISTS["deselected"] | LISTS["left_out"]).items():
        yield f"- {test}: {reason}"
