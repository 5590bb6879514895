"""What models do between projection and attention that is not the usual. Imported on the machine.

Each is a body for `Prologue`; its first line says which models do it.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from simulation.prologues import Body, Prologue, usual

Parts = tuple[Tensor, ...]


def v_first(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """[v, q, k] instead of [q, k, v]."""
    q_size, k_size, v_size = layer.sizes
    v, q, k = qkv.split([v_size, q_size, k_size], dim=-1)
    q, k = layer.rotary(positions, q, k)
    return q, k, v


def k_first(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """[k, q, v]."""
    q_size, k_size, v_size = layer.sizes
    k, q, v = qkv.split([k_size, q_size, v_size], dim=-1)
    q, k = layer.rotary(positions, q, k)
    return q, k, v


def gate_first(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """[gate, q, k, v], with the gate used after attention. Width: one more q."""
    gate, q, k, v = qkv.split([layer.sizes[0], *layer.sizes], dim=-1)
    q, k = layer.rotary(positions, q, k)
    return q, k, v, gate.sigmoid()


def rotated_q_twice(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """The rotated query is also what something else reads."""
    q, k, v = usual(layer, positions, qkv)
    return q, k, v, q * 2


def v_apart(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """V has a projection of its own; [q, k] is split in two. Width: without V."""
    q, k = qkv.split(layer.sizes[:2], dim=-1)
    v = torch.tanh(qkv[:, : layer.sizes[2]])
    q, k = layer.rotary(positions, q, k)
    return q, k, v


def equal_parts(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """GPT-J: [q, k, v] by their number, as all are of one size."""
    q, k, v = qkv.chunk(3, dim=-1)
    q, k = layer.rotary(positions, q, k)
    return q, k, v


def raw_q_later(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """The query from before the rotation is read after it."""
    q, k, v = qkv.split(layer.sizes, dim=-1)
    raw = q.clone()
    q, k = layer.rotary(positions, q, k)
    return q, k, v, raw + 1


def raw_qkv_later(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """The whole projection from before the rotation is read after it."""
    raw = qkv.clone()
    q, k, v = qkv.split(layer.sizes, dim=-1)
    q, k = layer.rotary(positions, q, k)
    return q, k, v, raw * 3


def raw_k_view_later(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """A head of the key from before the rotation is read after it."""
    q, k, v = qkv.split(layer.sizes, dim=-1)
    first_head = k.unflatten(-1, (-1, layer.head_size))[:, 0].clone()
    q, k = layer.rotary(positions, q, k)
    return q, k, v, first_head - 1


def wider(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """qkv is a part of a wider tensor, so its rows are further apart than they are long."""
    return usual(layer, positions, qkv[:, 32 : 32 + sum(layer.sizes)])


def no_rotation(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """A layer without RoPE."""
    return tuple(qkv.split(layer.sizes, dim=-1))


def scaled_q(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """Q is scaled after RoPE."""
    q, k, v = usual(layer, positions, qkv)
    return q * 1.5, k, v


def scaled_before_rotation(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """Q is scaled by its positions, as Ministral 3's, but before RoPE."""
    q, k, v = qkv.split(layer.sizes, dim=-1)
    q, k = layer.rotary(positions, (q * layer.q_factor(positions)).to(q.dtype), k)
    return q, k, v


def scaled_by(factor: Callable[[Tensor], Tensor]) -> Body:
    """Q is scaled after RoPE by a factor `[T]` made of the positions."""

    def body(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
        q, k, v = qkv.split(layer.sizes, dim=-1)
        q, k = layer.rotary(positions, q, k)
        return (q * factor(positions).unsqueeze(-1)).to(q.dtype), k, v

    return body


def scaled_q_and_k(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """K is scaled by the positions as well."""
    q, k, v = usual(layer, positions, qkv)
    return q, (k * layer.q_factor(positions)).to(k.dtype), v


def scaled_k_alone(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """K is scaled by the positions, Q is not."""
    q, k, v = qkv.split(layer.sizes, dim=-1)
    q, k = layer.rotary(positions, q, k)
    return q, (k * layer.q_factor(positions)).to(k.dtype), v


def unscaled_q_later(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """The rotated query that is not scaled yet is read elsewhere."""
    q, k, v = qkv.split(layer.sizes, dim=-1)
    q, k = layer.rotary(positions, q, k)
    return (q * layer.q_factor(positions)).to(q.dtype), k, v, q + 1


def scaled_q_twice(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """The scaled query is scaled once more."""
    q, k, v = usual(layer, positions, qkv)
    return (q * layer.q_factor(positions)).to(q.dtype), k, v


def factor_later(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """What Q is scaled by is read elsewhere."""
    q, k, v = qkv.split(layer.sizes, dim=-1)
    q, k = layer.rotary(positions, q, k)
    factor = layer.q_factor(positions)
    return (q * factor).to(q.dtype), k, v, factor.expand(-1, 32).to(q.dtype)


def scaled_q_unrounded(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """The scaled query is also read before it is rounded."""
    q, k, v = qkv.split(layer.sizes, dim=-1)
    q, k = layer.rotary(positions, q, k)
    product = q * layer.q_factor(positions)
    return product.to(q.dtype), k, v, (product + 1).to(q.dtype)


def scaled_k(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """K is scaled between RoPE and the write."""
    q, k, v = usual(layer, positions, qkv)
    return q, k * 1.5, v


def scaled_v(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """V is scaled before the write."""
    q, k, v = usual(layer, positions, qkv)
    return q, k, v * 1.5


def _gated(layer: Prologue, positions: Tensor, q: Tensor, kv: Parts, gate: Tensor) -> Parts:
    """The rest of Qwen3-Next's prologue, from Q as `[T, H, D]` or flat."""
    k, v = kv
    q = layer.q_norm(q.unflatten(-1, (-1, layer.head_size)) if q.dim() == 2 else q).flatten(-2)
    q, k = layer.rotary(positions, q, layer.norm_heads(layer.k_norm, k))
    return q, k, v, gate.flatten(1).sigmoid()


def _halves(layer: Prologue, qkv: Tensor) -> tuple[Tensor, Tensor, Parts]:
    """The halves of each head of the first part, and K and V."""
    q_gate, *kv = qkv.split(layer.split_sizes, dim=-1)
    first, second = q_gate.unflatten(-1, (-1, 2 * layer.head_size)).chunk(2, dim=-1)
    return first, second, tuple(kv)


def gate_before_q(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """The gate is the first half of each head."""
    gate, q, kv = _halves(layer, qkv)
    return _gated(layer, positions, q.contiguous(), kv, gate)


def gate_unread(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """Nobody reads the gates."""
    q, _, kv = _halves(layer, qkv)
    return _gated(layer, positions, q.contiguous(), kv, q.new_ones(q.shape))


def gate_in_place(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """Q is normed where it lies, between the gates."""
    q, gate, kv = _halves(layer, qkv)
    return _gated(layer, positions, q, kv, gate)


def raw_gated_q_later(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """The half that is Q is read besides."""
    q, gate, kv = _halves(layer, qkv)
    return *_gated(layer, positions, q.contiguous(), kv, gate), q.flatten(1) * 2


def q_times_gate(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """The gate is for Q, before its norm."""
    q, gate, kv = _halves(layer, qkv)
    return _gated(layer, positions, q.contiguous() * gate.sigmoid(), kv, gate)


def rotated_q_times_gate(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """The gate is for Q, after RoPE."""
    q, gate, kv = _halves(layer, qkv)
    q, k, v, gates = _gated(layer, positions, q.contiguous(), kv, gate)
    return q * gates, k, v, gates


def gates_behind_all_heads(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """Q's heads, then their gates."""
    q_gate, *kv = qkv.split(layer.split_sizes, dim=-1)
    q, gate = q_gate.chunk(2, dim=-1)
    return _gated(layer, positions, q.contiguous(), tuple(kv), gate)


def gates_as_heads(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """The same, taken apart by head."""
    q_gate, *kv = qkv.split(layer.split_sizes, dim=-1)
    q, gate = q_gate.unflatten(-1, (-1, layer.head_size)).chunk(2, dim=1)
    return _gated(layer, positions, q.contiguous(), tuple(kv), gate)


def gates_behind_pairs(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """Two heads, then their gates."""
    q_gate, *kv = qkv.split(layer.split_sizes, dim=-1)
    q, gate = q_gate.unflatten(-1, (-1, 4 * layer.head_size)).chunk(2, dim=-1)
    return _gated(layer, positions, q.contiguous().flatten(1), tuple(kv), gate)


def norm_after_rotation(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """RoPE first, then the norms."""
    q, k, v = qkv.split(layer.sizes, dim=-1)
    q, k = layer.rotary(positions, q, k)
    return layer.norm_heads(layer.q_norm, q), layer.norm_heads(layer.k_norm, k), v


def norms_of_modules(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """The norms are over as much as the modules `first` (Q) and `second` (K) norm."""
    q, k, v = qkv.split(layer.sizes, dim=-1)
    q = layer.first(q.unflatten(-1, (-1, layer.first_size))).flatten(-2)
    k = layer.second(k.unflatten(-1, (-1, layer.second_size))).flatten(-2)
    q, k = layer.rotary(positions, q, k)
    return q, k, v


def weighted_v_norm(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """V's norm has a weight (module `first`)."""
    q, k, v = usual(layer, positions, qkv)
    return q, k, layer.norm_heads(layer.first, v)


def rotation_module(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """RoPE is another of vLLM's modules (`first`), with as many positions as it takes."""
    q, k, v = qkv.split(layer.sizes, dim=-1)
    if layer.normed:
        q, k = layer.norm_heads(layer.q_norm, q), layer.norm_heads(layer.k_norm, k)
    q, k = layer.first(layer.positions_of(positions), q, k)
    return q, k, v


def _rotation(**changed: object) -> Body:
    """RoPE by the op, with other arguments than RotaryEmbedding gives it."""

    def body(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
        q, k, v = qkv.split(layer.sizes, dim=-1)
        if layer.normed:
            q, k = layer.norm_heads(layer.q_norm, q), layer.norm_heads(layer.k_norm, k)
        arguments = {
            "head_size": layer.head_size,
            "cos_sin_cache": layer.rotary.cos_sin_cache,
            "is_neox": True,
            **changed,
        }
        torch.ops._C.rotary_embedding(positions, q, k, **arguments)
        return q.flatten(1), k.flatten(1), v

    return body


inverse_rotation = _rotation(inverse=True)
rotation_with_offset = _rotation(rope_dim_offset=32)
rotation_of_half_heads = _rotation(head_size=32)


def mrope_of_half_heads(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """M-RoPE of heads half as large, that is of two parts of each."""
    q, k, v = qkv.split(layer.sizes, dim=-1)
    if layer.normed:
        q, k = layer.norm_heads(layer.q_norm, q), layer.norm_heads(layer.k_norm, k)
    half, rotary_dim = layer.head_size // 2, layer.rotary.rotary_dim
    sections, interleaved = layer.mrope
    torch.ops.vllm.mrope(
        positions, q, k, layer.rotary.cos_sin_cache, half, rotary_dim, *sections, interleaved, True
    )
    return q, k, v
