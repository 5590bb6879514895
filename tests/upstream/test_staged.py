"""The tests that go upstream with the series: they pass on gfx1151, and skip on other GPUs."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from simulation.host import Machine, environment

from scripts import paths
from scripts.stage.commits import UPSTREAM
from tests.upstream.staged import run


def files() -> list[Path]:
    return sorted((UPSTREAM.overlay / "tests").rglob("test_*.py"))


def tree(checkout: Path) -> Path:
    """vLLM with the series: the checkout, or the tree that staging names."""
    return Path(os.environ.get("RDNA35_STAGED_TREE", checkout))


@pytest.mark.slow
def test_all_pass_on_gfx1151(checkout: Path, op_library: Path) -> None:
    result = run(files(), tree(checkout), op_library)
    assert result.status == 0, result.output
    assert result.counts["passed"] >= 45 and not result.counts["failed"]
    assert not result.counts["not_run"]
    if junit := os.environ.get("RDNA35_STAGED_JUNIT"):
        Path(junit).write_text(result.junit)


@pytest.mark.slow
def test_all_skip_on_another_gpu(checkout: Path, op_library: Path) -> None:
    result = run(files(), tree(checkout), op_library, arch="gfx942")
    assert result.counts["passed"] == 0 and not result.counts["failed"], result.output
    assert re.search(rf"^{len(files())} skipped", result.output, re.MULTILINE), result.output


def test_they_import_from_vllm_alone() -> None:
    allowed = {
        "vllm",
        "tests",
        "torch",
        "pytest",
        "json",
        "dataclasses",
        "collections",
        "math",
        "typing",
    }
    for file in UPSTREAM.overlay.rglob("*.py"):
        found = re.findall(r"^\s*(?:from|import) (\w+)", file.read_text(), re.MULTILINE)
        assert set(found) <= allowed, file.relative_to(paths.ROOT)


@pytest.mark.slow
def test_benchmark_says_what_it_lacks(checkout: Path) -> None:
    """Nothing more can be run of it without a GPU: it is imported, reads its arguments, and asks
    for the op."""
    with tempfile.TemporaryDirectory() as home:
        file = UPSTREAM.overlay / "benchmarks/kernels/benchmark_rdna35_rope_cache.py"
        done = subprocess.run(
            [sys.executable, str(file), "--norm", "--num-tokens", "1"],
            env=environment(Machine("gfx942"), tree(checkout), Path(home)),
            cwd=home, capture_output=True, text=True,
        )  # fmt: skip
    assert done.returncode == 1
    assert "rdna35_rope_cache is not available: " in done.stderr
