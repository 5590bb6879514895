"""What models do between projection and attention that is not the usual. Imported on the machine.

Each is a body for `Prologue`; its first line says which models do it.
"""

import torch
from torch import Tensor

from simulation.prologues import Prologue, usual

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
