"""The GPU that is measured: its name and architecture, and kernels compiled and launched on it."""

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import torch

from scripts import paths
from scripts.errors import Fault

_BUILT = paths.BUILD / "bench" / "floors"


def device() -> torch.device:
    """The current GPU. Fault where torch finds none."""
    if not torch.cuda.is_available():
        raise Fault(
            f"torch {torch.__version__} finds no GPU; name an interpreter whose torch does: "
            "`make bench PYTHON=<interpreter>`"
        )
    return torch.device("cuda", torch.cuda.current_device())


def architecture() -> str:
    """As code objects are named: gfx1151, sm_90."""
    properties = torch.cuda.get_device_properties(device())
    if torch.version.hip:
        return properties.gcnArchName.split(":")[0]
    return f"sm_{properties.major}{properties.minor}"


def name() -> str:
    """The device's marketing name, or its architecture where it has none."""
    return torch.cuda.get_device_name(device()) or architecture()


def l2_bytes() -> int:
    """Size of the last cache before memory; 64 MiB where it is unknown or smaller.

    (Strix Halo has 32 MiB behind its L2 that torch does not report.)
    """
    return max(torch.cuda.get_device_properties(device()).L2_cache_size, 64 << 20)


def write_source(name: str, text: str) -> Path:
    """A source file for Module that is put together here."""
    path = _BUILT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
    return path


class Module:
    """The kernels of a source file, compiled for the current GPU.

    launch(kernel, grid, threads, *arguments): on torch's current stream. An argument is a tensor
    (its address) or an integer (32 bits, unsigned).
    """

    def __init__(self, source: Path) -> None:
        torch.zeros(1, device=device())  # makes the context
        self._driver = _driver()
        image = ctypes.create_string_buffer(_compiled(source, architecture()))
        self._module = ctypes.c_void_p()
        self._functions: dict[str, ctypes.c_void_p] = {}
        self._call("ModuleLoadData", ctypes.byref(self._module), image)

    def launch(self, kernel: str, grid: int, threads: int, *arguments: torch.Tensor | int) -> None:
        """One launch with a one-dimensional grid."""
        values = [
            ctypes.c_uint32(a) if isinstance(a, int) else ctypes.c_void_p(a.data_ptr())
            for a in arguments
        ]
        packed = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(v) for v in values))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        launch = "ModuleLaunchKernel" if torch.version.hip else "LaunchKernel"
        shape = (ctypes.c_uint(n) for n in (grid, 1, 1, threads, 1, 1, 0))
        self._call(launch, self._function(kernel), *shape, stream, packed, None)

    def _function(self, kernel: str) -> ctypes.c_void_p:
        if kernel not in self._functions:
            function = ctypes.c_void_p()
            self._call("ModuleGetFunction", ctypes.byref(function), self._module, kernel.encode())
            self._functions[kernel] = function
        return self._functions[kernel]

    def _call(self, what: str, *arguments: object) -> None:
        status = self._driver(what)(*arguments)
        if status != 0:
            raise Fault(f"{what} of a floor kernel fails with status {status} on {name()}")


def _driver() -> Callable[[str], Callable[..., int]]:
    """Functions of the runtime that torch uses, by their name without prefix."""
    if torch.version.hip:
        # Through torch's own library: with two HIP runtimes, the one that torch is linked to.
        hip = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10_hip.so"))
        return lambda what: getattr(hip, f"hip{what}")
    cuda = ctypes.CDLL("libcuda.so.1")
    return lambda what: getattr(cuda, f"cu{what}")


def _compiled(source: Path, arch: str) -> bytes:
    """The code object of a source file; compiled once for its content."""
    headers = sorted((paths.CSRC / "rdna35_rope_cache").glob("*.h"))
    key = hashlib.sha256(b"".join(path.read_bytes() for path in (source, *headers))).hexdigest()
    target = _BUILT / f"{source.stem}-{arch}-{key[:16]}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_suffix(f".{os.getpid()}.new")
        if arch.startswith("gfx"):
            _compile_amdgpu(source, arch, new)
        else:
            _run([_nvcc(), "-cubin", f"-arch={arch}", "-std=c++17", "-O3", str(source), "-o", new])
        new.replace(target)
    return target.read_bytes()


def _compile_amdgpu(source: Path, arch: str, output: Path) -> None:
    """With the flags of the op's own device code (CMakeLists.txt)."""
    clang, lld = _amdgpu_tools()
    assembly, code = output.with_suffix(".s"), output.with_suffix(".o")
    flags = ["--cuda-device-only", "-nogpuinc", "-nogpulib", "-std=c++17", "-O3"]
    flags += ["-mno-wavefrontsize64", "-mcode-object-version=5", "-S"]
    _run([*clang, "-x", "hip", f"--offload-arch={arch}", *flags, source, "-o", assembly])
    target = ["-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}"]
    _run([*clang, *target, "-x", "assembler", "-c", assembly, "-o", code])
    _run([*lld, "-shared", code, "-o", output])
    assembly.unlink()
    code.unlink()


def _amdgpu_tools() -> tuple[list[str], list[str]]:
    """clang and lld of ROCm, else of the PyPI package ziglang."""
    rocm = Path(os.environ.get("ROCM_PATH", "/opt/rocm"))
    for folder in (rocm / "llvm" / "bin", rocm / "lib" / "llvm" / "bin"):
        if (folder / "clang").exists() and (folder / "ld.lld").exists():
            return [str(folder / "clang")], [str(folder / "ld.lld")]
    spec = importlib.util.find_spec("ziglang")
    if spec is None or not spec.submodule_search_locations:
        raise Fault("neither ROCm's clang nor the package ziglang is here; `pip install ziglang`")
    zig = str(Path(spec.submodule_search_locations[0]) / "zig")
    return [zig, "clang"], [zig, "ld.lld"]


def _nvcc() -> str:
    found = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if found is None:
        raise Fault("no nvcc on PATH or in /usr/local/cuda/bin; the CUDA toolkit is needed here")
    return found


def _run(command: list[str | Path]) -> None:
    done = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        print(done.stdout, end="")
        raise Fault(f"{command[0]} does not compile the floor kernels, see above")


def driver_version() -> str:
    """Of the CUDA driver (13000 for 13.0), or of HIP."""
    if torch.version.hip:
        return f"HIP {torch.version.hip}"
    version = ctypes.c_int()
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    return f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
