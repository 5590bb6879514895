"""The launcher against a stand-in HIP runtime: what it calls, with what, and how it fails."""

from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.pin import load_pin
from tests.kernel import op, standin
from tests.kernel.standin import Result, Standin

pytestmark = pytest.mark.skipif(
    op.device().type != "cpu", reason="stands in for ROCm where torch has no GPU"
)

Run = Callable[..., Result]

# hipError_t
INVALID_VALUE, INVALID_DEVICE, NO_BINARY, NOT_FOUND = 1, 101, 209, 500

# Where RopeCacheParams has its pointers: positions, slots, then source, destination and weight of
# Q, K and V, the table and the cache.
POINTERS = (0, 8, *(48 + 40 * heads + 8 * i for heads in range(3) for i in range(3)), 168, 176)

BUILT = ", ".join(load_pin().architectures)


@pytest.fixture
def hip(op_library: Path, tmp_path: Path) -> Standin:
    """The stand-ins, with the library that has the pin's architectures."""
    return standin.make(op_library, tmp_path)


@pytest.fixture
def run(hip: Standin) -> Run:
    """Runs code in a process whose torch has the stand-in runtime loaded."""
    torch_hip = hip.runtime("torch")[-1]

    def in_process(code: str, **environment: str) -> Result:
        return hip.run(code, [torch_hip], **environment)

    return in_process


CALL = 'rope_cache(*gpu(case("qwen3"), 0).as_tuple())'


def test_a_launch_gives_what_the_host_build_gives(run: Run) -> None:
    # Two families, dtypes and sizes; the stand-in runs the host build on the bytes it is handed,
    # so a wrong byte anywhere in them shows.
    result = run("""
        for name, tokens, dtype, options in (
            ("qwen3", 5, torch.bfloat16, dict(outputs=frozenset("qkv"), block_pad=24)),
            ("gemma4-full", 2, torch.float16, dict(layout="LHBNC", slots_mapped=1)),
        ):
            on_cpu = case(name, tokens, dtype, **options)
            rope_cache(*on_cpu.as_tuple())
            on_gpu_ = case(name, tokens, dtype, **options)
            rope_cache(*gpu(on_gpu_, 0).as_tuple())
            for field in dataclasses.fields(on_cpu):
                a, b = getattr(on_cpu, field.name), getattr(on_gpu_, field.name)
                if isinstance(a, torch.Tensor):
                    same = torch.equal(a.view(torch.int16), b.view(torch.int16))
                    print(name, field.name, same)
    """)
    lines = result.output.splitlines()
    assert len(lines) > 12
    assert [line for line in lines if not line.endswith("True")] == []
    first, second = result.named("hipModuleLaunchKernel")
    assert first["name"].startswith("rdna35_rope_cache_bf16_128_norm")
    assert second["name"].startswith("rdna35_rope_cache_f16_512_norm")


def test_a_launch_has_the_grid_and_block_of_its_parameters(run: Run) -> None:
    result = run("""
        for tokens in (1, 7, 300):
            rope_cache(*gpu(case("llama2", tokens), 0).as_tuple())
    """)
    launches = result.named("hipModuleLaunchKernel")
    assert [launch["grid"][0] for launch in launches] == [1, 7, 300]
    for launch in launches:
        groups = -(-launch["num_waves"] // launch["waves_per_group"])
        assert launch["grid"][1:] == [groups, 1]
        assert launch["block"] == [32 * launch["waves_per_group"], 1, 1]
        assert launch["shared"] == 0


def test_parameters_hold_the_address_of_every_tensor(run: Run) -> None:
    result = run("""
        arguments = case("qwen3", outputs=frozenset("qkv"))
        rope_cache(*gpu(arguments, 0).as_tuple())
        for field in dataclasses.fields(arguments):
            value = getattr(arguments, field.name)
            if isinstance(value, torch.Tensor):
                print(field.name, value.data_ptr())
    """)
    params = bytes.fromhex(result.named("hipModuleLaunchKernel")[0]["params"])
    words = {int.from_bytes(params[i : i + 8], "little") for i in range(0, len(params), 8)}
    addresses = dict(line.split() for line in result.output.splitlines())
    assert {name for name, address in addresses.items() if int(address) not in words} == set()
    assert len(addresses) == 12


def test_a_call_makes_nothing_that_a_captured_graph_could_outlive(run: Run) -> None:
    """aiter 5193: a buffer that a call makes on the GPU is freed under the graph that captured it.

    Behind the first call, whatever its arguments, there are launches alone, and the kernel is given
    no address but of the call's own tensors.
    """
    result = run("""
        for options in (
            {}, dict(outputs=frozenset("qkv")), dict(cache=False), dict(slots_mapped=0),
            dict(weights=torch.float32, shift=1),
        ):
            for name in ("qwen3", "gemma4-sliding", "granite-nope"):
                arguments = case(name, **options)
                rope_cache(*gpu(arguments, 0).as_tuple())
                values = (getattr(arguments, f.name) for f in dataclasses.fields(arguments))
                print(*(x.data_ptr() for x in values if isinstance(x, torch.Tensor)))
    """)
    launches = result.named("hipModuleLaunchKernel")
    first = result.calls.index(launches[0])
    assert {call["call"] for call in result.calls[first:]} == {"hipModuleLaunchKernel"}
    assert len(launches) == 15
    for launch, line in zip(launches, result.output.splitlines(), strict=True):
        params = bytes.fromhex(launch["params"])
        given = {int.from_bytes(params[i : i + 8], "little") for i in POINTERS}
        assert given - {0} <= set(map(int, line.split()))


def test_a_device_is_loaded_once_with_its_own_code_object(run: Run, op_library: Path) -> None:
    result = run(
        """
        for device in (1, 0, 1, 1, 0):
            rope_cache(*gpu(case("qwen3"), device).as_tuple())
        """,
        STANDIN_HIP_ARCHS="gfx1151,gfx1150",
    )
    loads = result.named("hipModuleLoadData")
    assert [load["current"] for load in loads] == [1, 0]
    for load, architecture in zip(loads, ("gfx1150", "gfx1151"), strict=True):
        image = (op_library.parent / architecture / "rdna35_rope_cache.hsaco").read_bytes()
        assert (load["size"], load["fnv"]) == (len(image), _fnv(image))
    launches = result.named("hipModuleLaunchKernel")
    assert [launch["module_device"] for launch in launches] == [1, 0, 1, 1, 0]


def test_a_launch_is_on_the_tensors_device_and_torchs_stream_of_it(run: Run) -> None:
    result = run(
        """
        for device in (2, 0, 1):
            rope_cache(*gpu(case("qwen3"), device).as_tuple())
            current = ctypes.c_int(-1)
            ctypes.CDLL("libamdhip64.so").hipGetDevice(ctypes.byref(current))
            print(current.value)
        """,
        STANDIN_HIP_ARCHS="gfx1151,gfx1151,gfx1151",
    )
    launches = result.named("hipModuleLaunchKernel")
    assert [launch["current"] for launch in launches] == [2, 0, 1]
    assert [launch["stream"] for launch in launches] == [0x1002, 0x1000, 0x1001]
    assert result.output.split() == ["0", "0", "0"], "the caller's device is current again"


def test_first_calls_from_many_threads_load_once(run: Run) -> None:
    result = run("""
        arguments = [gpu(case("qwen3"), 0).as_tuple() for _ in range(8)]
        start = threading.Barrier(8)
        def call(each):
            start.wait()
            rope_cache(*each)
        threads = [threading.Thread(target=call, args=(each,)) for each in arguments]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    """)
    assert len(result.named("hipModuleLoadData")) == 1
    assert len(result.named("hipModuleLaunchKernel")) == 8


def test_loading_ahead_leaves_nothing_to_load_for_a_launch(run: Run) -> None:
    result = run(f"""
        load(on_gpu(torch.zeros(1), 0))
        load(on_gpu(torch.zeros(1), 0))
        {CALL}
    """)
    calls = [call["call"] for call in result.calls]
    assert calls.count("hipModuleLoadData") == 1
    assert calls[-1] == "hipModuleLaunchKernel"
    assert calls.count("hipModuleGetFunction") == len(calls) - 3  # properties, load, launch


def test_loading_for_a_cpu_tensor_does_nothing(run: Run) -> None:
    assert run("load(torch.zeros(1))").calls == []


def test_without_tokens_nothing_is_called(run: Run) -> None:
    result = run("""
        arguments = gpu(case("qwen3", 1), 0)
        empty = torch.zeros(0, 1, 128, dtype=torch.bfloat16)
        rope_cache(*arguments.replace(
            positions=on_gpu(torch.zeros(0, dtype=torch.int64), 0), q=on_gpu(empty, 0),
            k=on_gpu(empty, 0), v=on_gpu(empty, 0), kv_cache=None, slot_mapping=None).as_tuple())
    """)
    assert result.calls == []


def test_features_after_the_architectures_name_do_not_matter(run: Run) -> None:
    result = run(CALL, STANDIN_HIP_ARCHS="gfx1151:sramecc-:xnack-")
    assert len(result.named("hipModuleLaunchKernel")) == 1


@pytest.mark.parametrize("order", ["other_first", "torch_first"])
def test_with_two_runtimes_the_one_that_torch_links_is_used(hip: Standin, order: str) -> None:
    # The other one is loaded for everybody to find, as a program linked to ROCm has it.
    other = hip.runtime("system", version=".7")[0]
    torch_hip = hip.runtime("torch")[-1]
    load = [other, torch_hip] if order == "other_first" else [torch_hip, other]
    result = hip.run(CALL, load)
    assert {call["runtime"] for call in result.calls} == {"torch"}
    assert len(result.named("hipModuleLaunchKernel")) == 1


def test_without_a_runtime_the_error_says_what_is_missing_and_built(hip: Standin) -> None:
    result = hip.run(f"error_of(lambda: {CALL})", [])
    assert result.output == (
        "RuntimeError: rdna35_rope_cache: no GPU runtime: this process has neither ROCm's torch "
        "(libtorch_hip.so, libc10_hip.so) nor NVIDIA's (libtorch_cuda.so, libcuda.so.1) loaded; "
        f"the library has code for {BUILT}\n"
    )


def test_a_runtime_that_torch_does_not_link_is_not_taken(hip: Standin) -> None:
    result = hip.run(f"error_of(lambda: {CALL})", [hip.runtime("torch")[0]])
    assert "no GPU runtime" in result.output
    assert result.calls == []


def test_an_architecture_not_built_is_named_with_those_that_are(run: Run) -> None:
    result = run(
        f"error_of(lambda: {CALL}); error_of(load, on_gpu(torch.zeros(1), 0))",
        STANDIN_HIP_ARCHS="gfx1100",
    )
    message = (
        f"RuntimeError: rdna35_rope_cache: cuda:0 is gfx1100; the library has code for {BUILT}\n"
    )
    assert result.output == message * 2
    assert result.named("hipModuleLoadData") == []


def test_a_device_that_cannot_be_asked_is_named(run: Run) -> None:
    result = run(
        f"error_of(lambda: {CALL})", STANDIN_HIP_FAIL=f"hipGetDeviceProperties:{INVALID_DEVICE}"
    )
    assert result.output == (
        "RuntimeError: rdna35_rope_cache: the properties of cuda:0 cannot be read: "
        "hipErrorInvalidDevice\n"
    )


def test_a_code_object_that_does_not_load_is_an_error_and_can_be_tried_again(
    run: Run, op_library: Path
) -> None:
    result = run(
        f"error_of(lambda: {CALL}); error_of(lambda: {CALL})",
        STANDIN_HIP_FAIL=f"hipModuleLoadData:{NO_BINARY}:1",
    )
    size = (op_library.parent / "gfx1151/rdna35_rope_cache.hsaco").stat().st_size
    assert result.output == (
        f"RuntimeError: rdna35_rope_cache: the code object for gfx1151 ({size} bytes) does not "
        "load on cuda:0: hipErrorNoBinaryForGpu\nno error\n"
    )
    assert len(result.named("hipGetLastError")) == 1, "torch must not find the error again"


def test_a_missing_kernel_is_named_and_the_module_given_back(run: Run) -> None:
    result = run(f"error_of(lambda: {CALL})", STANDIN_HIP_FAIL=f"hipModuleGetFunction:{NOT_FOUND}")
    assert result.output == (
        "RuntimeError: rdna35_rope_cache: the code object for gfx1151, loaded on cuda:0, gives no "
        f"{result.named('hipModuleGetFunction')[0]['name']}: hipErrorNotFound\n"
    )
    assert len(result.named("hipModuleUnload")) == 1
    assert len(result.named("hipGetLastError")) == 1


def test_a_failed_launch_names_kernel_size_device_and_error(run: Run) -> None:
    result = run(
        'error_of(rope_cache, *gpu(case("qwen3", 3), 1).as_tuple())',
        STANDIN_HIP_ARCHS="gfx1151,gfx1151",
        STANDIN_HIP_FAIL=f"hipModuleLaunchKernel:{INVALID_VALUE}",
    )
    launch = result.named("hipModuleLaunchKernel")[0]
    assert result.output == (
        f"RuntimeError: rdna35_rope_cache: the launch of {launch['name']} "
        f"(grid 3 x {launch['grid'][1]}, {launch['block'][0]} threads) on cuda:1 failed: "
        "hipErrorInvalidValue\n"
    )
    assert result.calls[-2]["call"] == "hipSetDevice", "the caller's device is current again"
    assert result.calls[-1]["call"] == "hipGetLastError", "torch must not find the error again"


def test_a_failed_check_calls_nothing(run: Run) -> None:
    result = run("""
        arguments = gpu(case("qwen3"), 0)
        error_of(rope_cache, *arguments.replace(k_weight=None).as_tuple())
        error_of(rope_cache, *arguments.replace(q=on_gpu(case("qwen3").q, 1)).as_tuple())
    """)
    first, second = result.output.splitlines()
    assert first.startswith("RuntimeError: rdna35_rope_cache: ") and "k_weight" in first
    assert second.startswith("RuntimeError: rdna35_rope_cache: ") and "device" in second
    assert result.calls == []


def test_a_second_copy_of_the_library_changes_nothing(run: Run, tmp_path: Path) -> None:
    result = run(f"""
        import shutil
        shutil.copy(op.library(), {str(tmp_path / "copy.so")!r})
        torch.ops.load_library({str(tmp_path / "copy.so")!r})
        {CALL}
    """)
    assert len(result.named("hipModuleLaunchKernel")) == 1


def _fnv(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & (2**64 - 1)
    return value
