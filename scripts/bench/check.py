"""Whether a variant computes what the op's contract says, before it is timed."""

import torch

from scripts.bench.inputs import BLOCK_SIZE, EPS, Inputs
from scripts.errors import Fault


def expected(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Q [T, Hq, D] and the cache's rows [T, Hkv, 2 * D] by a plain fp32 model, as bf16: for an fp8
    cache, before they are divided by the scales."""
    q, k = inputs.q, inputs.k
    if inputs.q_weight is not None and inputs.k_weight is not None:
        q = _normed(inputs, q, inputs.q_weight)
        k = _normed(inputs, k, inputs.k_weight)
    return _rotated(inputs, q), torch.cat([_rotated(inputs, k), inputs.v], -1)


def _normed(inputs: Inputs, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x32 = x.float()
    y = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + EPS)
    if inputs.shape.norm == "gemma":
        return (y * (1.0 + weight.float())).bfloat16()
    return (y.bfloat16().float() * weight.float()).bfloat16()


def _rotated(inputs: Inputs, x: torch.Tensor) -> torch.Tensor:
    rot = inputs.shape.rot
    half = rot // 2
    rows = inputs.cos_sin_cache[inputs.positions].float()
    cos, sin = (_of_sections(inputs, one)[:, None] for one in rows.chunk(2, -1))
    pairs = x[..., :rot].float().unflatten(-1, (2, half) if inputs.shape.is_neox else (half, 2))
    axis = -2 if inputs.shape.is_neox else -1
    first, second = pairs.unbind(axis)
    turned = torch.stack([first * cos - second * sin, second * cos + first * sin], axis)
    return torch.cat([turned.flatten(-2).bfloat16(), x[..., rot:]], -1)


def _of_sections(inputs: Inputs, x: torch.Tensor) -> torch.Tensor:
    """cos or sin [T, rot / 2] of each pair's own position, from [3, T, rot / 2] for M-RoPE."""
    section = inputs.shape.mrope_section
    if section is None:
        return x
    t, h, w = section
    if inputs.shape.mrope_interleaved:
        limits = (0, 3 * h, 3 * w)
        taken = [pair % 3 if pair < limits[pair % 3] else 0 for pair in range(t + h + w)]
    else:
        taken = [0] * t + [1] * h + [2] * w
    return torch.stack([x[row, :, pair] for pair, row in enumerate(taken)], -1)


def poison(inputs: Inputs) -> None:
    """Fills every destination with NaN."""
    for tensor in (inputs.q_out, inputs.k_out, inputs.kv_cache):
        # As bytes: all ones are a NaN of either dtype.
        tensor.view(torch.uint8).fill_(0xFF)


def verify(
    variant: str,
    inputs: Inputs,
    q: torch.Tensor,
    k: torch.Tensor | None,
    want: tuple[torch.Tensor, torch.Tensor],
    units: float,
) -> None:
    """Compares q, k (None: the variant gives none) and the cache's rows with what is `expected`.

    `units` of the last place of each head's largest value are allowed. Raises Fault with the
    largest difference.
    """
    want_q, want_rows = want
    slots = inputs.slot_mapping
    as_bytes = inputs.kv_cache.view(torch.uint8)[slots // BLOCK_SIZE, :, slots % BLOCK_SIZE]
    rows = as_bytes.view(inputs.kv_cache.dtype)
    want_k, want_v = want_rows.chunk(2, -1)
    rows_k, rows_v = rows.chunk(2, -1)
    results = [
        ("q", q, want_q, None),
        ("the cache's k", rows_k, want_k, inputs.k_scale),
        ("the cache's v", rows_v, want_v, inputs.v_scale),
    ]
    if k is not None:
        results.append(("k", k, want_k, None))
    for name, got, right, scale in results:
        worst = distance(got.reshape(right.shape), right, scale)
        if not worst <= units:
            raise Fault(
                f"{variant} is not timed: {name} of {inputs.shape.name} at T = {inputs.tokens} is "
                f"{worst:.1f} units in the last place from the fp32 model, at most {units} allowed"
            )


def distance(got: torch.Tensor, want: torch.Tensor, scale: torch.Tensor | None = None) -> float:
    """The largest difference of two bf16 tensors, in units of the last place of the largest value
    of each head (the last dimension); NaN where there is one. With a scale, `got` is fp8, and what
    rounding to it may make of a value, half a step, is no difference."""
    difference = (got.float() - want.float()).abs()
    if scale is not None:
        value = got.float()
        # Of e4m3: 3 bits, the smallest exponent -6. A little more, for a quotient's own rounding.
        step = torch.exp2(torch.floor(torch.log2(value.abs().clamp(min=2.0**-6))) - 3)
        difference = (value * scale - want.float()).abs() - 0.501 * step * scale
    largest = want.float().abs().amax(-1, keepdim=True).clamp(min=2.0**-100)
    unit = torch.exp2(torch.floor(torch.log2(largest)) - 7)
    return (difference / unit).max().item()
