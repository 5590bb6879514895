"""Builds the op library and its code objects: `make op`.

    python -m scripts.op [--architectures gfx1151,sm_90] [--sanitize]

Leaves build/op/librdna35.so, build/op/manifest.json and, for each architecture of the pin,
build/op/<architecture>/rdna35_rope_cache.hsaco. With other architectures or with sanitizers the
same things go to a folder of their own beside it. Only what changed is built again.
"""

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts import paths
from scripts.errors import Fault, run
from scripts.lock import held
from scripts.pin import load_pin


def output_folder(architectures: Sequence[str], *, sanitize: bool = False) -> Path:
    """Where a build goes: build/op for the pin's own, else a name that says what differs."""
    name = paths.OP.name
    if tuple(architectures) != load_pin().architectures:
        name += "-" + "-".join(architectures)
    if sanitize:
        name += "-sanitize"
    return paths.OP.with_name(name)


def build(architectures: Sequence[str] | None = None, *, sanitize: bool = False) -> Path:
    """Builds the library for the architectures (the pin's by default); returns its path.

    Raises Fault with the failing tool's last words.
    """
    architectures = tuple(architectures or load_pin().architectures)
    folder = output_folder(architectures, sanitize=sanitize)
    folder.mkdir(parents=True, exist_ok=True)
    configure = [
        tool("cmake"),
        *_fresh(folder),
        *("-S", str(paths.ROOT), "-B", str(folder), "-G", "Ninja"),
        f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}",
        f"-DRDNA35_ARCHITECTURES={';'.join(architectures)}",
        f"-DRDNA35_TORCH_LIB={_torch_lib()}",
        f"-DRDNA35_ZIG={_zig() or ''}",
        f"-DRDNA35_SANITIZE={'ON' if sanitize else 'OFF'}",
    ]
    with held("op") as lock:
        _run("configure", configure, lock)
        _run("build", [tool("cmake"), "--build", str(folder)], lock)
    return folder / paths.OP_LIBRARY.name


def _fresh(folder: Path) -> list[str]:
    """CMake refuses a cache of a tree that has been moved; it is made anew then."""
    cache = folder / "CMakeCache.txt"
    if not cache.is_file() or f"CMAKE_HOME_DIRECTORY:INTERNAL={paths.ROOT}\n" in cache.read_text():
        return []
    return ["--fresh"]


def tool(name: str) -> str:
    """The tool beside this Python, else the one on the path."""
    beside = Path(sys.executable).parent
    found = shutil.which(name, path=f"{beside}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if found is None:
        raise Fault(f"no {name} beside {sys.executable} or on PATH; `pip install {name}` there")
    return found


def _torch_lib() -> Path:
    """The folder of libtorch_cpu.so."""
    torch = _package("torch")
    if torch is None:
        raise Fault(f"{sys.executable} has no torch; install it there, or use make's own .venv")
    return torch / "lib"


def _zig() -> Path | None:
    """zig of the package ziglang, which carries clang; None where there is none."""
    ziglang = _package("ziglang")
    return ziglang / "zig" if ziglang else None


def _package(name: str) -> Path | None:
    """The folder of an installed package, which is not imported."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def _run(step: str, command: list[str], lock: int) -> None:
    """Runs a step; shows the device code that it compiles, its warnings, and all if it fails."""
    # Where this process is killed, what it started goes on: two ninjas must not meet.
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, pass_fds=(lock,)
    )
    assert started.stdout is not None
    lines = []
    with started:
        for line in started.stdout:
            lines.append(line)
            if match := re.match(r"\[\d+/\d+\] (device code for .*)", line):
                print(f"op: {match[1]}", flush=True)
            elif "warning:" in line.lower():
                print(line, end="", flush=True)
    if started.returncode:
        print("".join(lines), end="")
        raise Fault(f"the {step} step failed, see above: {command[0]} {' '.join(command[1:3])} ...")


def main() -> None:
    """Reads the arguments, builds, and says what there is."""
    parser = argparse.ArgumentParser(prog="op", description="Builds the op library.")
    parser.add_argument(
        "--architectures",
        type=lambda text: tuple(text.split(",")),
        help="comma-separated, in place of the pin's: gfx1151, sm_90, ...",
    )
    parser.add_argument("--sanitize", action="store_true", help="ASan and UBSan in the host code")
    arguments = parser.parse_args()
    library = build(arguments.architectures, sanitize=arguments.sanitize)
    manifest = json.loads((library.parent / "manifest.json").read_text())
    for architecture, item in manifest["code_objects"].items():
        print(f"op: {architecture}: {item['size']} bytes, sha256 {item['sha256']}")
    print(f"op: {library.relative_to(paths.ROOT)}: {library.stat().st_size} bytes")


if __name__ == "__main__":
    run("op", main)
