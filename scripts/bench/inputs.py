"""Tensors of one measured case, as a decode step has them, on the GPU."""

import dataclasses
import functools

import torch

from scripts.bench.shapes import Shape

BLOCK_SIZE = 16
MAX_POSITIONS = 4096
EPS = 1e-6
K_SCALE, V_SCALE = 0.0311, 0.0173  # of an fp8 cache: no powers of two, nothing past its range
# From a row of M-RoPE's positions to the next: vLLM's buffer of 8192 tokens, and one more.
_POSITIONS_ROW = 8193
_SEQUENCES = 32  # at most; more tokens than that are several a sequence
_CACHE_BYTES = 2 << 30  # of the paged cache, where a case does not need more


@dataclasses.dataclass(frozen=True)
class Inputs:
    """One set of tensors: bf16, with int64 positions and slots [T]; M-RoPE's positions are [3, T].

    qkv [T, row]: Q (with its gates), K and V of a token in a row. q [T, Hq, D], k and v
    [T, Hkv, D] are views of it; q_out and k_out contiguous destinations. kv_cache
    [blocks, Hkv, 16, 2 * D], contiguous: K then V of a head; where it is fp8, k_scale and v_scale
    are fp32 [1].
    """

    shape: Shape
    positions: torch.Tensor
    qkv: torch.Tensor
    cos_sin_cache: torch.Tensor
    q_weight: torch.Tensor | None
    k_weight: torch.Tensor | None
    kv_cache: torch.Tensor
    k_scale: torch.Tensor | None
    v_scale: torch.Tensor | None
    slot_mapping: torch.Tensor
    q_out: torch.Tensor
    k_out: torch.Tensor
    moved: torch.Tensor  # destination of the floor that only moves bytes

    @property
    def tokens(self) -> int:
        """T."""
        return self.qkv.shape[0]

    @functools.cached_property
    def q(self) -> torch.Tensor:
        """[T, Hq, D], without the gates."""
        s = self.shape
        width = s.head_dim * (2 if s.gated else 1)
        return self.qkv[:, : s.num_q_heads * width].unflatten(1, (-1, width))[..., : s.head_dim]

    @functools.cached_property
    def k(self) -> torch.Tensor:
        """[T, Hkv, D]."""
        size = self.shape.num_kv_heads * self.shape.head_dim
        return self.qkv[:, -2 * size : -size].unflatten(1, (-1, self.shape.head_dim))

    @functools.cached_property
    def v(self) -> torch.Tensor:
        """[T, Hkv, D]."""
        size = self.shape.num_kv_heads * self.shape.head_dim
        return self.qkv[:, -size:].unflatten(1, (-1, self.shape.head_dim))


def first_tokens(inputs: Inputs, tokens: int) -> Inputs:
    """The same tensors, of the first tokens alone."""
    return dataclasses.replace(
        inputs,
        positions=inputs.positions[..., :tokens],
        qkv=inputs.qkv[:tokens],
        slot_mapping=inputs.slot_mapping[:tokens],
        q_out=inputs.q_out[:tokens],
        k_out=inputs.k_out[:tokens],
    )


def set_bytes(shape: Shape, tokens: int) -> int:
    """About how many bytes one set takes beside the cache."""
    read, written = shape.bytes_moved(tokens)
    rows = 24 * _POSITIONS_ROW if shape.mrope_section else 0
    return 2 * read + 2 * written + 2 * MAX_POSITIONS * shape.rot + rows


def split_positions(positions: torch.Tensor) -> torch.Tensor:
    """Positions [3, T] for M-RoPE of tokens [T], in rows as far apart as vLLM's: each token that
    of a frame, and another row and column."""
    tokens = positions.shape[0]
    held = positions.new_zeros((3, max(tokens + 1, _POSITIONS_ROW)))[:, :tokens]
    return held.copy_(torch.stack([positions, positions // 3 + 1, positions // 7 + 2]))


def make_weights(shape: Shape, device: torch.device) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The norm weights of Q and K [D], the same for every T and context; None without the norm."""
    if not shape.norm:
        return None
    random = torch.Generator(device).manual_seed(shape.head_dim)
    mean = 0.0 if shape.norm == "gemma" else 1.0
    both = mean + 0.2 * torch.randn((2, shape.head_dim), generator=random, device=device)
    return both[0].bfloat16(), both[1].bfloat16()


def make_sets(
    shape: Shape, tokens: int, context: int, count: int, device: torch.device
) -> list[Inputs]:
    """`count` sets of random tensors, each with memory and slots of its own, one cache for all.

    The tokens are of at most 32 sequences, each about `context` tokens long, whose blocks lie
    anywhere in the cache.
    """
    random = torch.Generator(device).manual_seed(20_000 + tokens + context)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=random, device=device).bfloat16()

    sequences = min(tokens, _SEQUENCES)
    each = -(-tokens // sequences)
    blocks_each = (context + BLOCK_SIZE + each) // BLOCK_SIZE + 1
    needed = sequences * blocks_each
    row = 2 * shape.head_dim
    dtype = torch.float8_e4m3fn if shape.fp8 else torch.bfloat16
    block_bytes = dtype.itemsize * shape.num_kv_heads * BLOCK_SIZE * row
    blocks = max(needed, min(count * needed, _CACHE_BYTES // block_bytes))
    kv_cache = torch.zeros(
        (blocks, shape.num_kv_heads, BLOCK_SIZE, row), dtype=dtype, device=device
    )
    k_scale, v_scale = (
        torch.tensor([scale], device=device) if shape.fp8 else None for scale in (K_SCALE, V_SCALE)
    )
    width = (
        shape.num_q_heads * (2 if shape.gated else 1) + 2 * shape.num_kv_heads
    ) * shape.head_dim
    q_weight, k_weight = make_weights(shape, device) or (None, None)
    exponents = torch.arange(0, shape.rot, 2, device=device) / shape.rot
    angles = torch.arange(MAX_POSITIONS, device=device)[:, None] * 1e4**-exponents
    table = torch.cat([angles.cos(), angles.sin()], -1).bfloat16()

    sets = []
    for _ in range(count):
        start = context + torch.randint(
            0, BLOCK_SIZE, (sequences, 1), generator=random, device=device
        )
        positions = (start + torch.arange(each, device=device)).flatten()[:tokens].contiguous()
        of_sequence = torch.arange(sequences, device=device).repeat_interleave(each)[:tokens]
        table_of_blocks = torch.randperm(blocks, generator=random, device=device)[:needed]
        block = table_of_blocks[of_sequence * blocks_each + positions // BLOCK_SIZE]
        _, written = shape.bytes_moved(tokens)
        sets.append(
            Inputs(
                shape=shape,
                positions=split_positions(positions) if shape.mrope_section else positions,
                qkv=normal(tokens, width),
                cos_sin_cache=table.clone(),
                q_weight=q_weight,
                k_weight=k_weight,
                kv_cache=kv_cache,
                k_scale=k_scale,
                v_scale=v_scale,
                slot_mapping=block * BLOCK_SIZE + positions % BLOCK_SIZE,
                q_out=normal(tokens, shape.num_q_heads, shape.head_dim),
                k_out=normal(tokens, shape.num_kv_heads, shape.head_dim),
                moved=torch.empty(written, dtype=torch.uint8, device=device),
            )
        )
    return sets
