"""The op's contract as a plain PyTorch model: what "right" means.

All arithmetic is fp32. `.to(dtype)` is a rounding point, and there is none but
those the contract states. Nothing here is fast, and nothing here is shared with
the kernel.
"""

import dataclasses

import torch

from tests.kernel.op import Arguments


@dataclasses.dataclass(frozen=True)
class Expected:
    """What the destinations hold after the op: new tensors on the CPU, of the
    inputs' own dtype, contiguous.

    q [T, Hq, D], k and v [T, Hkv, D] (v as the model would see it), cache
    [blocks, Hkv, block_size, 2 * D]; None for an argument that was not given.
    """

    q: torch.Tensor
    k: torch.Tensor | None
    v: torch.Tensor | None
    cache: torch.Tensor | None


def rope_cache(a: Arguments) -> Expected:
    """Models one call of the op; reads its arguments and changes none. Computes on
    the CPU, wherever they are.

    Two tokens with the same slot: the later one is taken (the contract allows
    either).
    """
    a = a.map_tensors(torch.Tensor.cpu)
    position = a.positions if a.positions.dim() == 1 else a.positions[0]

    q = a.q.clone()
    k = None if a.k is None else a.k.clone()
    v = None if a.v is None else a.v.clone()

    if a.q_weight is not None:
        q = rms_norm(q, a.q_weight, a.weight_offset, a.eps)
    if k is not None and a.k_weight is not None:
        k = rms_norm(k, a.k_weight, a.weight_offset, a.eps)
    if v is not None and a.v_norm:
        v = rms_norm(v, None, 0.0, a.eps)

    if a.cos_sin_cache is not None:
        if a.mrope_section is None:
            row = cos_sin_row(position, a.pos_offset, a.cos_sin_cache.shape[0])
            cos, sin = a.cos_sin_cache[row].float().chunk(2, dim=-1)
        else:
            cos, sin = mrope_cos_sin(a)
        q = rotate(q, cos, sin, a.is_neox)
        k = None if k is None else rotate(k, cos, sin, a.is_neox)

    if a.q_scale_beta != 0:
        scale = llama4_scale(position, a.q_scale_beta, a.q_scale_orig_max)
        q = (q.float() * scale[:, None, None]).to(q.dtype)

    cache = None
    if a.kv_cache is not None:
        assert k is not None and v is not None and a.slot_mapping is not None
        cache = a.kv_cache.clone(memory_format=torch.contiguous_format)
        if a.k_scale is not None and a.v_scale is not None:
            k_stored = quantize(k, a.k_scale, cache.dtype)
            v_stored = quantize(v, a.v_scale, cache.dtype)
        else:
            k_stored, v_stored = k, v
        write_cache(cache, k_stored, v_stored, a.slot_mapping)
    return Expected(q, k, v, cache)


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None, weight_offset: float, eps: float
) -> torch.Tensor:
    """RMSNorm of x [..., D] with a weight [D] or none; returns x's dtype."""
    x32 = x.float()
    head_dim = x.shape[-1]
    normed = x32 * torch.rsqrt(x32.square().sum(-1, keepdim=True) / head_dim + eps)
    if weight is None:
        return normed.to(x.dtype)
    if weight.dtype == x.dtype and weight_offset == 0:
        return (normed.to(x.dtype).float() * weight.float()).to(x.dtype)
    return (normed * (weight_offset + weight.float())).to(x.dtype)


def cos_sin_row(position: torch.Tensor, pos_offset: int, rows: int) -> torch.Tensor:
    """The table row of each position [T], clamped into the table. Python
    integers, so that nothing overflows."""
    row = [min(max(p + pos_offset, 0), rows - 1) for p in position.tolist()]
    return torch.tensor(row, dtype=torch.int64)


def mrope_cos_sin(a: Arguments) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin fp32 [T, rot / 2] of M-RoPE: each pair's of the row of positions [3, T]
    that its section takes."""
    assert a.cos_sin_cache is not None and a.mrope_section is not None
    by_row = [
        a.cos_sin_cache[cos_sin_row(position, a.pos_offset, a.cos_sin_cache.shape[0])]
        for position in a.positions
    ]
    halves = [half.float() for half in torch.stack(by_row).chunk(2, dim=-1)]
    t, h, w = a.mrope_section
    if a.mrope_interleaved:
        taken = [0] * (t + h + w)
        taken[1 : 3 * h : 3] = [1] * len(taken[1 : 3 * h : 3])
        taken[2 : 3 * w : 3] = [2] * len(taken[2 : 3 * w : 3])
    else:
        taken = [0] * t + [1] * h + [2] * w
    cos, sin = (
        torch.stack([half[row, :, pair] for pair, row in enumerate(taken)], dim=-1)
        for half in halves
    )
    return cos, sin


def quantize(x: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """x / scale, an fp32 quotient, to the nearest of an 8-bit float; past its range its ends."""
    largest = torch.finfo(dtype).max
    return (x.float() / scale.float()).clamp(-largest, largest).to(dtype)


def rotate(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, is_neox: bool = True
) -> torch.Tensor:
    """RoPE of the first 2 * half elements of x [T, H, D], by cos and sin fp32
    [T, half]; the other elements are bit copies. Pairs are (i, i + half), or
    (2i, 2i + 1) if not NeoX."""
    half = cos.shape[-1]
    first = slice(0, half) if is_neox else slice(0, 2 * half, 2)
    second = slice(half, 2 * half) if is_neox else slice(1, 2 * half, 2)
    a, b = x[..., first].float(), x[..., second].float()
    cos, sin = cos[:, None], sin[:, None]
    rotated = x.clone()
    rotated[..., first] = (a * cos - b * sin).to(x.dtype)
    rotated[..., second] = (b * cos + a * sin).to(x.dtype)
    return rotated


def llama4_scale(position: torch.Tensor, beta: float, orig_max: int) -> torch.Tensor:
    """Llama 4's attention scale of each position [T], fp32."""
    times = torch.div(position.clamp(min=0), orig_max, rounding_mode="floor")
    return 1 + beta * torch.log(1 + times.float())


def write_cache(
    cache: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slot_mapping: torch.Tensor
) -> None:
    """Writes K then V of each mapped token into its slot of the packed cache;
    a slot outside the cache is not written."""
    blocks, _, block_size, _ = cache.shape
    for token, slot in enumerate(slot_mapping.tolist()):
        if 0 <= slot < blocks * block_size:
            row = torch.cat([k[token], v[token]], dim=-1)
            cache[slot // block_size, :, slot % block_size] = row
