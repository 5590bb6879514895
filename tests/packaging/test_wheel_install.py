"""The installation check: what installs and runs passes, and what does not is named."""

from pathlib import Path

import pytest
from packaging.tags import parse_tag

from scripts import paths, wheel_install
from scripts.wheel_changes import Changes
from scripts.wheel_install import install_obstacle, install_problems
from tests.packaging import small_wheels
from tests.packaging.small_wheels import OVERLAY, Members

WRAPPER = "vllm/v1/attention/ops/rdna35_rope_cache.py"
LIBRARY = "vllm/librdna35.so"

# An op of the right name, in Python, that leaves every tensor as it was.
IDLE_WRAPPER = b"""
import torch

library = torch.library.Library("_rocm_C", "FRAGMENT")
library.define(
    "rdna35_rope_cache(Tensor positions, Tensor(a!) q, Tensor(b!)? k, Tensor? v, "
    "Tensor? cos_sin_cache, Tensor? q_weight, Tensor? k_weight, bool v_norm, float eps, "
    "int pos_offset, float q_scale_beta, int q_scale_orig_max, Tensor(c!)? kv_cache, "
    "Tensor? slot_mapping, Tensor(d!)? q_out, Tensor(e!)? k_out, Tensor(f!)? v_out) -> ()"
)
library.impl("rdna35_rope_cache", lambda *arguments: None, "CPU")


def unavailable_reason():
    return None
"""


@pytest.fixture
def members(tmp_path: Path, op_library: Path) -> Members:
    """Of a wheel that installs and runs: the made package with the series' real wrapper."""
    changes: Changes = small_wheels.checkout(tmp_path / "vllm")
    return {
        **small_wheels.series_members(changes, op_library.read_bytes()),
        WRAPPER: (paths.OVERLAY / WRAPPER).read_bytes(),
    }


def problems(folder: Path, members: Members) -> list[str]:
    wheel = small_wheels.wheel(folder / "wheel", members)
    assert install_obstacle(wheel) is None
    return install_problems(wheel, [*OVERLAY, WRAPPER])


def test_a_whole_wheel_installs_and_runs(members: Members, tmp_path: Path) -> None:
    assert problems(tmp_path, members) == []


def test_an_overlay_module_that_does_not_import_is_named(members: Members, tmp_path: Path) -> None:
    members["vllm/new/__init__.py"] = b"from vllm.config import no_such_name\n"
    (found,) = problems(tmp_path, members)
    assert found.startswith("installed: import vllm.new: ImportError: cannot import name 'no_such")


def test_a_library_that_does_not_load_is_named(members: Members, tmp_path: Path) -> None:
    members[LIBRARY] = b"no library"
    (found,) = problems(tmp_path, members)
    assert found.startswith("installed: the op is not available: ") and "does not load" in found


def test_an_op_with_wrong_results_is_named(members: Members, tmp_path: Path) -> None:
    members[WRAPPER] = IDLE_WRAPPER
    assert problems(tmp_path, members) == [
        f"installed: the op: {name} is not what it must be" for name in ("q", "k", "kv_cache")
    ]


def test_a_module_that_ends_the_process_is_told(members: Members, tmp_path: Path) -> None:
    members["vllm/new/__init__.py"] = b"import os\nos._exit(3)\n"
    assert problems(tmp_path, members) == ["installed: running it ends with status 3: no message"]


def test_what_pip_refuses_is_told(members: Members, tmp_path: Path) -> None:
    name = next(name for name in members if name.endswith("/WHEEL"))
    members[name] = b"Wheel-Version: 9.0\nRoot-Is-Purelib: false\nTag: py3-none-linux_x86_64\n"
    (found,) = problems(tmp_path, members)
    assert found.startswith("pip cannot install it: ") and "Wheel-Version" in found


def test_a_module_from_elsewhere_does_not_pass_for_the_wheels(
    members: Members, tmp_path: Path
) -> None:
    members["vllm/new/__init__.py"] = b"import json, sys\nsys.modules[__name__] = json\n"
    (found,) = problems(tmp_path, members)
    assert found.startswith("installed: import vllm.new: comes from ")
    assert found.endswith("json/__init__.py")


@pytest.mark.parametrize(
    ("version", "tags", "extension", "hip", "expected"),
    [
        ("0.33.0", "cp312-cp312-linux_x86_64", None, None, "it is for cp312-cp312-linux_x86_64"),
        ("0.33.0", "py3-none-win_amd64", None, None, "it is for py3-none-win_amd64"),
        ("0.33.0+rocm722", "py3-none-any", "vllm/_rocm_C.abi3.so", None, "it is for a ROCm torch"),
        ("0.33.0+rocm722", "py3-none-any", "vllm/_rocm_C.abi3.so", "7.2", None),
        ("0.33.0", "py3-none-any", "vllm/_C.abi3.so", None, "vllm/_C.abi3.so is for a torch"),
        ("0.33.0", "py3-none-any", None, None, None),
    ],
)
def test_a_wheel_for_another_python_or_torch_is_not_installed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    tags: str,
    extension: str | None,
    hip: str | None,
    expected: str | None,
) -> None:
    monkeypatch.setattr(wheel_install, "torch_hip_version", lambda: hip)
    monkeypatch.setattr(wheel_install, "sys_tags", lambda: parse_tag("py3-none-any"))
    members = small_wheels.base_members(version, tags, extension)
    wheel = small_wheels.base_wheel(tmp_path, members, version, tags)
    obstacle = install_obstacle(wheel)
    if expected is None:
        assert obstacle is None
    else:
        assert obstacle is not None and obstacle.startswith(expected)
