"""What vLLM's native ops for mixtures of experts compute, on CPU tensors."""

import torch
from torch import Tensor


def topk_softmax(
    topk_weights: Tensor,
    topk_indices: Tensor,
    token_expert_indices: Tensor,
    gating_output: Tensor,
    renormalize: bool,
    bias: Tensor | None,
    is_padding: Tensor | None,
) -> None:
    """The best experts of each token by softmax, and their shares."""
    _best(torch.softmax(gating_output.float(), dim=-1), bias, topk_weights, topk_indices)
    if renormalize:
        topk_weights /= topk_weights.sum(dim=-1, keepdim=True)


def topk_sigmoid(
    topk_weights: Tensor,
    topk_indices: Tensor,
    token_expert_indices: Tensor,
    gating_output: Tensor,
    renormalize: bool,
    bias: Tensor | None,
    routed_scaling_factor: float,
    is_padding: Tensor | None,
) -> None:
    """The best experts of each token by sigmoid, and their shares."""
    _best(torch.sigmoid(gating_output.float()), bias, topk_weights, topk_indices)
    if renormalize:
        topk_weights /= topk_weights.sum(dim=-1, keepdim=True)
    topk_weights *= routed_scaling_factor


def _best(scores: Tensor, bias: Tensor | None, weights: Tensor, indices: Tensor) -> None:
    """The bias takes part in the choice, not in the weight."""
    ranked = scores if bias is None else scores + bias
    indices.copy_(ranked.topk(indices.shape[-1], dim=-1).indices)
    weights.copy_(scores.gather(-1, indices.long()))


def moe_sum(
    input: Tensor, output: Tensor, topk_ids: Tensor | None = None, expert_map: Tensor | None = None
) -> None:
    """The sum of each token's experts' results [tokens, experts, hidden], in fp32."""
    output.copy_(input.float().sum(dim=1))


def moe_align_block_size(
    topk_ids: Tensor,
    num_experts: int,
    block_size: int,
    sorted_token_ids: Tensor,
    experts_ids: Tensor,
    num_tokens_post_pad: Tensor,
    maybe_expert_map: Tensor | None,
    scatter_idx: Tensor | None = None,
) -> None:
    """Sort (token, choice) pairs by expert, each expert's padded to whole blocks.

    The padding is the number of pairs, which is no pair's.
    """
    pairs = topk_ids.flatten().long()
    sorted_token_ids.fill_(pairs.numel())
    experts_ids.zero_()
    end = 0
    for expert in range(num_experts):
        own = (pairs == expert).nonzero().flatten()
        blocks = -(-own.numel() // block_size)
        sorted_token_ids[end : end + own.numel()] = own.int()
        experts_ids[end // block_size : end // block_size + blocks] = expert
        end += blocks * block_size
    num_tokens_post_pad.fill_(end)
