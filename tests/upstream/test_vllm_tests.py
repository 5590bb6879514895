"""vLLM's own tests that touch what the series changes come to the same on both trees.

The trees run on the same simulated machine. build/vllm_tests/report.md says which tests ran, and
which did not and why; the lists and their reasons are in vllm_tests.toml.
"""

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
from simulation.trees import tree_path

from tests.upstream import vllm_tests_report
from tests.upstream.touching import changed_names, reexported, touched
from tests.upstream.vllm_tests import LISTS, Outcomes, count, differences, on_both_trees

# Architecture -> the files of which something runs.
RUN = {arch: {each.split("::")[0] for each in chosen} for arch, chosen in LISTS["run"].items()}
# Fewer mean that something keeps vLLM's tests from running here at all.
LEAST_PASSED = {"gfx1151": 240, "gfx942": 50}


@functools.cache
def touching() -> dict[str, set[str]]:
    """Test file of vLLM's -> what of the series it touches."""
    patched = tree_path("patched")
    changed = reexported(patched, changed_names(patched, tree_path("pristine")))
    found = {}
    for file in sorted(patched.joinpath("tests").rglob("test_*.py")):
        if names := touched(file, changed):
            found[str(file.relative_to(patched))] = names
    return found


@pytest.fixture(scope="module")
def results(checkout: Path) -> Iterator[dict[str, tuple[Outcomes, Outcomes]]]:
    """What has run, by architecture; the report is written of it."""
    found: dict[str, tuple[Outcomes, Outcomes]] = {}
    yield found
    if found:
        vllm_tests_report.write(found)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("arch", list(RUN))
def test_they_come_to_the_same_on_both_trees(
    arch: str, op_library: Path, results: dict[str, tuple[Outcomes, Outcomes]]
) -> None:
    results[arch] = pristine, patched = on_both_trees(arch, op_library)
    differ = differences(pristine, patched)
    assert differ.keys() == LISTS["different"].get(arch, {}).keys(), "\n".join(
        f"{test}: {what}" for test, what in differ.items()
    )
    for outcomes in (pristine, patched):
        assert count(outcomes, "passed") >= LEAST_PASSED[arch]
    without = RUN[arch] - {test.split("::")[0] for test in pristine}
    assert not without, f"no test of {without} was found"


def test_every_file_that_touches_the_series_runs_or_has_a_reason(checkout: Path) -> None:
    listed = set().union(*RUN.values(), LISTS["left_out"])
    unlisted = {file: names for file, names in touching().items() if file not in listed}
    assert not unlisted, "neither run nor left out in vllm_tests.toml"


def test_what_is_left_out_touches_the_series_and_does_not_run(checkout: Path) -> None:
    left_out = set(LISTS["left_out"])
    assert left_out <= touching().keys()
    assert not left_out & set().union(*RUN.values())
    assert all(LISTS["left_out"].values()) and all(LISTS["deselected"].values())


def test_vllms_tests_of_backend_selection_run() -> None:
    for file in (
        "tests/kernels/attention/test_attention_selector.py",
        "tests/test_attention_backend_registry.py",
        "tests/v1/attention/test_attention_backends_selection.py",
        "tests/v1/attention/test_rocm_attention_backends_selection.py",
    ):
        assert file in RUN["gfx1151"] and file in RUN["gfx942"]
