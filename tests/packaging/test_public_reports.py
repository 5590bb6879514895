"""docs/public-reports.md: every report has its row, and the tests of a row exist and name it."""

import ast
import functools
import re

import pytest

from scripts import paths

# Issues and pull requests of vLLM, and of others by their names.
REPORTS = (
    *("43355", "43676", "43810", "51049", "51722", "53115", "53918", "55720", "57349", "57681"),
    *("57900", "aiter 1498", "aiter 5193", "sglang 19636", "sglang 35345"),
)
UNNUMBERED = "(none)"
PAGE = (paths.ROOT / "docs" / "public-reports.md").read_text()
# The reports of each row, and its tests: file::name.
ROWS = [
    (reports.split(", "), re.findall(r"`([^`]*)`", tests))
    for reports, _, tests in re.findall(r"^\| (.*) \| (.*) \| (`.*`) \|$", PAGE, re.MULTILINE)
]


@functools.cache
def docstrings(file: str) -> dict[str, str]:
    """The docstring of each of a file's tests, on one line."""
    module = ast.parse((paths.ROOT / file).read_text())
    return {
        node.name: " ".join((ast.get_docstring(node) or "").split())
        for node in module.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def reports_in(text: str) -> set[str]:
    """The reports that a text names: "vLLM 1", "vLLM 1 and 2", "aiter 3"."""
    found = set()
    for project, first, second in re.findall(r"\b(vLLM|aiter|sglang) (\d+)(?: and (\d+))?", text):
        prefix = "" if project == "vLLM" else f"{project} "
        found |= {prefix + number for number in (first, second) if number}
    return found


def test_every_report_has_one_row() -> None:
    listed = [report for reports, _ in ROWS for report in reports]
    assert sorted(listed) == sorted([*REPORTS, UNNUMBERED])


@pytest.mark.parametrize(("reports", "tests"), ROWS, ids=lambda x: x[0].split("::")[0])
def test_tests_of_a_row_exist_and_name_its_reports(reports: list[str], tests: list[str]) -> None:
    for test in tests:
        file, name = test.split("::")
        assert name in docstrings(file), f"there is no {test}"
        assert {*reports} - {UNNUMBERED} <= reports_in(docstrings(file)[name]), test


def test_every_test_that_names_a_report_is_in_its_row() -> None:
    listed = {(report, test) for reports, tests in ROWS for report in reports for test in tests}
    for path in sorted((paths.ROOT / "tests").rglob("test_*.py")):
        file = path.relative_to(paths.ROOT).as_posix()
        for name, text in docstrings(file).items():
            for report in reports_in(text):
                assert (report, f"{file}::{name}") in listed
