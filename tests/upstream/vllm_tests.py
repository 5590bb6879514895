"""Runs vLLM's own tests on both trees, each on the same simulated machine, and compares.

The lists are in vllm_tests.toml: what runs on which machine, and what does not run and why.
"""

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulation.host import Machine, environment
from simulation.trees import tree_path

HERE = Path(__file__).parent
LISTS: dict[str, Any] = tomllib.loads((HERE / "vllm_tests.toml").read_text(encoding="utf-8"))
TREES = ("pristine", "patched")
# One test may take this long on a busy machine; most take a second.
_SECONDS = 300
# vLLM names some tests by the class behind ROCM_ATTN, which is another one on gfx1151.
_RENAMED = {
    "vllm.v1.attention.backends.rocm_gfx1151_attn.RocmGfx1151AttentionBackend": (
        "vllm.v1.attention.backends.rocm_attn.RocmAttentionBackend"
    ),
}


@dataclass(frozen=True)
class Outcome:
    """passed, failed, skipped, xfailed or xpassed; why, where it did not pass; how long it took."""

    outcome: str
    reason: str
    seconds: float


Outcomes = Mapping[str, Outcome]


def on_both_trees(arch: str, op_library: Path) -> tuple[Outcomes, Outcomes]:
    """The outcome of every test of a machine's list, by name: pristine's, and patched's."""
    chosen, left_out = LISTS["run"][arch], list(LISTS["deselected"])
    with ThreadPoolExecutor(len(TREES)) as pool:
        pristine, patched = pool.map(
            lambda tree: run(chosen, left_out, tree_path(tree), op_library, arch), TREES
        )
    return pristine, patched


def run(
    chosen: Sequence[str], deselected: Sequence[str], tree: Path, op_library: Path, arch: str
) -> Outcomes:
    """The outcome of each chosen file's or test's tests, in a tree.

    Raises:
        RuntimeError: pytest did not come to its end; with the end of what it printed.
    """
    with tempfile.TemporaryDirectory(prefix="vllm-tests-") as name:
        home = Path(name)
        env = environment(Machine(arch), tree, home)
        env["PYTHONPATH"] += f"{os.pathsep}{HERE}"
        env |= {"STAGED_TREE": str(tree), "STAGED_OP": str(op_library)}
        env |= {"OUTCOMES": str(home / "outcomes"), "HF_HOME": str(home / "hf")}
        command = [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib"]
        command += ["-c", str(tree / "pyproject.toml"), f"--rootdir={tree}"]
        for plugin in ("vllm_machine", "outcomes", "no:cacheprovider"):
            command += ["-p", plugin]
        command += [f"--timeout={_SECONDS}", *(f"--deselect={each}" for each in deselected)]
        command += [f"{tree}/{each}" for each in chosen]
        done = subprocess.run(
            command, cwd=home, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        # 0 and 1: all that was collected has run.
        if done.returncode not in (0, 1):
            raise RuntimeError(
                f"{arch}: pytest in {tree} ended with {done.returncode}\n{done.stdout[-4000:]}"
            )
        return _read(home / "outcomes")


def _read(file: Path) -> Outcomes:
    found = {}
    for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
        name = line.pop("test")
        for ours, upstreams in _RENAMED.items():
            name = name.replace(ours, upstreams)
        found[name] = Outcome(**line)
    return found


def differences(pristine: Outcomes, patched: Outcomes) -> dict[str, str]:
    """Test -> what it came to on either tree, for every test that came to something else."""
    none = Outcome("not run", "", 0.0)
    found = {}
    for test in sorted(pristine.keys() | patched.keys()):
        before, after = pristine.get(test, none), patched.get(test, none)
        if before.outcome != after.outcome:
            found[test] = f"pristine {_said(before)}; patched {_said(after)}"
    return found


def _said(outcome: Outcome) -> str:
    return f"{outcome.outcome} ({outcome.reason})" if outcome.reason else outcome.outcome


def count(outcomes: Outcomes, wanted: str) -> int:
    """How many tests came to this."""
    return sum(each.outcome == wanted for each in outcomes.values())
