"""`make op`: which compiler it takes for device code, and what it says where there is none."""

import os
import subprocess
from pathlib import Path

import pytest

from scripts import op, paths
from scripts.op import tool
from tests.kernel.op import device

pytestmark = pytest.mark.skipif(device().type != "cpu", reason="builds for AMD GPUs")

OBJECT = "gfx1151/rdna35_rope_cache.hsaco"


def _configure(build: Path, rocm: Path, zig: Path | None) -> subprocess.CompletedProcess[str]:
    command = [
        *(tool("cmake"), "-S", str(paths.ROOT), "-B", str(build), "-G", "Ninja"),
        *(f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", "-DRDNA35_ARCHITECTURES=gfx1151"),
        f"-DRDNA35_ZIG={zig or ''}",
    ]
    env = {**os.environ, "ROCM_PATH": str(rocm)}
    return subprocess.run(command, env=env, capture_output=True, text=True)


def _configured_with_rocm(rocm: Path, place: str, trace: Path, build: Path) -> None:
    """Configures with a ROCm whose clang is the pinned one under another name, leaving a trace."""
    (rocm / place).mkdir(parents=True)
    for name in ("clang", "ld.lld"):
        program = rocm / place / name
        program.write_text(f'#!/bin/sh\necho {name} >> {trace}\nexec {op._zig()} {name} "$@"\n')
        program.chmod(0o755)
    configured = _configure(build, rocm, None)
    assert configured.returncode == 0, configured.stderr


@pytest.mark.slow
def test_rocms_clang_is_taken_where_there_is_one(tmp_path: Path, op_library: Path) -> None:
    build, trace = tmp_path / "build", tmp_path / "trace"
    _configured_with_rocm(tmp_path / "rocm", "llvm/bin", trace, build)
    subprocess.run([tool("ninja"), "-C", str(build), OBJECT], check=True, capture_output=True)
    assert trace.read_text().split() == ["clang", "clang", "ld.lld"]
    assert (build / OBJECT).read_bytes() == (op_library.parent / OBJECT).read_bytes()


def test_rocms_clang_is_found_where_newer_releases_have_it(tmp_path: Path) -> None:
    build, clang = tmp_path / "build", tmp_path / "rocm/lib/llvm/bin/clang"
    _configured_with_rocm(tmp_path / "rocm", "lib/llvm/bin", tmp_path / "trace", build)
    command = [tool("ninja"), "-C", str(build), "-t", "commands", OBJECT]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said.count(f"{clang} ") == 2, said


def test_without_a_clang_the_error_says_where_one_was_looked_for(tmp_path: Path) -> None:
    configured = _configure(tmp_path / "build", tmp_path / "none", None)
    assert configured.returncode != 0
    said = " ".join(configured.stderr.split())
    assert f"no clang for gfx1151: {tmp_path / 'none'} has none" in said
    assert "set ROCM_PATH, or `pip install ziglang`" in said


def test_other_architectures_and_sanitizers_have_folders_of_their_own() -> None:
    pinned = op.load_pin().architectures
    assert op.output_folder(pinned) == paths.OP
    assert op.output_folder(["gfx1151", "sm_90"]).name == "op-gfx1151-sm_90"
    assert op.output_folder(pinned, sanitize=True).name == "op-sanitize"


def test_an_architecture_that_nothing_compiles_is_refused(tmp_path: Path) -> None:
    command = [
        *(tool("cmake"), "-S", str(paths.ROOT), "-B", str(tmp_path), "-G", "Ninja"),
        *(f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", "-DRDNA35_ARCHITECTURES=rv770"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "architecture rv770 is neither gfx* nor sm_*" in " ".join(done.stderr.split())
