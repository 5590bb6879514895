"""Where the op reads and writes: layouts, slots, positions, outputs, and what
the host cannot see. The bytes around and between all tensors are guarded; slots
that no token has and the rows beyond the cos/sin table hold NaN."""

import itertools
import mmap
from collections.abc import Iterator

import pytest
import torch

from tests.kernel import cases, compare, op
from tests.kernel.cases import Case, Options
from tests.kernel.families import BY_NAME, Family
from tests.kernel.memory import Memory
from tests.kernel.op import Arguments
from tests.kernel.reference import rope_cache
from tests.kernel.rope_tables import Rope, cos_sin_table

bf16, fp16 = torch.bfloat16, torch.float16
SMALL = Family("small", 3, 2, 64, Rope(32, rows=64), norm="rms", max_position=64)
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)


@pytest.mark.parametrize("block_size", [1, 2, 16, 544, 784, 1056])
@pytest.mark.parametrize("layout", cases.LAYOUTS)
@pytest.mark.parametrize("num_kv_heads", [1, 2])
def test_cache_layouts(layout: str, block_size: int, num_kv_heads: int) -> None:
    family = Family("layout", 4, num_kv_heads, 128, Rope(128), norm="rms")
    for block_pad, shift in ((0, 0), (64, 0), (8, 8), (3, 5)):
        options = Options(block_size=block_size, layout=layout, block_pad=block_pad, shift=shift)
        cases.build(family, 21, bf16, options, seed=block_size).run_and_check()


@pytest.mark.parametrize("layout", cases.LAYOUTS)
def test_a_layout_is_not_read_as_another_where_all_its_sizes_are_two(layout: str) -> None:
    """vLLM 51722: with 2 KV heads, the layout was taken for one that has K and V apart."""
    family = Family("two", 4, 2, 64, Rope(64), norm="rms")
    case = cases.build(family, 3, bf16, Options(cache=False))
    cache = cases.paged_cache(case.memory, (2, 2, 2, 128), bf16, layout)
    slots = torch.tensor([2, 1, 3], device=op.device())
    case.arguments = case.arguments.replace(kv_cache=cache, slot_mapping=slots)
    case.run_and_check()


@pytest.mark.parametrize("head_dim", op.HEAD_DIMS)
@pytest.mark.parametrize("outputs", ["", "q", "k", "v", "qk", "qv", "kv", "qkv"])
def test_outputs_leave_inputs_untouched(outputs: str, head_dim: int) -> None:
    family = Family("outputs", 5, 3, head_dim, Rope(32), norm="rms", v_norm=True)
    for joined in (True, False):
        options = Options(outputs=frozenset(outputs), joined=joined, head_pad=8)
        cases.build(family, 7, fp16, options).run_and_check()


def test_output_that_is_exactly_the_input() -> None:
    case = cases.build(BY_NAME["qwen3"], 9, bf16)
    a = case.arguments
    case.arguments = a.replace(q_out=a.q, k_out=a.k)
    case.run_and_check()


def test_outputs_are_disjoint_heads_of_one_row() -> None:
    case = cases.build(BY_NAME["gemma4-sliding"], 9, bf16, Options(joined=False))
    a = case.arguments
    row = case.memory.allocate("out_row", (9, 10, 256), bf16)
    case.arguments = a.replace(q_out=row[:, 2:], k_out=row[:, 1:2], v_out=row[:, 0:1])
    case.run_and_check()


def test_outputs_in_the_inputs_own_row() -> None:
    """q goes to spare heads of the row that q, k and v come from."""
    memory = Memory(op.device())
    row = memory.allocate("row", (6, 10, 64), bf16)
    row.copy_(torch.randn(6, 10, 64))
    case = cases.build(SMALL, 6, bf16)
    a = case.arguments.replace(q=row[:, 0:3], k=row[:, 3:5], v=row[:, 5:7], q_out=row[:, 7:10])
    Case(a, memory).run_and_check()


@pytest.mark.parametrize("shift", [0, 1, 4, 8])
def test_gate_between_the_heads_of_q_is_untouched(shift: int) -> None:
    """The gates are guarded like everything that is not q, k or v."""
    for tokens in (1, 5):
        options = Options(shift=shift, row_pad=shift)
        case = cases.build(BY_NAME["qwen3.5"], tokens, bf16, options)
        assert case.arguments.q.stride(1) == 512
        case.run_and_check()


def test_gate_is_untouched_with_separate_rows() -> None:
    cases.build(BY_NAME["qwen3.5"], 5, fp16, Options(joined=False)).run_and_check()


@pytest.mark.parametrize("slots_mapped", [0, 1, 8, 11, 12])
def test_tokens_past_slot_mapping_are_rotated_not_written(slots_mapped: int) -> None:
    """vLLM 43355: a padded graph has more tokens than slots."""
    case = cases.build(SMALL, 12, bf16, Options(slots_mapped=slots_mapped))
    case.run_and_check()
    assert len(cases.cache_rows(case.arguments)) == slots_mapped


@pytest.mark.parametrize(
    "slot",
    [-1, -2, -16, INT64_MIN, INT64_MIN + 5, -(2**31), -(2**32), -(2**32) + 3],
)
def test_negative_slots_are_not_written(slot: int) -> None:
    """vLLM 43810: padding's -1, taken for an index, is a place before the cache."""
    case = cases.build(SMALL, 12, bf16)
    assert case.arguments.slot_mapping is not None
    case.arguments.slot_mapping[::2] = slot
    case.run_and_check()
    assert len(cases.cache_rows(case.arguments)) == 6


@pytest.mark.parametrize("block_size", [1, 16, 544])
@pytest.mark.parametrize(
    "beyond",
    [0, 1, 7, 2**31 - 40, 2**31, 2**32 - 1, 2**32, 2**32 + 5, 2**40, INT64_MAX],
)
def test_slots_beyond_the_cache_are_not_written(beyond: int, block_size: int) -> None:
    """Among them such as name a valid slot if their upper 32 bits are dropped."""
    case = cases.build(SMALL, 12, bf16, Options(block_size=block_size))
    a = case.arguments
    assert a.kv_cache is not None and a.slot_mapping is not None
    slots = a.kv_cache.shape[0] * block_size
    a.slot_mapping[::2] = min(slots + beyond, INT64_MAX)
    a.slot_mapping[2] = min(beyond, INT64_MAX) if beyond >= slots else -1
    case.run_and_check()


@pytest.mark.parametrize("block_size", [1, 3, 7, 16, 100, 544, 784, 1056])
def test_every_slot_of_a_cache_is_reached(block_size: int) -> None:
    """Slot by slot: the division by the block size is exact. The blocks are padded:
    in one run of slots a token of the wrong block would still be in its place."""
    blocks = max(2, 2200 // block_size)
    slots = blocks * block_size
    family = Family("slots", 1, 1, 64, None)
    case = cases.build(family, slots, bf16, Options(cache=False))
    shape = (blocks, 1, block_size, 128)
    cache = cases.paged_cache(case.memory, shape, bf16, "LBNHC", block_pad=24)
    order = torch.randperm(slots, generator=torch.Generator().manual_seed(1))
    case.arguments = case.arguments.replace(kv_cache=cache, slot_mapping=order.to(op.device()))
    a = case.arguments
    assert a.k is not None and a.v is not None
    op.run(a)
    expected = torch.empty(slots, 128, dtype=bf16)
    expected[order] = torch.cat([a.k[:, 0], a.v[:, 0]], dim=-1).cpu()
    written = cache.permute(0, 2, 1, 3).reshape(slots, 1, 128)
    compare.assert_same_bits("cache", written, expected[:, None])


@pytest.mark.parametrize(
    ("position", "pos_offset"),
    [
        (64, 0),
        (-1, 0),
        (10**6, 0),
        (INT64_MAX, 0),
        (INT64_MIN, 0),
        (INT64_MAX, INT64_MAX),
        (INT64_MIN, INT64_MIN),
        (INT64_MAX, INT64_MIN),
        (INT64_MIN, INT64_MAX),
        (INT64_MAX, -INT64_MAX + 5),
        (INT64_MIN, INT64_MAX - 5),
        (INT64_MAX - 3, 10),
        (0, INT64_MAX),
        (0, INT64_MIN),
        (5, -5),
        (5, -6),
        (-7, 10),
        (2**32 + 3, 0),
        (2**32 + 3, -(2**32)),
        (-(2**32) + 3, 0),
        (2**40 + 9, -(2**40)),
    ],
)
def test_rows_beyond_the_table_are_clamped(position: int, pos_offset: int) -> None:
    case = cases.build(SMALL, 6, bf16, seed=2)
    case.arguments.positions[1::2] = position
    case.arguments = case.arguments.replace(pos_offset=pos_offset)
    case.run_and_check()


@pytest.mark.parametrize("position", [-1, -(10**9), INT64_MIN, 3, 10**9, INT64_MAX])
@pytest.mark.parametrize("orig_max", [1, 1000, 16384, 2**31, INT64_MAX])
def test_scale_follows_the_position_without_the_offset(position: int, orig_max: int) -> None:
    case = cases.build(SMALL, 6, bf16, seed=2)
    case.arguments.positions[::2] = position
    case.arguments = case.arguments.replace(
        q_scale_beta=0.3, q_scale_orig_max=orig_max, pos_offset=40
    )
    case.run_and_check()


def test_table_of_one_row() -> None:
    family = Family("row", 2, 2, 64, Rope(64, rows=1), max_position=64)
    cases.build(family, 8, fp16).run_and_check()


PARTIAL = [(96, rot) for rot in (2, 4, 6, 30, 32, 34, 62, 64, 78, 94, 96)]
PARTIAL += [(d, rot) for d in (64, 128, 256, 512) for rot in (2, 16, 30, 64, 78, 250) if rot < d]


@pytest.mark.parametrize(("head_dim", "rot"), PARTIAL)
def test_partial_rotations_leave_the_rest_alone(head_dim: int, rot: int) -> None:
    """vLLM 51049 and 57681: the rotation ends anywhere among a head's lanes."""
    for norm, (shift, outputs) in itertools.product(("", "rms", "gemma"), ((0, "qkv"), (1, ""))):
        family = Family("partial", 3, 2, head_dim, Rope(rot, rows=128), norm, max_position=128)
        options = Options(shift=shift, outputs=frozenset(outputs))
        cases.build(family, 17, bf16, options).run_and_check()


@pytest.mark.parametrize("norm", ["", "rms"])
@pytest.mark.parametrize("head_dim", op.HEAD_DIMS)
def test_a_narrow_table_is_read_in_the_tokens_row_alone(head_dim: int, norm: str) -> None:
    """vLLM 43676: a kernel that takes the whole head for the rotated part reads past a narrow row.
    All other rows are NaN, as is what lies behind the table."""
    rows = 5
    for rot, row in itertools.product((16, head_dim // 2), (3, rows - 1)):
        rope = Rope(rot, rows=rows)
        table = torch.full((rows, rot), float("nan"), dtype=bf16)
        table[row] = cos_sin_table(rope, bf16)[row]
        family = Family("narrow", 3, 2, head_dim, rope, norm, max_position=rows)
        case = cases.build(family, 7, bf16, table=table)
        case.arguments.positions.fill_(row)
        case.run_and_check()
        assert not cases.q_of(case.arguments).isnan().any()


def test_row_0_of_three_is_used() -> None:
    case = cases.build(BY_NAME["qwen3-vl-decode"], 11, bf16)
    a = case.arguments
    expected = rope_cache(a)
    a.positions[1:] = INT64_MAX
    op.run(a)
    cases.check(a, expected)


def virtual_memory(size: int) -> mmap.mmap:
    """Zeroed bytes that take memory only where they are touched."""
    no_reserve = 0x4000  # Linux's MAP_NORESERVE, which Python's module lacks
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
    return mmap.mmap(-1, size, flags=flags)


@pytest.fixture
def sparse_elements() -> Iterator[torch.Tensor]:
    """More than 2**32 bf16 elements of memory that exists where it is touched
    (on a GPU, of real memory)."""
    count = 2**32 + 2**25
    if op.device().type == "cuda":
        yield torch.zeros(count, dtype=bf16, device=op.device())
        return
    yield torch.frombuffer(virtual_memory(2 * count), dtype=bf16)


@pytest.mark.parametrize("layout", ["LBNHC", "LBHNC", "LHBNC"])
def test_cache_of_more_elements_than_32_bits_count(
    sparse_elements: torch.Tensor, layout: str
) -> None:
    """Rows whose element offsets lie around 2**31 and 2**32 arrive there and
    not where a truncated offset points to."""
    heads, block_size, content = 2, 16, 128
    blocks = sparse_elements.numel() // (heads * block_size * content)
    sizes = {"L": 1, "B": blocks, "H": heads, "N": block_size, "C": content}
    stride, step = {}, 1
    for axis in reversed(layout):
        stride[axis], step = step, step * sizes[axis]
    cache = sparse_elements.as_strided(
        (blocks, heads, block_size, content), tuple(stride[a] for a in "BHNC")
    )
    row_elements = heads * content
    wanted = [
        0,
        2**31 // row_elements - 1,
        2**31 // row_elements,
        2**31 // row_elements + 17,
        2**32 // row_elements - 1,
        2**32 // row_elements,
        2**32 // row_elements + 33,
        blocks * block_size - 1,
    ]
    a = cases.build(SMALL, len(wanted), bf16, Options(cache=False)).arguments
    slots = torch.tensor(wanted, dtype=torch.int64, device=op.device())
    expected = rope_cache(a)
    op.run(a.replace(kv_cache=cache, slot_mapping=slots))
    assert expected.k is not None and expected.v is not None
    for token, slot in enumerate(wanted):
        row = cache[slot // block_size, :, slot % block_size]
        compare.assert_close(f"K of slot {slot}", row[None, :, :64], expected.k[[token]])
        compare.assert_same_bits(f"V of slot {slot}", row[None, :, 64:], expected.v[[token]])
        row.zero_()
        for head, bits in itertools.product(range(heads), (31, 32)):
            at = row[head].storage_offset() % 2**bits
            leak = sparse_elements[at : at + content]
            assert not leak.any(), f"slot {slot}: written at its offset modulo 2**{bits}"


@pytest.mark.skipif(op.device().type != "cpu", reason="half a TiB of virtual memory")
@pytest.mark.parametrize("block_size", [1, 3, 7, 16, 544, 784, 1056, 2**20 + 1])
def test_blocks_of_the_largest_slots(block_size: int) -> None:
    """Up to 2**31 slots, around the ends of blocks; the blocks are padded."""
    blocks = (2**31 - 1) // block_size
    block_stride = block_size * 128 + 8
    memory = torch.frombuffer(virtual_memory(2 * blocks * block_stride), dtype=bf16)
    cache = memory.as_strided((blocks, 1, block_size, 128), (block_stride, 0, 128, 1))
    random = torch.Generator().manual_seed(block_size)
    chosen = torch.randint(0, blocks, (20,), generator=random).tolist()
    ends = [block * block_size for block in (1, blocks - 2, blocks - 1, *chosen)]
    slots = sorted({slot for end in ends for slot in (end - 1, end)} | {blocks * block_size - 1})
    family = Family("ends", 1, 1, 64, None)
    a = cases.build(family, len(slots), bf16, Options(cache=False)).arguments
    assert a.k is not None and a.v is not None
    op.run(a.replace(kv_cache=cache, slot_mapping=torch.tensor(slots)))
    for token, slot in enumerate(slots):
        row = cache[slot // block_size, :, slot % block_size]
        expected = torch.cat([a.k[token], a.v[token]], dim=-1)
        compare.assert_same_bits(f"row of slot {slot}", row[None], expected[None])


@pytest.mark.parametrize("tokens", [2, 33])
def test_two_tokens_with_one_slot_damage_nothing_else(tokens: int) -> None:
    case = cases.build(SMALL, tokens, bf16)
    a = case.arguments
    assert a.slot_mapping is not None and a.kv_cache is not None
    a.slot_mapping[tokens - 1] = a.slot_mapping[0]
    expected = case.run()
    case.memory.assert_untouched_but(case.written())
    assert expected.k is not None and expected.v is not None
    slot = int(a.slot_mapping[0])
    block_size = a.kv_cache.shape[2]
    row = a.kv_cache[slot // block_size, :, slot % block_size]
    writers = torch.stack(
        [torch.cat([cases.k_of(a)[t].cpu(), expected.v[t]], -1) for t in (0, tokens - 1)]
    )
    assert (row.cpu() == writers).any(0).all(), "an element is of neither token"


def empty_cases() -> list[tuple[str, Family, int, Options]]:
    qk = Family("empty", 0, 2, 64, Rope(64), norm="rms")
    plain = Options()
    return [
        ("no tokens", SMALL, 0, plain),
        ("no tokens, outputs", SMALL, 0, Options(outputs=frozenset("qkv"))),
        ("no query heads", qk, 5, plain),
        ("no query heads, outputs", qk, 5, Options(outputs=frozenset("qkv"))),
        ("no slots", SMALL, 5, Options(slots_mapped=0)),
        ("no cache", SMALL, 5, Options(cache=False)),
        ("no V", SMALL, 5, Options(cache=False, v=False)),
        ("one of each", Family("one", 1, 1, 64, Rope(2)), 1, Options(block_size=1)),
    ]


@pytest.mark.parametrize(
    ("family", "tokens", "options"),
    [case[1:] for case in empty_cases()],
    ids=[case[0] for case in empty_cases()],
)
def test_empty_and_absent(family: Family, tokens: int, options: Options) -> None:
    cases.build(family, tokens, bf16, options).run_and_check()


def test_no_key_heads() -> None:
    """k and v of 0 heads with a cache of 0 heads."""
    memory = Memory(op.device())
    case = cases.build(SMALL, 5, bf16, Options(cache=False))
    a = case.arguments
    assert a.k is not None and a.v is not None
    cache = memory.allocate("kv_cache", (3, 0, 16, 128), bf16)
    slots = memory.allocate("slot_mapping", (5,), torch.int64, fill=2)
    case.arguments = a.replace(k=a.k[:, :0], v=a.v[:, :0], kv_cache=cache, slot_mapping=slots)
    case.run_and_check()


def test_cache_of_no_blocks() -> None:
    case = cases.build(SMALL, 5, bf16)
    assert case.arguments.kv_cache is not None
    case.arguments = case.arguments.replace(kv_cache=case.arguments.kv_cache[:0])
    case.run_and_check()


def test_empty_table_is_legal_without_tokens() -> None:
    case = cases.build(SMALL, 0, bf16)
    assert case.arguments.cos_sin_cache is not None
    empty = case.arguments.cos_sin_cache[:0]
    case.arguments = case.arguments.replace(cos_sin_cache=empty)
    case.run_and_check()


def test_slot_mapping_is_ignored_without_a_cache() -> None:
    case = cases.build(SMALL, 5, bf16)
    case.arguments = case.arguments.replace(kv_cache=None)
    case.run_and_check()


@pytest.mark.parametrize("norm", ["", "rms"])
@pytest.mark.parametrize("outputs", ["", "q"])
def test_query_alone(norm: str, outputs: str) -> None:
    family = Family("query", 5, 0, 128, Rope(96), norm=norm)
    options = Options(outputs=frozenset(outputs))
    case = cases.build(family, 19, fp16, options)
    assert case.arguments.k is None
    case.run_and_check()


@pytest.mark.parametrize(("num_q_heads", "num_kv_heads"), [(14, 2), (7, 7), (1, 5), (71, 1)])
@pytest.mark.parametrize("head_dim", op.HEAD_DIMS)
def test_head_counts(head_dim: int, num_q_heads: int, num_kv_heads: int) -> None:
    for norm in ("", "gemma"):
        family = Family("heads", num_q_heads, num_kv_heads, head_dim, Rope(head_dim), norm)
        cases.build(family, 3, bf16).run_and_check()


def test_more_tokens_than_16_bits_count() -> None:
    tokens = 2**16 + 77
    family = Family("long", 1, 1, 64, Rope(8, rows=64), max_position=64)
    a = cases.build(family, tokens, bf16, Options(cache=False)).arguments
    expected = rope_cache(a)
    op.run(a)
    cases.check(a, expected)


def test_view_with_strides_in_any_order() -> None:
    """Heads outermost in memory, tokens inside."""
    memory = Memory(op.device())
    a = cases.build(SMALL, 6, bf16).arguments

    def turned(name: str, x: torch.Tensor) -> torch.Tensor:
        strides = (x.shape[2], x.shape[0] * x.shape[2], 1)
        copy = memory.allocate(name, tuple(x.shape), x.dtype, strides)
        return copy.copy_(x)

    assert a.k is not None and a.v is not None
    turned_arguments: Arguments = a.replace(
        q=turned("q", a.q), k=turned("k", a.k), v=turned("v", a.v), kv_cache=None
    )
    Case(turned_arguments, memory).run_and_check()
