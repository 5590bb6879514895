"""The op's sources in a vLLM tree, compiled as vLLM's ROCm build compiles them, without a ROCm.

zig's clang takes the place of hipcc; HIP's headers come from the triton package, clang's own from
clang-tidy's.
"""

import importlib.util
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scripts.errors import Fault
from scripts.pin import load_pin

# Where the op is in vLLM, and its sources by the compiler that takes them.
OP = "csrc/rocm/rdna35_rope_cache"
DEVICE_SOURCE = f"{OP}/rocm.cu"
HOST_SOURCES = (
    "csrc/rocm/torch_bindings.cpp",
    *(f"{OP}/{name}" for name in ("binding.cpp", "checks.cpp", "host.cpp")),
)
# The architectures that the sources are told they are built for.
BUILT = "gfx1150, gfx1151"


def package(name: str) -> Path:
    """Folder of an installed package; Fault where it is missing."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise Fault(f"{sys.executable} lacks {name}; run `make test`, which installs it")
    return Path(spec.submodule_search_locations[0])


def hip_headers() -> Path:
    """HIP's headers, as the triton package carries them."""
    folder = package("triton") / "backends/amd/include"
    if not (folder / "hip/hip_runtime_api.h").is_file():
        raise Fault(f"{folder} has no HIP headers; install triton {load_pin().tools['triton']}")
    return folder


def hipify(tree: Path, folder: Path) -> None:
    """Copies the tree's csrc/ to `folder`, with the device source in HIP's terms."""
    script = [sys.executable, "cmake/hipify.py"]
    _run([*script, "-p", "csrc", "-o", str(folder), DEVICE_SOURCE], tree)


def compile_device(hipified: Path, output: Path, *flags: str) -> None:
    """What hipcc does with the device source: HIP's wrapper and headers, vLLM's flags, gfx1151."""
    resources = package("clang_tidy") / "data/lib/clang/22"
    source = hipified / Path(DEVICE_SOURCE).relative_to("csrc").with_suffix(".hip")
    command = [
        *(str(package("ziglang") / "zig"), "clang", "-x", "hip"),
        "--target=x86_64-unknown-linux-gnu",
        *("-resource-dir", str(resources), "-nogpuinc", "-nogpulib", "-fuse-cuid=none"),
        *("-isystem", str(resources / "include/cuda_wrappers")),
        *("-idirafter", str(hip_headers())),
        *("-include", "__clang_hip_runtime_wrapper.h", "-D__HIP_PLATFORM_AMD__"),
        *("-DUSE_ROCM", "-DENABLE_FP8", "-U__HIP_NO_HALF_CONVERSIONS__", "-fno-gpu-rdc"),
        *("-Werror=unused-variable", "-std=c++20", "-fPIC", "-O3", "-ffp-contract=off"),
        f'-DRDNA35_ARCHITECTURES="{BUILT}"',
        *("--offload-arch=gfx1151", *flags, str(source), "-o", str(output)),
    ]  # fmt: skip
    _run(command)


def compile_host(source: Path, hipified: Path, output: Path) -> None:
    """What the host's compiler does with one of _rocm_C's own sources in a build for gfx115x."""
    include = package("torch") / "include"
    command = [
        *("g++", "-c", "-fPIC", "-std=c++20", "-O1", "-ffp-contract=off", "-Wall", "-Werror"),
        *("-Wno-unused-function", "-DTORCH_EXTENSION_NAME=_rocm_C"),
        *("-DVLLM_ROCM_RDNA35", "-DVLLM_SKIP_SKINNY_GEMMS", f"-I{hipified}"),
        *(f"-isystem{include / each}" for each in ("torch/csrc/api/include", "")),
        f"-isystem{sysconfig.get_path('include')}",
        *(str(source), "-o", str(output)),
    ]
    _run(command)


def compile_all(tree: Path, folder: Path) -> None:
    """Compiles everything for host and gfx1151 into `folder`; Fault with the compiler's lines."""
    hipified = folder / "csrc"
    hipify(tree, hipified)
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(compile_device, hipified, folder / "device.s", "--cuda-device-only", "-S"),
            pool.submit(compile_device, hipified, folder / "launch.o", "--cuda-host-only", "-c"),
        ]
        for name in HOST_SOURCES:
            output = folder / f"{Path(name).stem}.o"
            jobs.append(pool.submit(compile_host, tree / name, hipified, output))
        for job in jobs:
            job.result()


def _run(command: list[str], folder: Path | None = None) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.splitlines() or [f"ended with status {done.returncode}"]
        errors = [line for line in said if " error: " in line] or said[-1:]
        raise Fault(f"{Path(command[0]).name}: {errors[0]}")
