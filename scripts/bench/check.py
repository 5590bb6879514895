"""Whether a variant computes what the op's contract says, before it is timed."""

import torch

from scripts.bench.inputs import BLOCK_SIZE, EPS, Inputs
from scripts.errors import Fault


def expected(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Q [T, Hq, D] and the cache's rows [T, Hkv, 2 * D] by a plain fp32 model, as bf16."""
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
    cos, sin = inputs.cos_sin_cache[inputs.positions].float()[:, None].chunk(2, -1)
    pairs = x[..., :rot].float().unflatten(-1, (2, half) if inputs.shape.is_neox else (half, 2))
    axis = -2 if inputs.shape.is_neox else -1
    first, second = pairs.unbind(axis)
    turned = torch.stack([first * cos - second * sin, second * cos + first * sin], axis)
    return torch.cat([turned.flatten(-2).bfloat16(), x[..., rot:]], -1)


def poison(inputs: Inputs) -> None:
    """Fills every destination with NaN."""
    for tensor in (inputs.q_out, inputs.k_out, inputs.kv_cache):
        tensor.fill_(float("nan"))


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
    rows = inputs.kv_cache[slots // BLOCK_SIZE, :, slots % BLOCK_SIZE]
    want_k, want_v = want_rows.chunk(2, -1)
    rows_k, rows_v = rows.chunk(2, -1)
    results = [
        ("q", q, want_q),
        ("the cache's k", rows_k, want_k),
        ("the cache's v", rows_v, want_v),
    ]
    if k is not None:
        results.append(("k", k, want_k))
    for name, got, right in results:
        worst = distance(got.reshape(right.shape), right)
        if not worst <= units:
            raise Fault(
                f"{variant} is not timed: {name} of {inputs.shape.name} at T = {inputs.tokens} is "
                f"{worst:.1f} units in the last place from the fp32 model, at most {units} allowed"
            )


def distance(got: torch.Tensor, want: torch.Tensor) -> float:
    """The largest difference of two bf16 tensors, in units of the last place of the largest value
    of each head (the last dimension); NaN where there is one."""
    largest = want.float().abs().amax(-1, keepdim=True).clamp(min=2.0**-100)
    unit = torch.exp2(torch.floor(torch.log2(largest)) - 7)
    return ((got.float() - want.float()).abs() / unit).max().item()
