"""Does the wheel install, and do vLLM, the overlay and the op run from where it was installed?"""

import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterable
from pathlib import Path

from packaging.tags import parse_tag, sys_tags

from scripts import wheel_op
from scripts.wheel_archive import open_wheel
from scripts.wheel_base import rocm_extension
from scripts.wheel_rocm import torch_hip_version
from scripts.wheel_version import parse_wheel_name

PROBE = Path(__file__).with_name("wheel_probe.py")


def install_obstacle(wheel: Path) -> str | None:
    """Why this Python cannot run the wheel (another Python's, or another torch's), or None."""
    name = parse_wheel_name(wheel)
    here = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    if parse_tag(name.tags).isdisjoint(sys_tags()):
        return f"it is for {name.tags}, this is {here}"
    with open_wheel(wheel) as archive:
        if rocm_extension(archive):
            return None if torch_hip_version() else "it is for a ROCm torch, this Python's is none"
        native = [n for n in archive.namelist() if n.endswith(".so") and n != wheel_op.MEMBER]
    return f"{native[0]} is for a torch that this Python may not have" if native else None


def install_problems(wheel: Path, added: Iterable[str]) -> list[str]:
    """Installs the wheel into a new environment and runs it there; one line for each failure.

    The environment has this Python's packages too, behind its own: vLLM's requirements are there,
    and vLLM is the wheel's. `added` are the files whose modules must import.
    """
    with tempfile.TemporaryDirectory(prefix="rdna35-wheel-") as folder:
        home = Path(folder) / "venv"
        venv.create(home, symlinks=True)
        python = home / "bin" / "python"
        site_packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(home)}))
        pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python]
        options = ["--quiet", "--no-deps", "--no-index", "--no-compile"]
        installed = _run([*pip, "install", *options, wheel.resolve()], folder)
        if installed.returncode:
            return [f"pip cannot install it: {_last_line(installed.stderr)}"]
        # Only now: pip must not take this Python's packages for the environment's.
        own = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        (site_packages / "requirements.pth").write_text("\n".join(sorted(own)) + "\n")
        probed = _run([python, "-I", PROBE, site_packages, *_modules(added)], folder)
        problems = [
            line.removeprefix("problem: ")
            for line in probed.stdout.splitlines()
            if line.startswith("problem: ")
        ]
        if probed.returncode and not problems:
            problems = [
                f"running it ends with status {probed.returncode}: {_last_line(probed.stderr)}"
            ]
        return [f"installed: {problem}" for problem in problems]


def _modules(added: Iterable[str]) -> list[str]:
    paths = (Path(name) for name in added if name.endswith(".py"))
    return [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]


def _run(command: list[str | Path], folder: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]
