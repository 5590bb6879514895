"""ROCm's torch as the launcher sees it, without ROCm: a stand-in HIP runtime, the two torch
libraries that lead to it, and processes that run the op library against them."""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from scripts import paths
from scripts.in_tree import hip_headers
from scripts.lock import held

SOURCES = Path(__file__).parent / "standin_hip"
_OP = paths.CSRC / "rdna35_rope_cache"

# What every process starts with: the libraries named in LOAD, in order, as a program that links
# them would; then the op library; and what the tests' code uses.
_PREAMBLE = """
import ctypes, dataclasses, os, threading, torch
for path in os.environ["STANDIN_LOAD"].split():
    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
from tests.kernel import cases, op
from tests.kernel.families import FAMILIES
from tests.kernel.gpu_tensor import on_gpu
rope_cache = op.load()
load = torch.ops._rocm_C.rdna35_rope_cache_load
family = {family.name: family for family in FAMILIES}

def case(name, tokens=3, dtype=torch.bfloat16, **options):
    return cases.build(family[name], tokens, dtype, cases.Options(**options)).arguments

def gpu(arguments, device):
    return dataclasses.replace(arguments, **{
        field.name: on_gpu(value, device)
        for field in dataclasses.fields(arguments)
        if isinstance(value := getattr(arguments, field.name), torch.Tensor)
    })

def error_of(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
    else:
        print("no error")
"""


@dataclasses.dataclass(frozen=True)
class Result:
    """What a process printed, and the calls that it made to HIP runtimes, in order."""

    output: str
    calls: list[dict[str, Any]]

    def named(self, call: str) -> list[dict[str, Any]]:
        """The calls of one function."""
        return [each for each in self.calls if each["call"] == call]


class Standin:
    """The built stand-ins; `folder` has one sub-folder for each HIP runtime made."""

    def __init__(self, folder: Path, library: Path, scratch: Path) -> None:
        self._folder = folder
        self._library = library
        self._scratch = scratch

    def runtime(self, name: str, version: str = "") -> list[Path]:
        """libamdhip64, libc10_hip and libtorch_hip of a HIP runtime that the log calls `name`.

        As in ROCm's wheels of torch, each finds the next in its own folder. `version` ends the
        first one's file name and soname.
        """
        folder = self._folder / name
        files = (f"libamdhip64.so{version}", "libc10_hip.so", "libtorch_hip.so")
        built = [folder / file for file in files]
        with held("standin"):
            if not built[-1].exists():
                folder.mkdir(parents=True, exist_ok=True)
                hip, c10, torch = built
                compile_library(
                    [SOURCES / "runtime.cpp", _OP / "host.cpp"],
                    hip,
                    f'-DSTANDIN_NAME="{name}"',
                    "-D__HIP_PLATFORM_AMD__",
                    f"-I{hip_headers()}",
                    f"-I{_OP}",
                )
                compile_library([SOURCES / "c10_hip.cpp"], c10, f"-l:{hip.name}")
                compile_library([SOURCES / "torch_hip.cpp"], torch, "-lc10_hip")
        return built

    def run(self, code: str, load: list[Path], **environment: str) -> Result:
        """Runs `code` after the preamble in a process of its own, which must end well."""
        log = self._scratch / "calls.jsonl"
        log.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "-c", _PREAMBLE + textwrap.dedent(code)],
            cwd=paths.ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(paths.ROOT),
                "RDNA35_TEST_LIBRARY": str(self._library),
                "STANDIN_LOAD": " ".join(map(str, load)),
                "STANDIN_HIP_LOG": str(log),
                **environment,
            },
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        lines = log.read_text().splitlines() if log.exists() else []
        return Result(done.stdout, [json.loads(line) for line in lines])


def make(library: Path, scratch: Path) -> Standin:
    """Stand-ins for the current sources, kept under build/ for the next run."""
    digest = hashlib.sha256()
    for source in sorted([Path(__file__), *SOURCES.iterdir(), *_OP.iterdir()]):
        digest.update(source.read_bytes())
    return Standin(paths.BUILD / "standin-hip" / digest.hexdigest()[:16], library, scratch)


def compile_library(sources: list[Path], output: Path, *flags: str) -> None:
    made = output.with_suffix(".new")
    command = [
        *("g++", "-shared", "-fPIC", "-std=c++17", "-O2", "-ffp-contract=off"),
        *("-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", f"-Wl,-soname,{output.name}"),
        *map(str, sources),
        *(f"-L{output.parent}", *flags, "-o", str(made)),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made.rename(output)
