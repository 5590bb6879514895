"""The Python-only wheel: vLLM's package as its own build lays it out, and the op library."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.version import Version

from scripts.errors import Fault
from scripts.git import Git, GitError
from scripts.pin import Pin
from scripts.wheel_archive import FILE_MODE, PROGRAM_MODE
from scripts.wheel_changes import Changes
from scripts.wheel_pack import New, pack
from scripts.wheel_version import WheelName, series_version

# The library is machine code for this platform; everything else is Python for any.
TAGS = "py3-none-linux_x86_64"

# What vLLM's setup.py reads of its tree for this.
_FOLDERS = ("requirements", "tools", "vllm")

_PASSED_ON = ("HOME", "LD_LIBRARY_PATH", "PATH", "TMPDIR")


def build(pin: Pin, changes: Changes, op: Mapping[str, New], work: Path) -> Path:
    """Builds the wheel in the folder `work`, which is its own, and returns its path."""
    name = WheelName(series_version(Version(pin.version), pin.number), TAGS)
    shutil.rmtree(work, ignore_errors=True)
    source, library, metadata = work / "source", work / "library", work / "metadata"
    metadata.mkdir(parents=True)
    clone(changes.git, source, _FOLDERS)
    run_setup(
        source,
        # Only the package and its metadata: `bdist_wheel` would also build the Rust front end
        # wherever there is a cargo, and the wheel would depend on the machine.
        ["-q", "build_py", "--build-lib", str(library), "dist_info", "--output-dir", str(metadata)],
        environment(pin, name.version),
    )
    members = {**_package(library, changes), **_metadata(metadata, name), **op}
    wheel = work / name.file_name
    pack(wheel, name.dist_info, members, pin.source_date_epoch)
    return wheel


def clone(checkout: Git, folder: Path, folders: Sequence[str] = ()) -> None:
    """Clones the checkout's HEAD, so that a build can write beside its sources.

    With `folders`, only these are written out, and the files of the top level.
    """
    try:
        checkout.bytes("clone", "--quiet", "--shared", "--no-tags", "-n", ".", str(folder))
        git = Git(folder, checkout.epoch)
        if folders:
            git.bytes("sparse-checkout", "set", *folders)
        git.bytes("checkout", "--quiet")
    except GitError as error:
        raise Fault(f"{checkout.folder}: {error}; run `make checkout` again") from None


def environment(pin: Pin, version: Version) -> dict[str, str]:
    """The environment of the build: nothing from the caller's that could change its result."""
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {
        **passed_on,
        # setuptools-scm asks git which files belong to the package.
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "LC_ALL": "C.UTF-8",
        "SOURCE_DATE_EPOCH": str(pin.source_date_epoch),
        "VLLM_TARGET_DEVICE": "empty",
        "VLLM_VERSION_OVERRIDE": str(version),
    }


def run_setup(source: Path, arguments: list[str], env: Mapping[str, str]) -> str:
    """Runs vLLM's setup.py and returns what it printed; Fault with its last line if it fails."""
    done = subprocess.run(
        [sys.executable, "setup.py", *arguments],
        cwd=source,
        env=env,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        log = source.parent / "setup.log"
        log.write_text(done.stdout + done.stderr, encoding="utf-8")
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise Fault(f"vLLM's setup.py failed: {lines[-1]} (all of it: {log})")
    return done.stdout


def _package(library: Path, changes: Changes) -> dict[str, New]:
    members = {}
    for path in library.rglob("*"):
        if path.is_file():
            name = path.relative_to(library).as_posix()
            # The mode is git's: that of the file depends on the umask.
            is_program = name in changes.head and changes.head[name].is_program
            members[name] = New(path.read_bytes(), PROGRAM_MODE if is_program else FILE_MODE)
    return members


def _metadata(folder: Path, name: WheelName) -> dict[str, New]:
    made = [path.name for path in folder.iterdir()]
    if made != [name.dist_info]:
        raise Fault(
            f"vLLM's setup.py made {made} and not [{name.dist_info!r}]; see its get_vllm_version()"
        )
    wheel_file = (
        f"Wheel-Version: 1.0\nGenerator: scripts.wheel\nRoot-Is-Purelib: false\nTag: {name.tags}\n"
    )
    members = {f"{name.dist_info}/WHEEL": New(wheel_file.encode())}
    for path in (folder / name.dist_info).rglob("*"):
        if path.is_file():
            members[path.relative_to(folder).as_posix()] = New(path.read_bytes())
    return members
