"""What models do between projection and attention that is not the usual. Imported on the machine.

Each is a body for `Prologue`; its first line says which models do it.
"""

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


def scaled_k(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """K is scaled between RoPE and the write."""
    q, k, v = usual(layer, positions, qkv)
    return q, k * 1.5, v


def scaled_v(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """V is scaled before the write."""
    q, k, v = usual(layer, positions, qkv)
    return q, k, v * 1.5


def gated_q(layer: Prologue, positions: Tensor, qkv: Tensor) -> Parts:
    """Q and its gate alternate, head by head. Width: one more q."""
    sizes = [2 * layer.sizes[0], *layer.sizes[1:]]
    q_gate, k, v = qkv.split(sizes, dim=-1)
    q, gate = q_gate.unflatten(-1, (layer.num_heads, 2 * layer.head_size)).chunk(2, dim=-1)
    q = layer.q_norm(q).flatten(-2)
    k = layer.norm_heads(layer.k_norm, k)
    q, k = layer.rotary(positions, q, k)
    return q, k, v, gate.flatten(-2).sigmoid()


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
