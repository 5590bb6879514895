"""What vLLM's native ops for multi-head latent attention compute, on CPU tensors."""

import torch
from torch import Tensor


def concat_and_cache_mla(
    kv_c: Tensor,
    k_pe: Tensor,
    kv_cache: Tensor,
    slot_mapping: Tensor,
    kv_cache_dtype: str,
    scale: Tensor,
    skip_scale: bool = False,
) -> None:
    """Write kv_c and k_pe side by side into a cache [blocks, block, rank + pe]."""
    if kv_cache_dtype != "auto":
        raise NotImplementedError(f"an MLA cache of {kv_cache_dtype}")
    written = slot_mapping >= 0
    slots, count, size = slot_mapping[written], slot_mapping.shape[0], kv_cache.shape[1]
    rows = torch.cat([kv_c[:count], k_pe[:count].flatten(1)], dim=-1)
    kv_cache[slots // size, slots % size] = rows[written]


def gather_and_maybe_dequant_cache(
    src_cache: Tensor,
    dst: Tensor,
    block_table: Tensor,
    cu_seq_lens: Tensor,
    token_to_seq: Tensor,
    num_tokens: int,
    kv_cache_dtype: str,
    scale: Tensor,
    seq_starts: Tensor | None,
) -> None:
    """Read the cache's rows of each sequence, one sequence after another."""
    if kv_cache_dtype != "auto":
        raise NotImplementedError(f"an MLA cache of {kv_cache_dtype}")
    sequences = token_to_seq[:num_tokens].long()
    at = torch.arange(num_tokens) - cu_seq_lens[sequences]
    if seq_starts is not None:
        at = at + seq_starts[sequences]
    size = src_cache.shape[1]
    dst[:num_tokens] = src_cache[block_table[sequences, at // size].long(), at % size]
