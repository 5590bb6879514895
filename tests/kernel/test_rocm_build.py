"""The op in vLLM's own ROCm build: the patched sources, hipified by vLLM's own script, compiled
for host and device as ROCm's compiler does, and run against the stand-in HIP runtime."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from scripts import in_tree
from scripts.op import tool
from scripts.pin import load_pin
from tests.kernel import op, standin
from tests.kernel.standin import Result

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        op.device().type != "cpu", reason="stands in for ROCm where torch has no GPU"
    ),
]


@pytest.fixture(scope="session")
def hipified(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """csrc/ as vLLM's build has it: copied, with the device source in HIP's terms."""
    folder = tmp_path_factory.mktemp("hipified") / "csrc"
    in_tree.hipify(checkout, folder)
    return folder


@pytest.fixture(scope="session")
def rocm_c(
    checkout: Path, hipified: Path, op_library: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """The op's part of _rocm_C, linked to the stand-in runtime; and that runtime."""
    folder = tmp_path_factory.mktemp("rocm_c")
    runtime = standin.make(op_library, folder).runtime("rocm")
    torch_folder = Path(torch.__file__).parent
    sources = [*(checkout / name for name in in_tree.HOST_SOURCES), standin.SOURCES / "rocm_c.cpp"]
    objects = [folder / f"{source.stem}.o" for source in sources]

    def compile_one(source: Path, output: Path) -> None:
        in_tree.compile_host(source, hipified, output)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compile_one, sources, objects))
    device = folder / "rocm.o"
    in_tree.compile_device(hipified, device, "--cuda-host-only", "-c")
    # What the driver would bundle for the architectures, for the one that the stand-in looks at.
    image = op_library.parent / "gfx1151/rdna35_rope_cache.hsaco"
    fatbin = folder / "fatbin.S"
    head = '.section .hip_fatbin,"a"\n.globl __hip_fatbin\n__hip_fatbin:\n'
    fatbin.write_text(f'{head}.incbin "{image}"\n')
    library = folder / "_rocm_C.so"
    standin.compile_library(
        [*objects, device, fatbin],
        library,
        *(f"-L{torch_folder}/lib", "-ltorch", "-ltorch_cpu", "-lc10"),
        *(str(path) for path in runtime),
        f"-Wl,-rpath,{runtime[0].parent}",
    )
    return library, runtime[-1]


@pytest.fixture
def run(rocm_c: tuple[Path, Path], tmp_path: Path) -> Callable[..., Result]:
    """Runs code in a process that has the op from _rocm_C."""
    library, torch_hip = rocm_c
    stand_in = standin.make(library, tmp_path)

    def in_process(code: str, **environment: str) -> Result:
        return stand_in.run(code, [torch_hip], **environment)

    return in_process


def test_device_code_built_by_rocms_headers_keeps_the_budget(
    hipified: Path, tmp_path: Path
) -> None:
    assembly = tmp_path / "rocm.s"
    in_tree.compile_device(hipified, assembly, "--cuda-device-only", "-S")
    fields: dict[str, list[int]] = {}
    for name, value in re.findall(r"^ +\.([a-z_]+): +(\d+)$", assembly.read_text(), re.MULTILINE):
        fields.setdefault(name, []).append(int(value))
    kernels = len(fields["vgpr_count"])
    assert kernels >= 20
    for name in ("vgpr_spill_count", "sgpr_spill_count", "private_segment_fixed_size"):
        assert fields[name] == [0] * kernels
    assert max(fields["vgpr_count"]) <= 96
    assert set(fields["wavefront_size"]) == {32}


def test_on_cpu_tensors_the_op_does_what_the_contract_says(run: Callable[..., Result]) -> None:
    result = run("""
        for name in ("llama3", "qwen3", "gemma4-sliding", "gemma4-kv-shared"):
            cases.build(family[name], 5, torch.bfloat16).run_and_check()
            print(name)
        load(torch.zeros(1))
    """)
    assert result.output.split() == ["llama3", "qwen3", "gemma4-sliding", "gemma4-kv-shared"]
    assert result.calls == []


def test_the_schema_is_the_contracts(run: Callable[..., Result]) -> None:
    result = run("print(rope_cache._schema == torch._C.parse_schema(op.SCHEMA))")
    assert result.output == "True\n"


def test_on_gpu_tensors_it_launches_what_the_library_launches(
    run: Callable[..., Result], op_library: Path, tmp_path: Path
) -> None:
    # Addresses differ between processes: what is compared is all that they leave alone.
    code = """
        for name, tokens in (("llama3", 1), ("qwen3", 300), ("gemma4-full", 4)):
            arguments = case(name, tokens)
            rope_cache(*gpu(arguments, 1).as_tuple())
            print(*(hash(bytes(tensor.view(torch.uint8).flatten().tolist())) for tensor in (
                arguments.q, arguments.k.contiguous(), arguments.kv_cache.contiguous())))
    """
    two = {"STANDIN_HIP_ARCHS": "gfx1151,gfx1151", "PYTHONHASHSEED": "0"}
    in_tree = run(code, **two)
    stand_in = standin.make(op_library, tmp_path)
    library = stand_in.run(code, [stand_in.runtime("torch")[-1]], **two)
    assert in_tree.output == library.output
    fields = ("name", "current", "grid", "block", "shared", "stream")
    launches = [[c[f] for f in fields] for c in in_tree.named("hipLaunchKernel")]
    assert launches == [[c[f] for f in fields] for c in library.named("hipModuleLaunchKernel")]
    assert len(launches) == 3


def test_loading_touches_every_kernel_on_the_tensors_device(run: Callable[..., Result]) -> None:
    result = run("load(on_gpu(torch.zeros(1), 1))", STANDIN_HIP_ARCHS="gfx1151,gfx1151")
    loaded = result.named("hipFuncGetAttributes")
    assert {call["current"] for call in loaded} == {1}
    names = [call["name"] for call in loaded]
    assert len(set(names)) == len(names) >= 20


def test_a_device_without_code_is_named_with_what_is_built(run: Callable[..., Result]) -> None:
    for call, doing in (("hipLaunchKernel", "the launch of"), ("hipFuncGetAttributes", "loading")):
        code = "load(on_gpu(torch.zeros(1), 0))"
        if call == "hipLaunchKernel":
            code = 'rope_cache(*gpu(case("qwen3"), 0).as_tuple())'
        result = run(
            f"error_of(lambda: {code})",
            STANDIN_HIP_ARCHS="gfx942:sramecc+:xnack-",
            STANDIN_HIP_FAIL=f"{call}:209",
        )
        assert result.output.startswith(f"RuntimeError: rdna35_rope_cache: {doing} rdna35_")
        assert result.output.endswith(
            " on cuda:0 (gfx942:sramecc+:xnack-) failed: hipErrorNoBinaryForGpu; "
            f"the build has code for {in_tree.BUILT}\n"
        )
        assert len(result.named("hipGetLastError")) == 1


def test_a_failed_check_raises_its_message_alone(run: Callable[..., Result]) -> None:
    result = run("error_of(rope_cache, *case('qwen3').replace(k_weight=None).as_tuple())")
    assert result.output.startswith("RuntimeError: rdna35_rope_cache: ")
    assert len(result.output.splitlines()) == 1


def test_the_library_leaves_the_op_of_the_full_build_alone(
    run: Callable[..., Result], op_library: Path
) -> None:
    result = run(f"""
        torch.ops.load_library({str(op_library)!r})
        rope_cache(*gpu(case("qwen3"), 0).as_tuple())
    """)
    assert [c["call"] for c in result.calls] == ["hipLaunchKernel"]


# What vLLM's CMake has found out by the time it comes to _rocm_C.
BEFORE = """\
cmake_minimum_required(VERSION 3.26)
project(part LANGUAGES CXX HIP)
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module Development.SABIModule)
include(cmake/utils.cmake)
set(VLLM_GPU_LANG HIP)
set(VLLM_GPU_FLAGS -DUSE_ROCM -fno-gpu-rdc)
add_library(torch INTERFACE)
"""


def _compile_commands(checkout: Path, folder: Path, architectures: str) -> dict[str, str]:
    """Source -> command of _rocm_C, as vLLM's own CMake code makes them for a ROCm host."""
    cmake = (checkout / "CMakeLists.txt").read_text()
    begin = cmake.index('if(VLLM_GPU_LANG STREQUAL "HIP")\n  #\n  # _rocm_C extension')
    last = "vllm_finalize_hipify_target()\nendif()\n"
    end = cmake.index(last, begin) + len(last)
    for name in ("csrc", "cmake"):
        (folder / name).symlink_to(checkout / name)
    (folder / "CMakeLists.txt").write_text(BEFORE + cmake[begin:end])
    # A ROCm to configure with; nothing is compiled.
    rocm = folder / "rocm"
    package = rocm / "lib/cmake/hip-lang/hip-lang-config.cmake"
    package.parent.mkdir(parents=True)
    package.write_text("add_library(hip-lang::device INTERFACE IMPORTED)\n")
    compiler = rocm / "clang++"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    command = [
        *(tool("cmake"), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}"),
        *("-S", str(folder), "-B", str(folder / "build"), "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"),
        *(f"-DPython_EXECUTABLE={sys.executable}", f"-DVLLM_GPU_ARCHES={architectures}"),
        *(f"-DCMAKE_HIP_COMPILER={compiler}", "-DCMAKE_HIP_COMPILER_FORCED=ON"),
        *(f"-DCMAKE_HIP_COMPILER_ROCM_ROOT={rocm}", "-DCMAKE_HIP_COMPILER_VERSION=22.1.8"),
        *("-DCMAKE_HIP_COMPILER_ID_RUN=ON", "-DCMAKE_HIP_COMPILER_ID=Clang"),
        *("-DCMAKE_HIP_PLATFORM=amd", "-DCMAKE_HIP_ARCHITECTURES=gfx000"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    entries = json.loads((folder / "build/compile_commands.json").read_text())
    return {Path(entry["file"]).name: entry["command"] for entry in entries}


def _offload(command: str) -> set[str]:
    return set(re.findall(r"--offload-arch=(\S+)", command))


def test_device_code_is_built_for_the_gfx115x_of_a_build_alone(
    checkout: Path, tmp_path: Path
) -> None:
    commands = _compile_commands(checkout, tmp_path, "gfx942;gfx1100;gfx1150;gfx1151")
    assert _offload(commands["rocm.hip"]) == {"gfx1150", "gfx1151"}
    everything = {"gfx942", "gfx1100", "gfx1150", "gfx1151"}
    assert _offload(commands["attention_dispatch.hip"]) == everything
    for name in ("rocm.hip", "binding.cpp", "checks.cpp", "host.cpp"):
        assert "-ffp-contract=off" in commands[name], name
    assert "-ffp-contract" not in commands["attention_dispatch.hip"]
    assert re.search(r"RDNA35_ARCHITECTURES=\S*gfx1150, gfx1151", commands["rocm.hip"])
    assert "-O3" in commands["rocm.hip"] and "-fno-gpu-rdc" in commands["rocm.hip"]
    assert "-DVLLM_ROCM_RDNA35" in commands["torch_bindings.cpp"]


def test_a_build_for_other_architectures_is_what_it_was(checkout: Path, tmp_path: Path) -> None:
    commands = _compile_commands(checkout, tmp_path, "gfx942;gfx1100")
    assert "torch_bindings.cpp" in commands
    assert {"rocm.hip", "binding.cpp", "checks.cpp", "host.cpp"}.isdisjoint(commands)
    assert not any("RDNA35" in command for command in commands.values())


def test_the_patch_names_the_architectures_of_the_pin(checkout: Path) -> None:
    cmake = (checkout / "CMakeLists.txt").read_text()
    (pattern,) = re.findall(r"VLLM_RDNA35_ARCHES INCLUDE REGEX \"(.*)\"", cmake)
    supported = re.search(r'HIP_SUPPORTED_ARCHS "(.*)"', cmake)
    assert supported is not None
    chosen = [arch for arch in supported[1].split(";") if re.search(pattern, arch)]
    assert tuple(chosen) == load_pin().architectures
