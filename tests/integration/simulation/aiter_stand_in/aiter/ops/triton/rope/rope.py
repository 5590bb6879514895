"""Part of the stand-in for AITER: RoPE."""

from torch import Tensor


def rope_cached_thd_positions_offsets_2c_fwd_inplace(
    query: Tensor,
    key: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    offsets: Tensor | None,
    rotate_style: int,
    reuse_freqs_front_part: bool,
    nope_first: bool,
) -> None:
    """Rotate query and key, `[T, heads, D]`, in place, in fp32.

    cos, sin: `[positions, rotary_dim / 2]`; what is behind rotary_dim stays. rotate_style: 0 is
    NeoX's, 1 GPT-J's.
    """
    assert offsets is None and reuse_freqs_front_part and not nope_first
    rotary_dim = 2 * cos.shape[-1]
    cos, sin = (x[positions].float().unsqueeze(1) for x in (cos, sin))
    for x in (query, key):
        turned = x[..., :rotary_dim]
        if rotate_style == 0:
            first, second = turned.chunk(2, dim=-1)
        else:
            first, second = turned[..., 0::2], turned[..., 1::2]
        a, b = first.float(), second.float()
        new_first, new_second = a * cos - b * sin, b * cos + a * sin
        first.copy_(new_first)
        second.copy_(new_second)
