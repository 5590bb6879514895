"""Every error of the contract: RuntimeError, a message that names the argument,
and nothing written. One table."""

import dataclasses
import re
import time
from collections.abc import Callable

import pytest
import torch

from tests.kernel import cases, op
from tests.kernel.cases import Case, Options
from tests.kernel.families import Family
from tests.kernel.memory import Memory
from tests.kernel.op import Arguments
from tests.kernel.rope_tables import Rope
from tests.kernel.test_memory import virtual_memory

bf16, fp16, fp32 = torch.bfloat16, torch.float16, torch.float32
TOKENS, HEAD_DIM = 5, 64
FAMILY = Family("errors", 4, 2, HEAD_DIM, Rope(32, rows=64), norm="rms", max_position=64)

Change = Callable[[Arguments], dict[str, object]]


@dataclasses.dataclass(frozen=True)
class Error:
    """A legal call made illegal, and the arguments of which the message must
    name one."""

    what: str
    names: tuple[str, ...]
    change: Change


def tensor(a: Arguments, name: str) -> torch.Tensor:
    x = getattr(a, name)
    assert x is not None
    return x


def wrong_dtype(name: str, dtype: torch.dtype) -> Error:
    return Error(f"{name} is {dtype}", (name,), lambda a: {name: tensor(a, name).to(dtype)})


def wrong_rank(name: str, more: bool) -> Error:
    return Error(
        f"{name} has {'one more' if more else 'one fewer'} dimension",
        (name,),
        lambda a: {name: tensor(a, name)[None] if more else tensor(a, name)[0]},
    )


def wrong_size(name: str, dim: int, more: int) -> Error:
    """A dimension a little larger or smaller than it must be."""

    def change(a: Arguments) -> dict[str, object]:
        x = tensor(a, name)
        shape = list(x.shape)
        shape[dim] += more
        return {name: torch.zeros(shape, dtype=x.dtype, device=x.device)}

    return Error(f"{name}'s dimension {dim} is off by {more:+d}", (name,), change)


def spread(name: str, dim: int = -1) -> Error:
    """The values of a dimension two elements apart."""

    def change(a: Arguments) -> dict[str, object]:
        x = tensor(a, name)
        shape = list(x.shape)
        shape[dim] *= 2
        wide = torch.zeros(shape, dtype=x.dtype, device=x.device)
        slices = [slice(None)] * x.dim()
        slices[dim] = slice(None, None, 2)
        return {name: wide[tuple(slices)].copy_(x)}

    return Error(f"{name} has stride 2 in dimension {dim}", (name,), change)


def repeated(name: str, dim: int) -> Error:
    """A written tensor in which all indices of a dimension are one memory."""
    return Error(
        f"{name} overlaps itself in dimension {dim}",
        (name,),
        lambda a: {name: tensor(a, name).narrow(dim, 0, 1).expand(tensor(a, name).shape)},
    )


def half_overlapped(name: str) -> Error:
    """Heads that lie half a head apart."""

    def change(a: Arguments) -> dict[str, object]:
        x = tensor(a, name)
        strides = (x.shape[1] * HEAD_DIM, HEAD_DIM // 2, 1)
        return {name: torch.zeros_like(x).contiguous().as_strided(x.shape, strides)}

    return Error(f"{name}'s heads overlap each other", (name,), change)


def with_sections(section: list[int]) -> Change:
    """M-RoPE by these sections, legal but for them."""
    return lambda a: {
        "mrope_section": section,
        "positions": a.positions.expand(3, TOKENS).contiguous(),
    }


def fp8(a: Arguments) -> dict[str, object]:
    """A legal quantized cache."""
    scale = torch.ones(1, device=a.q.device)
    return {
        "kv_cache": tensor(a, "kv_cache").to(torch.float8_e4m3fn),
        "k_scale": scale,
        "v_scale": scale,
    }


def as_cache(dtype: torch.dtype) -> Change:
    """A quantized cache of another dtype."""
    return lambda a: {**fp8(a), "kv_cache": tensor(a, "kv_cache").nan_to_num().to(dtype)}


def with_scale(name: str, scale: torch.Tensor) -> Change:
    """A quantized cache with another scale."""
    return lambda a: {**fp8(a), name: scale.to(a.q.device)}


def scale_in_cache(name: str) -> Change:
    """A quantized cache whose bytes are a scale's too."""

    def change(a: Arguments) -> dict[str, object]:
        given = fp8(a)
        cache = given["kv_cache"]
        assert isinstance(cache, torch.Tensor)
        given["kv_cache"] = cache = cache.contiguous()
        return {**given, name: cache.flatten()[:4].view(fp32)}

    return change


def lies_on(name: str, other: str, shift: int) -> Error:
    """An output whose bytes are an input's, moved by some elements."""

    def change(a: Arguments) -> dict[str, object]:
        x, under = tensor(a, name), tensor(a, other)
        strides = (
            under.stride()
            if under.dim() == x.dim()
            else tuple(torch.empty(x.shape, device="meta").stride())
        )
        begin = under.storage_offset() * under.element_size() // x.element_size() + shift
        flat = under.untyped_storage()
        view = torch.empty(0, dtype=x.dtype, device=x.device).set_(
            flat, begin, tuple(x.shape), strides
        )
        return {name: view}

    return Error(f"{name} lies on {other}, moved by {shift}", (name, other), change)


def given(what: str, names: str, **changes: object) -> Error:
    return Error(what, tuple(names.split()), lambda a: changes)


def _far_tokens(name: str) -> Change:
    """Tokens 2**31 elements apart, in memory that nobody touches."""

    def change(a: Arguments) -> dict[str, object]:
        x = tensor(a, name)
        size = 2 * ((TOKENS - 1) * 2**31 + x.shape[1] * HEAD_DIM)
        flat = torch.frombuffer(virtual_memory(size), dtype=x.dtype)
        return {name: flat.as_strided(x.shape, (2**31, HEAD_DIM, 1))}

    return change


def _far_heads(name: str) -> Change:
    """Heads further apart than a lane's offset from its wave's first head can be."""

    def change(a: Arguments) -> dict[str, object]:
        x = tensor(a, name)
        far = 2**27 + 8
        flat = torch.frombuffer(virtual_memory(2 * x.shape[1] * far), dtype=x.dtype)
        return {name: flat.as_strided(x.shape, (HEAD_DIM, far, 1))}

    return change


def _many_heads(a: Arguments) -> dict[str, object]:
    """More heads than a launch has waves for, in memory that nobody touches."""
    shape = (TOKENS, 65536, HEAD_DIM)
    flat = torch.frombuffer(virtual_memory(2 * TOKENS * 65536 * HEAD_DIM), dtype=bf16)
    return {"q": flat.view(shape), "q_out": None}


def _many_tokens(a: Arguments) -> dict[str, object]:
    """More tokens than a launch has threads for; of no heads, so without memory."""
    empty = tensor(a, "q").new_empty((2**25, 0, HEAD_DIM))
    positions = torch.frombuffer(virtual_memory(8 * 2**25), dtype=torch.int64)
    names = ("k", "v", "k_weight", "kv_cache", "q_out", "k_out", "v_out")
    return {"positions": positions, "q": empty} | dict.fromkeys(names)


def _many_slots(a: Arguments) -> dict[str, object]:
    """2**32 slots, of no heads: so many slots and no memory."""
    return {
        "kv_cache": tensor(a, "kv_cache").new_empty((2**28, 0, 16, 2 * HEAD_DIM)),
        "k": tensor(a, "k")[:, :0],
        "v": tensor(a, "v")[:, :0],
        "k_out": None,
        "v_out": None,
    }


def _far_rows(a: Arguments) -> dict[str, object]:
    """M-RoPE's rows of positions 2**29 elements apart."""
    flat = torch.frombuffer(virtual_memory(8 * (2 * 2**29 + TOKENS)), dtype=torch.int64)
    return {"mrope_section": [4, 6, 6], "positions": flat.as_strided((3, TOKENS), (2**29, 1))}


def _large_table(a: Arguments) -> dict[str, object]:
    """M-RoPE with a table of 2**32 bytes."""
    rot = tensor(a, "cos_sin_cache").shape[1]
    flat = torch.frombuffer(virtual_memory(2**32), dtype=bf16)
    return {**with_sections([4, 6, 6])(a), "cos_sin_cache": flat.view(-1, rot)}


QKV = ("q", "k", "v")
OUTPUTS = ("q_out", "k_out", "v_out")
TENSORS = (
    *("positions", *QKV, "cos_sin_cache", "q_weight", "k_weight"),
    *("kv_cache", "slot_mapping", *OUTPUTS),
)
NO_K = {"k": None, "v": None, "k_out": None, "v_out": None, "kv_cache": None}

ERRORS = [
    # dtypes
    wrong_dtype("positions", torch.int32),
    wrong_dtype("slot_mapping", torch.int32),
    *(wrong_dtype(name, fp32) for name in QKV),
    *(wrong_dtype(name, fp16) for name in ("k", "v", *OUTPUTS, "kv_cache")),
    wrong_dtype("kv_cache", torch.uint8),
    *(wrong_dtype("cos_sin_cache", dtype) for dtype in (fp16, fp32)),
    *(wrong_dtype("q_weight", dtype) for dtype in (fp16, torch.float64)),
    Error(
        "q_weight is fp32 and k_weight is not",
        ("q_weight", "k_weight"),
        lambda a: {"q_weight": tensor(a, "q_weight").float()},
    ),
    Error(
        "k_weight is fp32 and q_weight is not",
        ("q_weight", "k_weight"),
        lambda a: {"k_weight": tensor(a, "k_weight").float()},
    ),
    Error(
        "both weights are of the other 16-bit dtype",
        ("q_weight", "k_weight"),
        lambda a: {n: tensor(a, n).half() for n in ("q_weight", "k_weight")},
    ),
    # ranks
    *(
        wrong_rank(name, more)
        for name in (*QKV, *OUTPUTS, "cos_sin_cache", "q_weight", "k_weight")
        for more in (True, False)
    ),
    *(wrong_rank(name, more) for name in ("kv_cache", "slot_mapping") for more in (True, False)),
    wrong_rank("positions", more=False),
    # shapes
    Error("positions are [1, T]", ("positions",), lambda a: {"positions": a.positions[None]}),
    Error(
        "positions are [2, T]",
        ("positions",),
        lambda a: {"positions": a.positions.expand(2, -1).contiguous()},
    ),
    Error(
        "positions are [3, 1, T]",
        ("positions",),
        lambda a: {"positions": a.positions.expand(3, 1, -1).contiguous()},
    ),
    *(wrong_size("positions", 0, more) for more in (1, -1)),
    *(wrong_size(name, 0, more) for name in ("k", "v", *OUTPUTS) for more in (1, -1)),
    *(wrong_size(name, 1, more) for name in ("v", *OUTPUTS, "kv_cache") for more in (1, -1)),
    *(wrong_size(name, 2, more) for name in ("k", "v", *OUTPUTS) for more in (2, -32)),
    *(wrong_size(name, 0, more) for name in ("q_weight", "k_weight") for more in (1, -1)),
    *(wrong_size("kv_cache", 3, more) for more in (1, -1, HEAD_DIM, -HEAD_DIM)),
    wrong_size("slot_mapping", 0, 1),
    Error(
        "rot is odd",
        ("cos_sin_cache",),
        lambda a: {"cos_sin_cache": tensor(a, "cos_sin_cache")[:, :31].contiguous()},
    ),
    Error(
        "rot is 0",
        ("cos_sin_cache",),
        lambda a: {"cos_sin_cache": tensor(a, "cos_sin_cache")[:, :0].contiguous()},
    ),
    Error(
        "rot is larger than the head",
        ("cos_sin_cache",),
        lambda a: {"cos_sin_cache": a.q.new_zeros(64, HEAD_DIM + 2)},
    ),
    Error(
        "the table has no row",
        ("cos_sin_cache",),
        lambda a: {"cos_sin_cache": tensor(a, "cos_sin_cache")[:0]},
    ),
    Error(
        "the cache has blocks of no tokens",
        ("kv_cache",),
        lambda a: {"kv_cache": tensor(a, "kv_cache")[:, :, :0]},
    ),
    # strides
    *(spread(name) for name in ("positions", *QKV, *OUTPUTS, "kv_cache", "slot_mapping")),
    *(spread(name) for name in ("cos_sin_cache", "q_weight", "k_weight")),
    spread("cos_sin_cache", 0),
    Error(
        "the table's rows are padded",
        ("cos_sin_cache",),
        lambda a: {"cos_sin_cache": a.q.new_zeros(64, 40)[:, :32]},
    ),
    # one without the other
    given("q_weight without k_weight", "k_weight q_weight", k_weight=None),
    given("k_weight without q_weight", "q_weight k_weight", q_weight=None),
    given("k_weight without k", "k_weight k", **NO_K),
    Error(
        "k_out without k",
        ("k_out", "k"),
        lambda a: {**NO_K, "k_weight": None, "k_out": a.k_out},
    ),
    Error("v without k", ("v", "k"), lambda a: {**NO_K, "k_weight": None, "v": a.v}),
    Error(
        "v_out without k and v",
        ("v_out", "k", "v"),
        lambda a: {**NO_K, "k_weight": None, "v_out": a.v_out},
    ),
    given("v_norm without k and v", "v_norm k v", **NO_K, k_weight=None, v_norm=True),
    Error(
        "kv_cache without k",
        ("kv_cache", "k"),
        lambda a: {**NO_K, "k_weight": None, "kv_cache": a.kv_cache},
    ),
    given("v_out without v", "v_out v", v=None, kv_cache=None),
    given("kv_cache without v", "kv_cache v", v=None, v_out=None),
    given("v_norm without v", "v_norm v", v=None, v_out=None, kv_cache=None, v_norm=True),
    given("kv_cache without slot_mapping", "slot_mapping", slot_mapping=None),
    # values
    given("scaling by no context", "q_scale_orig_max", q_scale_beta=0.1, q_scale_orig_max=0),
    given("scaling by -1", "q_scale_orig_max", q_scale_beta=0.1, q_scale_orig_max=-1),
    given("scaling by -1, negative beta", "q_scale_orig_max", q_scale_beta=-0.1),
    # M-RoPE
    given("M-RoPE of one row of positions", "positions", mrope_section=[4, 6, 6]),
    given("interleaved without sections", "mrope_section", mrope_interleaved=True),
    *(
        Error(f"sections {section}", ("mrope_section",), with_sections(section))
        for section in ([], [16], [8, 8], [4, 6, 5], [4, 6, 7], [-1, 8, 9], [4, 6, 6, 0])
    ),
    Error("sections past 64 bits", ("mrope_section",), with_sections([16, 2**63 - 1, 2**63 - 1])),
    Error(
        "M-RoPE without a rotation",
        ("mrope_section", "cos_sin_cache"),
        lambda a: {**with_sections([4, 6, 6])(a), "cos_sin_cache": None},
    ),
    # a quantized cache
    Error("a scale of K, no fp8", ("k_scale",), lambda a: {"k_scale": a.q.new_ones(1).float()}),
    Error("a scale of V, no fp8", ("v_scale",), lambda a: {"v_scale": a.q.new_ones(1).float()}),
    Error("fp8 without K's scale", ("k_scale",), lambda a: {**fp8(a), "k_scale": None}),
    Error("fp8 without V's scale", ("v_scale",), lambda a: {**fp8(a), "v_scale": None}),
    *(
        Error(
            f"a cache of {dtype}", ("kv_cache", str(dtype).removeprefix("torch.")), as_cache(dtype)
        )
        for dtype in (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.uint8, torch.int8)
    ),
    *(
        Error(f"{what} as {name}", (name,), with_scale(name, scale))
        for name in ("k_scale", "v_scale")
        for what, scale in (
            ("two numbers", torch.ones(2)),
            ("no number", torch.ones(0)),
            ("fp64", torch.ones(1, dtype=torch.float64)),
            ("bf16", torch.ones(1, dtype=bf16)),
        )
    ),
    # overlaps
    *(
        Error(f"{name} lies in the cache", ("kv_cache", name), scale_in_cache(name))
        for name in ("k_scale", "v_scale")
    ),
    *(repeated(name, dim) for name in OUTPUTS for dim in (0, 1)),
    *(half_overlapped(name) for name in OUTPUTS),
    *(repeated("kv_cache", dim) for dim in (0, 1, 2)),
    *(
        lies_on(output, under, shift)
        for output, under in (("q_out", "q"), ("k_out", "k"), ("v_out", "v"))
        for shift in (1, HEAD_DIM, 4 * HEAD_DIM)
    ),
    *(lies_on(under, output, 1) for output, under in (("q_out", "q"), ("v_out", "v"))),
    *(lies_on("k_out", under, 0) for under in ("q", "v")),
    *(lies_on("q_out", under, 0) for under in ("cos_sin_cache", "kv_cache")),
    *(lies_on("k_out", under, 0) for under in ("q_weight", "positions", "slot_mapping")),
]

IN_PLACE_ERRORS = [
    *(repeated(name, dim) for name in ("q", "k") for dim in (0, 1)),
    *(half_overlapped(name) for name in ("q", "k")),
    lies_on("q", "k", HEAD_DIM // 2),
    lies_on("k", "v", 0),
    lies_on("k", "v", HEAD_DIM),
    lies_on("kv_cache", "v", 0),
    lies_on("kv_cache", "q", 8),
]

SIZE_ERRORS = [
    *(Error(f"{n}'s tokens lie 2**31 apart", (n,), _far_tokens(n)) for n in (*QKV, *OUTPUTS)),
    *(Error(f"{n}'s heads lie far apart", (n,), _far_heads(n)) for n in (*QKV, *OUTPUTS)),
    Error("2**25 tokens", ("q",), _many_tokens),
    Error("65536 heads", ("q",), _many_heads),
    Error("2**32 slots", ("kv_cache",), _many_slots),
    Error("M-RoPE's rows lie far apart", ("positions",), _far_rows),
    Error("M-RoPE with a large table", ("cos_sin_cache",), _large_table),
]


def case_with_outputs(outputs: str) -> Case:
    options = Options(outputs=frozenset(outputs), joined=False)
    return cases.build(FAMILY, TOKENS, bf16, options)


def assert_refused(case: Case, error: Error) -> None:
    illegal = case.arguments.replace(**error.change(case.arguments))
    case.memory.snapshot()
    with pytest.raises(RuntimeError) as raised:
        op.run(illegal)
    message = str(raised.value)
    assert any(re.search(rf"\b{name}\b", message) for name in error.names), message
    assert " got " in message or "overlap" in message or "more than" in message, message
    # One of torch's own: it would name the argument of the schema, but the op's
    # checks did not see the call.
    assert not isinstance(raised.value, NotImplementedError), message
    case.memory.assert_untouched_but([])


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: e.what)
def test_illegal_call_is_refused(error: Error) -> None:
    """sglang 35345: among them M-RoPE sections, and positions of other rows than one or three."""
    assert_refused(case_with_outputs("qkv"), error)


@pytest.mark.parametrize("error", IN_PLACE_ERRORS, ids=lambda e: e.what)
def test_illegal_call_in_place_is_refused(error: Error) -> None:
    assert_refused(case_with_outputs(""), error)


@pytest.mark.skipif(op.device().type != "cpu", reason="virtual memory of the CPU")
@pytest.mark.parametrize("error", SIZE_ERRORS, ids=lambda e: e.what)
def test_sizes_beyond_the_kernels_integers_are_refused(error: Error) -> None:
    assert_refused(case_with_outputs("qkv"), error)


@pytest.mark.parametrize("head_dim", [1, 2, 32, 80, 127, 129, 192, 576, 1024])
def test_head_dim_that_is_not_built_is_refused(head_dim: int) -> None:
    memory = Memory(op.device())
    q = memory.allocate("q", (2, 3, head_dim), bf16)
    positions = memory.allocate("positions", (2,), torch.int64, fill=0)
    memory.snapshot()
    with pytest.raises(RuntimeError, match=rf"\bq\b.*\b{head_dim}\b"):
        op.run(Arguments(positions=positions, q=q))
    memory.assert_untouched_but([])


@pytest.mark.skipif(op.device().type == "cpu", reason="needs a second device")
@pytest.mark.parametrize("name", TENSORS)
def test_tensors_on_two_devices_are_refused(name: str) -> None:
    error = Error(
        f"{name} is on the CPU", (name, "device"), lambda a: {name: tensor(a, name).cpu()}
    )
    assert_refused(case_with_outputs("qkv"), error)


@pytest.mark.parametrize("outputs", ["", "qkv"])
def test_the_calls_that_the_errors_change_are_legal(outputs: str) -> None:
    case_with_outputs(outputs).run_and_check()


def test_message_says_what_it_must_be_and_what_it_is() -> None:
    a = case_with_outputs("").arguments
    with pytest.raises(RuntimeError) as raised:
        op.run(a.replace(k=tensor(a, "k")[:3]))
    message = str(raised.value)
    assert "rdna35_rope_cache" in message
    assert str(TOKENS) in message and "3" in message


def test_head_major_tensors_are_checked_in_little_time() -> None:
    """K and V as the halves of [Hkv, T, 2, D]: legal, and no reason to compare every token with
    every other."""
    tokens, heads = 8192, 8
    kv = torch.randn(heads, tokens, 2, HEAD_DIM).to(bf16).to(op.device())
    k, v = (half.transpose(0, 1) for half in kv.unbind(2))
    q = torch.randn(tokens, 0, HEAD_DIM).to(bf16).to(op.device())
    positions = torch.arange(tokens, device=op.device())
    op.run(Arguments(positions=positions, q=q, k=k, v=v))  # loads what it needs
    start = time.process_time()
    op.run(Arguments(positions=positions, q=q, k=k, v=v))
    assert time.process_time() - start < 1.5
    crossing = kv.flatten()[HEAD_DIM // 2 :][: -2 * HEAD_DIM].as_strided(v.shape, v.stride())
    with pytest.raises(RuntimeError, match="overlap"):
        op.run(Arguments(positions=positions, q=q, k=k, v=crossing))
