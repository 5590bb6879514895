"""The full build on a ROCm host: vLLM's own CMake, through its setup.py, over the patched tree."""

import importlib.util
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from scripts.errors import Fault
from scripts.git import Git, GitError
from scripts.pin import Pin
from scripts.wheel_changes import Changes
from scripts.wheel_python import clone, run_setup
from scripts.wheel_version import is_rocm, series_version


@dataclass(frozen=True)
class Rocm:
    """What this host has of ROCm: an installation, and a torch for it in this Python."""

    root: Path | None
    torch_hip: str | None  # its HIP version

    @property
    def lacks(self) -> str | None:
        """What is missing for a full build, and what to do, or None."""
        if self.root is None:
            return "there is no ROCm to build with; install it, or say where it is with ROCM_PATH"
        if self.torch_hip is None:
            return (
                f"there is a ROCm in {self.root}, but the torch of {sys.executable} is not for it;"
                " name a Python whose torch is with PYTHON="
            )
        for choices in (("bin/hipcc",), ("llvm/bin/clang++", "lib/llvm/bin/clang++")):
            if not any((self.root / tool).exists() for tool in choices):
                return (
                    f"the ROCm in {self.root} has no {choices[0]};"
                    " install its development packages, or name another with ROCM_PATH"
                )
        return None


def find_rocm(environ: Mapping[str, str] = os.environ, usual: Path = Path("/opt/rocm")) -> Rocm:
    """Looks for ROCm where ROCM_PATH or ROCM_HOME say, beside hipcc, and where it usually is."""
    return Rocm(_root(environ, usual), torch_hip_version())


def torch_hip_version() -> str | None:
    """The HIP version that this Python's torch is built for, or None."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    # torch/version.py alone: importing torch takes seconds.
    hip = runpy.run_path(str(Path(spec.origin).with_name("version.py"))).get("hip")
    return str(hip) if hip else None


def build(pin: Pin, changes: Changes, rocm: Rocm, work: Path) -> Path:
    """Builds the wheel in the folder `work`, which is its own, and returns its path.

    The sources and CMake's files stay in `work`, so that the next build compiles what changed.
    """
    if rocm.lacks:
        raise Fault(f"no full build: {rocm.lacks}")
    source, out = work / "source", work / "out"
    _update_clone(changes.git, source)
    shutil.rmtree(out, ignore_errors=True)
    version = _version(pin, rocm, source)
    env = environment(pin, rocm, version)
    command = [sys.executable, "setup.py", "bdist_wheel", "--dist-dir", str(out)]
    # Not captured: it takes an hour, and says what it does.
    if subprocess.run(command, cwd=source, env=env).returncode:
        raise Fault("vLLM's build failed; its own message is above")
    wheels = list(out.glob("*.whl"))
    if len(wheels) != 1:
        raise Fault(
            f"vLLM's build left {len(wheels)} wheels in {out}, not one; see its output above"
        )
    return wheels[0]


def environment(pin: Pin, rocm: Rocm, version: Version | None) -> dict[str, str]:
    """The environment of the build: the caller's, and what makes it this build.

    Without a version, setup.py finds the one that it would give a ROCm build of the pin.
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SETUPTOOLS_SCM_", "GIT_"))}
    env.pop("VLLM_VERSION_OVERRIDE", None)
    env |= {
        "ROCM_PATH": str(rocm.root),
        "ROCM_HOME": str(rocm.root),
        "SOURCE_DATE_EPOCH": str(pin.source_date_epoch),
        "VLLM_TARGET_DEVICE": "rocm",
    }
    env.setdefault("PYTORCH_ROCM_ARCH", ";".join(pin.architectures))
    if version is None:
        return env | {"SETUPTOOLS_SCM_PRETEND_VERSION": pin.version}
    return env | {"VLLM_VERSION_OVERRIDE": str(version)}


def _version(pin: Pin, rocm: Rocm, source: Path) -> Version:
    """vLLM's own version of this build (0.33.0+rocm72), with the series' part."""
    said = run_setup(source, ["--version"], environment(pin, rocm, None)).strip()
    try:
        version = Version(said.splitlines()[-1])
    except (IndexError, InvalidVersion):
        raise Fault(
            f"vLLM's setup.py gives no version ({said[-80:]!r}); see its get_vllm_version()"
        ) from None
    if not is_rocm(version):
        raise Fault(
            f"vLLM's setup.py would build {version}, not a ROCm version; see its get_rocm_version()"
        )
    return series_version(version, pin.number)


def _update_clone(checkout: Git, folder: Path) -> None:
    """Brings the clone to the checkout's HEAD and leaves alone what a build wrote into it."""
    if not (folder / ".git").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        clone(checkout, folder)
        return
    git = Git(folder, checkout.epoch)
    try:
        git.bytes("fetch", "--quiet", "--no-tags", "origin", "HEAD")
        git.bytes("reset", "--quiet", "--hard", "FETCH_HEAD")
        # vLLM's .gitignore names what a build writes: that stays, what the series dropped goes.
        git.bytes("clean", "--quiet", "-d", "--force")
    except GitError as error:
        raise Fault(f"{folder}: {error}; delete the folder") from None


def _root(environ: Mapping[str, str], usual: Path) -> Path | None:
    for variable in "ROCM_PATH", "ROCM_HOME":
        if environ.get(variable):
            return Path(environ[variable])
    if hipcc := shutil.which("hipcc", path=environ.get("PATH", os.defpath)):
        return Path(hipcc).resolve().parent.parent
    return usual if (usual / "bin/hipcc").exists() else None
