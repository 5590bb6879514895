"""Gives `.venv` what a target needs, at the versions of pin.toml; what is there is left alone.

    python -m scripts.venv checkout|op|wheel|test|gpu|lint

Run by any Python that vLLM supports. With PYTHON=<interpreter> nothing is installed: what that
interpreter lacks is named instead, of any version, since it is the user's own.

The linters have an environment of their own, build/lint/venv, as vLLM's pre-commit gives them:
with torch's types there, mypy would find faults in vLLM that vLLM's own check does not.
"""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from scripts import errors, fetch, lock, paths
from scripts.errors import Fault
from scripts.pin import Pin, load_pin

# Groups of pin.toml that each step stands on.
STEPS = {
    "checkout": ("op", "wheel"),
    "op": ("op",),
    "wheel": ("op", "wheel"),
    "gpu": ("op", "test"),
    "test": ("op", "wheel", "test"),
    "lint": ("op", "wheel", "test"),
}
# Needed for a download alone, which names what it lacks.
NOT_ASKED_FOR = ("checkout",)
# Steps that import vLLM (or read its requirements' types), and so need its requirements.
WITH_VLLM = ("wheel", "test", "lint")
REQUIREMENTS = "requirements/common.txt"
# What an interpreter of the user's may do without: programs on the path, and the clang whose
# absence scripts.op reports where it finds no ROCm either.
PROGRAMS = ("cmake", "ninja")
OPTIONAL = ("ziglang", "numpy", "pip", "triton", "clang-tidy")
# Of the tests' packages, what takes a GPU's place.
WITHOUT_GPU = ("tinygrad",)


def versions(site_packages: str | None) -> dict[str, str]:
    """Package -> version installed in a folder, or in this interpreter."""
    found = importlib.metadata.distributions(path=[site_packages] if site_packages else sys.path)
    return {normal(d.metadata["Name"]): d.version for d in found if d.metadata["Name"]}


def normal(name: str) -> str:
    """A package's name as the index spells it."""
    return name.lower().replace("_", "-").replace(".", "-")


def lacking(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """`name==version` of what is not there; a local version (+cpu) counts as the same."""
    return [
        f"{name}=={version}"
        for name, version in wanted.items()
        if found.get(normal(name), "").split("+")[0] != version
    ]


def check_given(pin: Pin, step: str) -> None:
    """Fault naming what this interpreter lacks for the step."""
    if step == "lint":
        raise Fault("`make lint` installs the linters that vLLM uses; leave PYTHON= out")
    if step in NOT_ASKED_FOR:
        return
    found = versions(None)
    left_out = OPTIONAL + (WITHOUT_GPU if step == "gpu" else ())
    wanted = [name for group in STEPS[step] for name in pin.groups[group] if name not in left_out]
    missing = [
        name
        for name in wanted
        if normal(name) not in found and not (name in PROGRAMS and shutil.which(name))
    ]
    if missing:
        raise Fault(
            f"{sys.executable} lacks {', '.join(missing)}; install them there, or leave PYTHON= "
            "out to have a .venv made"
        )
    if step not in WITH_VLLM:
        return
    if unmet := unsatisfied(sys.executable, _requirements(pin, sys.executable)):
        raise Fault(f"{sys.executable} lacks {', '.join(unmet)} of vLLM's {REQUIREMENTS}")


def prepare(pin: Pin, step: str) -> None:
    """Makes `.venv` and installs what the step lacks."""
    with lock.held("venv"):
        wanted = {n: v for group in STEPS[step] for n, v in pin.groups[group].items()}
        _bring(pin, paths.VENV, wanted)
        if step == "lint":
            _bring(pin, paths.LINT_VENV, pin.groups["lint"])
        if step in WITH_VLLM:
            python = str(paths.VENV_PYTHON)
            requirements = _requirements(pin, python)
            if unmet := unsatisfied(python, requirements):
                lines = [line for line in requirements.splitlines() if line.strip()]
                _install(pin, python, unmet, lines)


def _bring(pin: Pin, folder: Path, wanted: Mapping[str, str]) -> None:
    """Makes the environment where it is not there, and installs what it lacks of `wanted`."""
    python = folder / "bin" / "python"
    _make(folder, python)
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    asked = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    if missing := lacking(wanted, versions(asked.stdout.strip())):
        _install(pin, str(python), missing, missing)


def _make(folder: Path, python: Path) -> None:
    """Makes an environment, anew where it does not run (interrupted, moved, its Python gone)."""
    probe = [str(python), "-c", "import pip"]
    if python.exists() and subprocess.run(probe, capture_output=True).returncode == 0:
        return
    shown = folder.relative_to(paths.ROOT)
    print(f"venv: making {shown} with Python {sys.version.split()[0]}", flush=True)
    command = [sys.executable, "-m", "venv", "--clear", str(folder)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        raise Fault(
            f"{sys.executable} cannot make a virtual environment; install python3-venv (Debian, "
            "Ubuntu), or name an interpreter that has torch with PYTHON="
        )


def _requirements(pin: Pin, python: str) -> str:
    """Text of vLLM's requirements file, as pinned."""
    tree = paths.CHECKOUT / REQUIREMENTS
    if tree.exists():
        return tree.read_text(encoding="utf-8")
    return fetch.read_member(fetch.find_source(pin, python=python).archive, REQUIREMENTS)


def unsatisfied(python: str, requirements: str) -> list[str]:
    """The requirements that an interpreter does not meet."""
    command = [python, "-m", "scripts.requirements"]
    done = subprocess.run(
        command, cwd=paths.ROOT, input=requirements, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise Fault(f"cannot read vLLM's {REQUIREMENTS}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.splitlines()


def _install(pin: Pin, python: str, shown: list[str], requirements: list[str]) -> None:
    names = ", ".join(shown[:6]) + (f" and {len(shown) - 6} more" if len(shown) > 6 else "")
    print(f"venv: installing {names}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        wanted, constraints = Path(folder) / "wanted.txt", Path(folder) / "constraints.txt"
        wanted.write_text("\n".join(requirements) + "\n", encoding="utf-8")
        lines = [f"{name}=={version}" for name, version in pin.tools.items()]
        constraints.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [python, "-m", "pip", "install", "--disable-pip-version-check"]
        command += ["--progress-bar=off", "-r", str(wanted), "-c", str(constraints)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as pip:
            assert pip.stdout is not None
            tail = ""
            for line in pip.stdout:
                # One line for each download of some size says that it goes on.
                if line.lstrip().startswith("Downloading ") and ("MB" in line or "GB" in line):
                    print(f"venv: {line.strip()}", flush=True)
                if line.startswith("ERROR"):
                    tail = line.strip()
    if pip.returncode != 0:
        raise Fault(f"pip ended with status {pip.returncode}: {tail or 'no reason given'}")


def main() -> None:
    """Prepares the step named on the command line."""
    if len(sys.argv) != 2 or sys.argv[1] not in STEPS:
        raise Fault(f"give one of {', '.join(STEPS)}")
    pin = load_pin()
    if os.environ.get("PYTHON"):
        check_given(pin, sys.argv[1])
    else:
        prepare(pin, sys.argv[1])


if __name__ == "__main__":
    errors.run("venv", main)
