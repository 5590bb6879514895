"""The one function of the flash-attn package that vLLM calls on ROCm, in plain torch."""

import torch
from torch import Tensor


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float | None = None,
    causal: bool = False,
    return_attn_probs: bool = False,
) -> Tensor | tuple[Tensor, Tensor, None]:
    """Attention of each sequence's q [T, H, D] to its k and v, in fp32.

    With `return_attn_probs`, also the log of the sums of exponentials, fp32 [H, T].
    """
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    out = torch.empty_like(q[..., : v.shape[-1]])
    lse = torch.empty(q.shape[1], q.shape[0])
    starts, key_starts = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for sequence in range(len(starts) - 1):
        rows = slice(starts[sequence], starts[sequence + 1])
        keys = slice(key_starts[sequence], key_starts[sequence + 1])
        queries = rows.stop - rows.start
        scores = torch.einsum("qhd,khd->hqk", q[rows].float(), k[keys].float()) * scale
        if causal:
            ahead = keys.stop - keys.start - queries
            seen = torch.ones(scores.shape[1:], dtype=torch.bool).tril(ahead)
            scores.masked_fill_(~seen, float("-inf"))
        lse[:, rows] = scores.logsumexp(dim=-1)
        shares = scores.softmax(dim=-1)
        out[rows] = torch.einsum("hqk,khd->qhd", shares, v[keys].float()).to(out.dtype)
    return (out, lse, None) if return_attn_probs else out
