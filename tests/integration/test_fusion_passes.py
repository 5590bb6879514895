"""vLLM's fusion passes on prologues as its models have them, compiled and compared with eager.

Attention's inputs, the caches and what a model returns besides are all compared, and the op that
writes each layer's cache is named.
"""

from typing import Any

import pytest
from simulation import simulated

UNFUSED = "unified_kv_cache_update"
ROPE = "fused_rope_into_and_unified_kv_cache_update"
QK_NORM = "fused_qk_norm_rope_and_unified_kv_cache_update"
QKV_NORM = "fused_qkv_norm_rope_and_unified_kv_cache_update"
MROPE = "fused_mrope_into_and_unified_kv_cache_update"
QK_NORM_MROPE = "fused_qk_norm_mrope_into_and_unified_kv_cache_update"

# Layers of one graph: heads (num_heads, num_kv_heads, head_size), more of Prologue's arguments,
# and the op that must write their cache.
FUSED: dict[str, list[tuple[tuple[int, int, int], dict[str, Any], str]]] = {
    "llama": [((4, 2, 128), {}, ROPE), ((4, 2, 128), {}, ROPE)],
    "one KV head": [((6, 1, 64), {}, ROPE), ((5, 1, 128), {"norm": "rms"}, QK_NORM)],
    "as many KV heads": [((3, 3, 96), {}, ROPE), ((2, 2, 128), {"norm": "rms"}, QK_NORM)],
    "same head size, other counts": [
        ((6, 2, 128), {}, ROPE),
        ((4, 2, 128), {}, ROPE),
        ((4, 1, 128), {"norm": "rms"}, QK_NORM),
        ((6, 2, 128), {"norm": "rms"}, QK_NORM),
    ],
    "same sizes of the split, other heads": [
        ((8, 2, 64), {}, ROPE),
        ((4, 1, 128), {}, ROPE),
        ((4, 1, 128), {"norm": "rms"}, QK_NORM),
        ((8, 2, 64), {"norm": "rms"}, QK_NORM),
    ],
    "KV heads of each layer its own": [
        ((8, 4, 64), {}, ROPE),
        ((8, 2, 64), {}, ROPE),
        ((8, 1, 64), {}, ROPE),
        ((8, 8, 64), {}, ROPE),
    ],
    "partial rotation": [
        ((4, 2, 128), {"rotary_dim": 64}, ROPE),
        ((4, 2, 128), {"rotary_dim": 78, "norm": "rms"}, QK_NORM),
        ((4, 2, 64), {"rotary_dim": 16, "norm": "rms", "eps": 1e-5}, QK_NORM),
    ],
    "adjacent pairs": [
        ((4, 2, 128), {"is_neox": False}, ROPE),
        ((4, 2, 128), {}, ROPE),
        ((8, 1, 128), {"is_neox": False, "rotary_dim": 64}, ROPE),
        ((4, 2, 64), {"is_neox": False, "norm": "rms"}, QK_NORM),
        ((4, 2, 64), {"norm": "rms"}, QK_NORM),
        ((4, 1, 256), {"is_neox": False, "norm": "gemma"}, QK_NORM),
        ((4, 1, 128), {"is_neox": False, "norm": "rms", "v_norm": True}, QKV_NORM),
    ],
    "heads as they come from the norms": [
        ((4, 2, 64), {"norm": "rms", "by_head": True}, QK_NORM),
        ((4, 2, 64), {"norm": "rms"}, QK_NORM),
        ((6, 1, 128), {"norm": "rms", "by_head": True, "rotary_dim": 64}, QK_NORM),
        ((4, 4, 64), {"norm": "gemma", "by_head": True, "is_neox": False}, QK_NORM),
    ],
    "gated Q": [
        ((4, 2, 64), {"norm": "gemma", "gated": True, "rotary_dim": 16}, QK_NORM),
        ((4, 2, 64), {"norm": "gemma"}, QK_NORM),
        ((8, 1, 256), {"norm": "gemma", "gated": True, "rotary_dim": 64}, QK_NORM),
        ((3, 3, 128), {"norm": "rms", "gated": True, "eps": 1e-5}, QK_NORM),
        ((2, 1, 96), {"norm": "rms", "gated": True, "is_neox": False}, QK_NORM),
    ],
    "as wide with a gate as without": [
        ((4, 2, 64), {"norm": "rms", "gated": True}, QK_NORM),
        ((8, 2, 64), {"norm": "rms"}, QK_NORM),
        ((2, 1, 128), {"norm": "rms", "gated": True}, QK_NORM),
    ],
    "Q scaled by position": [
        ((4, 1, 128), {"q_scaling": (0.1, 16)}, ROPE),
        ((4, 2, 128), {}, ROPE),
        ((8, 2, 64), {"q_scaling": (0.5, 100), "rotary_dim": 32, "is_neox": False}, ROPE),
        ((4, 1, 128), {"q_scaling": (0.3, 7.0)}, ROPE),
        ((4, 1, 128), {"norm": "rms"}, QK_NORM),
    ],
    "qwen2-vl": [
        ((6, 1, 128), {"mrope": ([16, 24, 24], False)}, MROPE),
        ((6, 1, 128), {"mrope": ([16, 24, 24], False)}, MROPE),
    ],
    "qwen3-vl": [
        ((4, 1, 128), {"mrope": ([24, 20, 20], True), "norm": "rms"}, QK_NORM_MROPE),
        ((4, 1, 128), {"mrope": ([24, 20, 20], True), "norm": "rms"}, QK_NORM_MROPE),
    ],
    "gated Q with M-RoPE": [
        (
            (8, 2, 256),
            {
                "mrope": ([11, 11, 10], True),
                "norm": "gemma",
                "gated": True,
                "rotary_dim": 64,
            },
            QK_NORM_MROPE,
        ),
        ((4, 2, 64), {"mrope": ([7, 14, 11], False), "norm": "rms", "gated": True}, QK_NORM_MROPE),
        ((8, 2, 64), {"mrope": ([14, 7, 11], True), "norm": "rms"}, QK_NORM_MROPE),
        ((4, 2, 64), {"norm": "rms", "gated": True}, QK_NORM),
    ],
    "M-RoPE of several shapes and sections": [
        ((8, 2, 64), {"mrope": ([7, 14, 11], False)}, MROPE),
        ((4, 1, 128), {"mrope": ([30, 21, 13], True)}, MROPE),
        ((8, 2, 64), {"mrope": ([14, 7, 11], False), "norm": "rms"}, QK_NORM_MROPE),
        ((4, 1, 128), {"mrope": ([23, 22, 19], True), "norm": "rms"}, QK_NORM_MROPE),
        ((2, 1, 256), {"mrope": ([30, 50, 48], True), "norm": "gemma"}, QK_NORM_MROPE),
    ],
    "M-RoPE, partial, of adjacent pairs, and plain RoPE": [
        ((4, 2, 128), {"mrope": ([8, 13, 11], False), "rotary_dim": 64}, MROPE),
        (
            (4, 2, 128),
            {"mrope": ([8, 13, 11], False), "rotary_dim": 64, "is_neox": False},
            MROPE,
        ),
        ((4, 2, 128), {}, ROPE),
        ((4, 2, 128), {"norm": "rms"}, QK_NORM),
        (
            (4, 2, 64),
            {"mrope": ([4, 7, 5], True), "rotary_dim": 32, "norm": "rms", "eps": 1e-5},
            QK_NORM_MROPE,
        ),
        (
            (4, 2, 64),
            {"mrope": ([12, 9, 11], True), "is_neox": False, "norm": "rms"},
            QK_NORM_MROPE,
        ),
    ],
    "gemma 3": [
        ((4, 2, 256), {"norm": "gemma"}, QK_NORM),
        ((4, 1, 256), {"norm": "gemma"}, QK_NORM),
    ],
    "gemma 4, small heads first": [
        ((4, 1, 256), {"norm": "rms", "v_norm": True}, QKV_NORM),
        ((2, 1, 512), {"norm": "rms", "v_norm": True}, QKV_NORM),
    ],
    "gemma 4, large heads first": [
        ((2, 1, 512), {"norm": "rms", "v_norm": True}, QKV_NORM),
        ((4, 1, 256), {"norm": "rms", "v_norm": True}, QKV_NORM),
    ],
    "two head sizes without V's norm": [
        ((2, 1, 512), {"norm": "rms"}, QK_NORM),
        ((4, 1, 256), {"norm": "rms"}, QK_NORM),
        ((4, 1, 256), {"norm": "rms", "v_norm": True}, QKV_NORM),
    ],
    "three shapes, two passes": [
        ((4, 2, 64), {"norm": "gemma", "v_norm": True}, QKV_NORM),
        ((2, 1, 256), {}, ROPE),
        ((4, 1, 128), {"norm": "rms", "eps": 1e-5}, QK_NORM),
    ],
}


IN_FP16 = (
    "llama",
    "gated Q",
    "Q scaled by position",
    "gemma 4, small heads first",
    "three shapes, two passes",
)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(kind, "bfloat16") for kind in FUSED] + [(kind, "float16") for kind in IN_FP16],
)
@simulated()
def test_every_layer_of_a_graph_is_fused_with_its_own_shape(kind: str, dtype: str) -> None:
    """Among them vLLM 43676 ("partial rotation"), and in all sglang 19636: K is compared both as
    attention gets it and as the cache has it."""
    from simulation.prologues import Prologue, fusing_config, run

    config = fusing_config(dtype=dtype)
    layers = [Prologue(config, *heads, **more) for heads, more, _ in FUSED[kind]]
    found = run(config, layers)
    assert found.served_in_order() == [op for _, _, op in FUSED[kind]]
    found.assert_right()


# Two counts of one head size, and two head sizes in projections of the same width.
SHAPES = [(4, 2, 64), (8, 2, 64), (4, 1, 128)]


@pytest.mark.parametrize("order", [1, -1])
@simulated()
def test_two_shapes_do_not_collapse_into_one_pattern(order: int) -> None:
    """vLLM 53918: with sizes that are wildcards, all layers got the first one's."""
    from simulation.prologues import Prologue, fusing_config, run

    config = fusing_config()
    layers = []
    for heads in SHAPES[::order]:
        layers += [Prologue(config, *heads), Prologue(config, *heads, norm="rms")]
    found = run(config, layers)
    assert found.served_in_order() == [ROPE, QK_NORM] * len(SHAPES)
    found.assert_right()


@simulated()
def test_swapped_norm_weights_are_noticed() -> None:
    """They would not be with the weights that norms have at first, all the same."""
    from simulation.prologues import Prologue, fusing_config, run

    config = fusing_config()
    layers = [Prologue(config, 4, 2, 64, norm=norm) for norm in ("rms", "gemma")]

    def swap(impl: Any) -> None:
        hook = impl.do_qk_norm_rope_kvcache_update

        def swapped(*arguments: Any, **more: Any) -> None:
            *before, q_weight, k_weight = arguments[:7]
            hook(*before, k_weight, q_weight, *arguments[7:], **more)

        impl.do_qk_norm_rope_kvcache_update = swapped

    for layer in layers:
        swap(layer.attn.impl)
    faults = run(config, layers).faults()
    assert list(faults) == [layer.name for layer in layers]
    assert all("q differs first" in fault for fault in faults.values()), faults


@simulated(env={"VLLM_USE_LAYERNAME": "0"})
def test_layers_are_fused_by_their_own_names_where_names_are_constants() -> None:
    from simulation.prologues import Prologue, fusing_config, run

    config = fusing_config()
    kinds = FUSED["three shapes, two passes"]
    layers = [Prologue(config, *heads, **more) for heads, more, _ in kinds]
    found = run(config, layers)
    assert found.served_in_order() == [op for _, _, op in kinds]
    found.assert_right()


@simulated()
def test_without_slots_outputs_are_defined_and_no_cache_is_written() -> None:
    """vLLM 43355: a hook that is skipped there leaves attention what was in memory."""
    from simulation.prologues import Prologue, fusing_config, run

    config = fusing_config()
    kinds = FUSED["three shapes, two passes"]
    layers = [Prologue(config, *heads, **more) for heads, more, _ in kinds]
    found = run(config, layers, slots=False)
    assert found.served_in_order() == [op for _, _, op in kinds]
    found.assert_right()


@pytest.mark.parametrize(("largest", "ops"), [(256, [ROPE, QK_NORM]), (257, [UNFUSED, UNFUSED])])
@simulated()
def test_above_the_largest_number_of_tokens_nothing_is_fused(largest: int, ops: list[str]) -> None:
    from simulation.prologues import Prologue, fusing_config, run

    config = fusing_config()
    assert config.compilation_config.pass_config.rope_kvcache_fusion_max_token_num == 256
    layers = [Prologue(config, 4, 2, 64), Prologue(config, 4, 2, 64, norm="rms")]
    found = run(config, layers, largest=largest)
    assert found.served_in_order() == ops
    found.assert_right()


@simulated()
def test_a_drafts_graph_is_fused_while_a_targets_layers_are_registered() -> None:
    from simulation.prologues import Prologue, fusing_config, run

    config = fusing_config()
    for heads in ((32, 8, 128), (24, 8, 128)):  # the target's, compiled before
        Prologue(config, *heads)
        Prologue(config, *heads, norm="rms")
    draft = [Prologue(config, 8, 2, 64), Prologue(config, 4, 1, 128, norm="rms")]
    found = run(config, draft)
    assert found.served_in_order() == [ROPE, QK_NORM]
    found.assert_right()


@pytest.mark.parametrize("gated", [False, True])
@simulated()
def test_no_kernel_is_left_of_gemmas_offset_nor_of_gated_qs_copy(gated: bool) -> None:
    import torch
    from simulation.prologues import Prologue, fusing_config, run

    config = fusing_config()
    found = run(config, [Prologue(config, 4, 2, 256, norm="gemma", gated=gated)])
    fused = [n for n in found.graph.nodes if QK_NORM in str(n.args[:1])]
    assert [n.kwargs["weight_offset"] for n in fused] == [1.0]
    weights = [fused[0].kwargs[name] for name in ("q_weight", "k_weight")]
    assert [w.op for w in weights] == ["placeholder", "placeholder"]
    assert weights[0] is not weights[1]
    live = [n for n in found.graph.nodes if n.users]
    assert not [n for n in live if n.target is torch.ops.aten.add.Tensor]
    # The gate's own.
    assert [n.target for n in live].count(torch.ops.aten.clone.default) == gated
    found.assert_right()


@simulated()
def test_no_kernel_is_left_of_the_scaling_of_q() -> None:
    import torch
    from simulation.prologues import Prologue, fusing_config, run

    config = fusing_config()
    layers = [Prologue(config, 4, 2, 64, q_scaling=(beta, 16)) for beta in (0.25, 0.5)]
    found = run(config, layers)
    fused = [n for n in found.graph.nodes if ROPE in str(n.args[:1])]
    scaling = [(n.kwargs["q_scale_beta"], n.kwargs["q_scale_orig_max"]) for n in fused]
    assert scaling == [(0.25, 16), (0.5, 16)]
    found.graph.eliminate_dead_code()
    aten = torch.ops.aten
    parts = {aten.log.default, aten.floor.default, aten.div.Tensor, aten.unsqueeze.default}
    assert not [n for n in found.graph.nodes if n.target in parts]
    found.assert_right()


@simulated()
def test_the_log_says_how_many_layers_are_fused_and_why_others_are_not() -> None:
    import logging

    from simulation import bodies
    from simulation.log import messages
    from simulation.prologues import Prologue, fusing_config, run
    from vllm.compilation.passes.fusion.rope_kvcache_report import log_layers

    config = fusing_config()
    layers = [
        Prologue(config, 4, 2, 64),
        Prologue(config, 4, 2, 64, norm="rms"),
        Prologue(config, 4, 2, 64, body=bodies.rotation_with_offset, rotary_dim=32),
        Prologue(config, 4, 2, 80),
        Prologue(config, 4, 2, 64, body=bodies.scaled_k),
        Prologue(config, 4, 2, 64, body=bodies.scaled_k),
    ]
    log_layers()  # what other tests have left
    with messages(logging.INFO) as logged:
        run(config, layers)
        log_layers()
        log_layers()
    lines = [m for m in logged if m.startswith("RoPE and the KV cache write")]
    size = "the kernel is not built for head size 80"
    assert logged, "nothing"
    assert lines == [
        f"RoPE and the KV cache write stay apart: {size}",
        "RoPE and the KV cache write are one op in 2 of 6 attention layers"
        "; not in 1: RoPE's rope_dim_offset: 32, which should be 0"
        f"; not in 1: {size}"
        "; not in 2: its norm, RoPE and KV cache write are not the ones that fuse",
    ], logged
