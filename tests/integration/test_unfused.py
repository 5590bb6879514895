"""Prologues that the passes must leave alone, each in a graph with one that must be fused.

What makes them different is what real models do; attention's inputs, caches and all else that they
return must be as eager's.
"""

from dataclasses import replace
from typing import Any

import pytest
from simulation import simulated

ROPE = "fused_rope_into_and_unified_kv_cache_update"
QK_NORM = "fused_qk_norm_rope_and_unified_kv_cache_update"
MROPE = "fused_mrope_into_and_unified_kv_cache_update"
QK_NORM_MROPE = "fused_qk_norm_mrope_into_and_unified_kv_cache_update"
UNFUSED = "unified_kv_cache_update"
NONE = "no write"


def layers(config: Any, kind: str) -> tuple[list[Any], list[str]]:
    """The graph's layers and the ops that must write their caches."""
    import torch
    from simulation import bodies
    from simulation.prologues import MAX_POSITION, Prologue
    from vllm.model_executor.layers.layernorm import LayerNorm, RMSNorm
    from vllm.model_executor.layers.rotary_embedding import MRotaryEmbedding
    from vllm.model_executor.layers.rotary_embedding.ernie45_vl_rope import (
        Ernie4_5_VLRotaryEmbedding,
    )
    from vllm.model_executor.layers.rotary_embedding.mrope_interleaved import (
        MRotaryEmbeddingInterleaved,
    )
    from vllm.model_executor.layers.rotary_embedding.phi3_long_rope_scaled_rope import (
        Phi3LongRoPEScaledRotaryEmbedding,
    )
    from vllm.v1.attention.backend import AttentionType

    dtype = config.model_config.dtype

    def layer(body: Any = None, heads: Any = (4, 2, 64), **arguments: Any) -> Any:
        return Prologue(config, *heads, body=body, **arguments)

    def normed(first: int, second: int, *modules: Any) -> Any:
        """Norms over so many elements, by these modules."""
        made = layer(
            bodies.norms_of_modules,
            modules=lambda: {"first": modules[0](), "second": modules[1]()},
        )
        made.first_size, made.second_size = first, second
        return made

    def rotated(module: Any, positions_of: Any, **arguments: Any) -> Any:
        made = layer(bodies.rotation_module, modules=lambda: {"first": module()}, **arguments)
        made.positions_of = positions_of
        return made

    def three(positions: Any) -> Any:
        return torch.stack([positions, positions // 2, positions // 3])

    def rms(size: int, **arguments: Any) -> Any:
        return lambda: RMSNorm(size, 1e-6, **arguments)

    def four(positions: Any) -> Any:
        return torch.stack([positions, positions // 2, positions // 3, positions // 5])

    def mrope(sections: Any = (13, 8, 11), kind: Any = MRotaryEmbedding, **more: Any) -> Any:
        return lambda: kind(
            64, 64, MAX_POSITION, 1e4, True, dtype, mrope_section=list(sections), **more
        )

    def long_rope() -> Any:
        return Phi3LongRoPEScaledRotaryEmbedding(
            64, 64, MAX_POSITION, MAX_POSITION // 2, 1e4, True, dtype, [1.5] * 32, [1.0] * 32
        )

    match kind:
        case "values changed on the way":
            made = [layer(bodies.scaled_q), layer(bodies.scaled_k), layer(bodies.scaled_v)]
            ops = [UNFUSED, UNFUSED, UNFUSED]
            made += [layer(bodies.no_rotation), layer(bodies.wider, width=8 * 64 + 96)]
            ops += [UNFUSED, UNFUSED]
            made += [layer(bodies.wider, width=8 * 64 + 96, norm="rms")]
            ops += [QK_NORM]
        case "Q scaled by position in other ways":
            scaled = {"q_scaling": (0.5, 16)}
            factors = [
                lambda p: 1 + 0.5 * torch.log(2 + torch.floor(p / 16)),
                lambda p: 2 + 0.5 * torch.log(1 + torch.floor(p / 16)),
                lambda p: 1 - 0.5 * torch.log(1 + torch.floor(p / 16)),
                lambda p: 1 + 0.5 * torch.log2(1 + torch.floor(p / 16)),
                lambda p: 1 + 0.5 * torch.log(1 + p / 16),
                lambda p: 1 + 0.5 * torch.log(1 + torch.ceil(p / 16)),
                lambda p: 1 + 0.5 * torch.log(1 + torch.floor((p + 1.0) / 16)),  # Llama 4
                lambda p: 1 + 0.5 * torch.log(1 + torch.floor(p / 0.75)),
                lambda p: 1 + 0.5 * torch.log(1 + torch.floor(p / 16.5)),
                lambda p: 1 + p / 512 * torch.log(1 + torch.floor(p / 16)),
                lambda p: 1 + 0.5 * torch.log(1 + torch.floor(p / (p + 1))),
                lambda p: (1 + 0.5 * torch.log(1 + torch.floor(p / 16))).bfloat16(),
                lambda p: torch.add(torch.log(1 + torch.floor(p / 16)) * 0.5, 1, alpha=2),
                lambda p: 1 + 0.5 * torch.log(1 + torch.floor(p // 2 / 16)),
                lambda p: 1 + 0.5 * torch.log(1 + torch.floor(p.float() / 16)),
                lambda p: p / 512 + 0.5,
            ]
            made = [layer(bodies.scaled_by(factor)) for factor in factors]
            ops = [UNFUSED] * len(made)
            made += [
                layer(bodies.scaled_before_rotation, **scaled),
                layer(bodies.scaled_q_and_k, **scaled),
                layer(bodies.scaled_k_alone, **scaled),
                layer(bodies.unscaled_q_later, **scaled),
                layer(bodies.scaled_q_twice, **scaled),
                layer(bodies.scaled_q_unrounded, **scaled),
                layer(norm="rms", **scaled),
                layer(bodies.factor_later, **scaled),
                layer(**scaled),
            ]
            ops += [UNFUSED] * 7 + [ROPE] * 2
        case "other parts":
            made = [
                layer(bodies.gate_first, width=12 * 64),
                layer(bodies.rotated_q_twice),
                layer(bodies.v_apart, width=6 * 64),
                layer(bodies.v_first, heads=(2, 2, 64)),
                layer(bodies.k_first),
                layer(bodies.equal_parts, heads=(2, 2, 64)),
                layer(bodies.equal_parts, heads=(2, 2, 64), is_neox=False),
            ]
            ops = [UNFUSED] * 7
        case "other gates":
            bodies_of_gates = [
                bodies.gate_before_q,
                bodies.gate_unread,
                bodies.gate_in_place,
                bodies.raw_gated_q_later,
                bodies.q_times_gate,
                bodies.rotated_q_times_gate,
                bodies.gates_behind_all_heads,
                bodies.gates_as_heads,
                bodies.gates_behind_pairs,
            ]
            made = [layer(body, norm="gemma", gated=True) for body in bodies_of_gates]
            made += [
                layer(gated=True),
                layer(norm="rms", gated=True, v_norm=True),
                layer(norm="rms", gated=True, by_head=True),
                layer(norm="rms", gated=True, heads=(1, 1, 64)),
                layer(norm="rms", gated=True),
            ]
            impl = made[-1].attn.impl
            impl.rope_kvcache_traits = replace(impl.rope_kvcache_traits, gated_query=False)
            ops = [UNFUSED] * len(made)
        case "values read from before the rotation":
            made = [
                layer(bodies.raw_q_later),
                layer(bodies.raw_qkv_later),
                layer(bodies.raw_k_view_later),
            ]
            # The whole projection may be read besides: the fused op does not overwrite it.
            ops = [UNFUSED, ROPE, UNFUSED]
        case "LongRoPE":
            made = [rotated(long_rope, lambda positions: positions)]
            ops = [UNFUSED]
        case "M-RoPE":
            made = [
                rotated(mrope((13, 8, 6, 5)), three),
                rotated(mrope((13, 8, 6, 5)), three, norm="rms"),
                rotated(mrope(), four),
                rotated(mrope(), four, norm="rms"),
                # Rows take turns in other orders; their modules call no op.
                rotated(mrope(kind=MRotaryEmbeddingInterleaved), three),
                rotated(mrope((11, 11, 10), Ernie4_5_VLRotaryEmbedding), three),
                layer(bodies.scaled_k, mrope=([13, 8, 11], False)),
                layer(bodies.scaled_q, mrope=([13, 8, 11], True), norm="rms"),
                layer(bodies.raw_q_later, mrope=([13, 8, 11], False)),
                layer(bodies.k_first, mrope=([13, 8, 11], True)),
                layer(bodies.norm_after_rotation, mrope=([13, 8, 11], True), norm="rms"),
                layer(bodies.mrope_of_half_heads, mrope=([6, 7, 3], True), rotary_dim=32),
                layer(
                    bodies.mrope_of_half_heads, mrope=([6, 7, 3], True), rotary_dim=32, norm="rms"
                ),
                layer(heads=(4, 2, 80), mrope=([10, 14, 16], True)),
                rotated(mrope(), three),
                rotated(mrope(mrope_interleaved=True), three, norm="rms"),
            ]
            ops = [*[UNFUSED] * 14, MROPE, QK_NORM_MROPE]
        case "other arguments of the rotation":
            made = [
                layer(bodies.inverse_rotation),
                layer(bodies.inverse_rotation, norm="rms"),
                layer(bodies.rotation_with_offset, rotary_dim=32),
                layer(bodies.rotation_with_offset, rotary_dim=32, norm="rms"),
                layer(bodies.rotation_of_half_heads, rotary_dim=32),
                layer(bodies.rotation_of_half_heads, rotary_dim=32, norm="rms"),
                layer(bodies.inverse_rotation, norm="rms", by_head=True),
                layer(bodies.rotation_with_offset, rotary_dim=32, norm="rms", by_head=True),
            ]
            ops = [UNFUSED] * 8
        case "other norms":
            made = [
                layer(bodies.norm_after_rotation, norm="rms"),
                normed(256, 128, rms(256), rms(128)),
                normed(128, 128, rms(128), rms(128)),
                normed(64, 64, rms(64, has_weight=False), rms(64, has_weight=False)),
                normed(64, 64, rms(64), rms(64, dtype=torch.float32)),
                normed(64, 64, rms(64, var_hidden_size=32), rms(64, var_hidden_size=32)),
                normed(64, 64, lambda: LayerNorm(64), lambda: LayerNorm(64)),
            ]
            ops = [UNFUSED] * 7
        case "weights for each head":
            made = [normed(64, 64, rms(64), rms(64))]
            made[0].first.weight = torch.nn.Parameter(torch.rand(4, 64, dtype=dtype) + 0.5)
            made[0].second.weight = torch.nn.Parameter(torch.rand(2, 64, dtype=dtype) + 0.5)
            ops = [UNFUSED]
        case "weighted norm of V":
            made = [layer(bodies.weighted_v_norm, norm="rms", modules=lambda: {"first": rms(64)()})]
            ops = [UNFUSED]
        case "layers without a cache of their own":
            made = [layer(), layer(kv_sharing_target_layer_name="model.layers.0.self_attn.attn")]
            made += [layer(attn_type=AttentionType.ENCODER_ONLY)]
            made += [layer(attn_type=AttentionType.ENCODER_ONLY, norm="rms")]
            ops = [ROPE, NONE, UNFUSED, UNFUSED]
        case "head sizes that are not built":
            made = [layer(heads=(4, 2, 80)), layer(heads=(4, 2, 160), norm="rms")]
            ops = [UNFUSED, UNFUSED]
        case _:
            raise ValueError(kind)
    return [*made, layer(), layer(norm="rms")], [*ops, ROPE, QK_NORM]


KINDS = [
    "values changed on the way",
    "Q scaled by position in other ways",
    "other parts",
    "values read from before the rotation",
    "LongRoPE",
    "M-RoPE",
    "other arguments of the rotation",
    "other norms",
    "weights for each head",
    "weighted norm of V",
    "layers without a cache of their own",
    "head sizes that are not built",
]


@pytest.mark.parametrize("kind", KINDS)
@simulated()
def test_what_must_not_fuse_stays_as_it_is_beside_what_must(kind: str) -> None:
    from simulation.prologues import fusing_config, run

    config = fusing_config()
    made, ops = layers(config, kind)
    found = run(config, made)
    served = [found.served.get(layer.name, NONE) for layer in made]
    assert served == ops, served
    found.assert_right()


@simulated()
def test_other_gates_stay_as_they_are() -> None:
    from simulation.graphs import compiled
    from simulation.prologues import fusing_config

    config = fusing_config()
    made = layers(config, "other gates")[0][:-2]
    found = compiled(config, made)
    assert not found.fault, found.fault
    assert found.served == [UNFUSED] * len(made), found.served


@simulated()
def test_every_row_of_mrope_positions_is_used() -> None:
    """sglang 35345: with the first row alone text, whose rows are equal, still looks right."""
    import torch
    from simulation.prologues import Prologue, fusing_config, run

    config = fusing_config()
    made = [
        Prologue(config, 4, 2, 64, mrope=([13, 8, 11], False)),
        Prologue(config, 4, 2, 64, mrope=([8, 11, 13], True), norm="rms"),
    ]
    found = run(config, made)
    assert found.served_in_order() == [MROPE, QK_NORM_MROPE]
    found.assert_right()
    # What is right here is not what any other row alone gives, nor two of them.
    q, positions = torch.rand(7, 4 * 64).bfloat16(), torch.arange(0, 490, 70)
    rows = torch.stack([positions, positions // 2, positions // 3])
    for layer in made:
        right = layer.rotary(rows, q.clone(), q.clone())[0]
        for order in ([0, 0, 0], [1, 1, 1], [0, 1, 1], [0, 0, 2], [0, 2, 1], [1, 1, 2]):
            wrong = layer.rotary(rows[order], q.clone(), q.clone())[0]
            assert not torch.allclose(right, wrong, rtol=0.1, atol=0.1), order


@simulated()
def test_modules_with_sections_in_an_order_of_their_own_keep_it() -> None:
    """They inherit from MRotaryEmbedding, which on ROCm calls an op that has another order."""
    import torch
    from simulation.prologues import MAX_POSITION, fusing_config
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.layers.rotary_embedding import bailing_mrope, ernie45_vl_rope

    arguments = (64, 64, MAX_POSITION, 1e4, False, torch.bfloat16)
    with set_current_vllm_config(fusing_config()):
        modules = [
            ernie45_vl_rope.Ernie4_5_VLRotaryEmbedding(*arguments, [11, 11, 10]),
            bailing_mrope.BailingMRotaryEmbedding(*arguments, [10, 11, 11]),
        ]
    positions = torch.randint(0, MAX_POSITION, (3, 7))
    query, key = torch.randn(7, 4 * 64).bfloat16(), torch.randn(7, 2 * 64).bfloat16()
    for module in modules:
        found = module(positions, query.clone(), key.clone())
        should = module.forward_native(positions, query, key)
        for is_, right in zip(found, should, strict=True):
            torch.testing.assert_close(is_, right, rtol=2e-2, atol=3e-2)
