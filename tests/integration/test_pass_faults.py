"""Faults of upstream's fusion passes: each is seen on the pristine tree, and gone on the patched.

On both trees the layers are Triton's, with hooks as AITER's implementations have them, but of plain
ops. So this also shows that an implementation that declares nothing is served better than before.
"""

from typing import Any

import pytest
from simulation import simulated

IN_PLACE = "fused_rope_and_unified_kv_cache_update"
QK_NORM = "fused_qk_norm_rope_and_unified_kv_cache_update"
UNFUSED = "unified_kv_cache_update"

# Layers, and the op of each on the patched tree.
CASES: dict[str, list[tuple[Any, dict[str, Any], str]]] = {
    "rope, two head sizes": [((4, 2, 128), {}, IN_PLACE), ((4, 2, 64), {}, IN_PLACE)],
    "rope, two head counts": [((4, 2, 64), {}, IN_PLACE), ((6, 2, 64), {}, IN_PLACE)],
    "norm, two head sizes": [
        ((4, 1, 256), {"norm": "rms"}, QK_NORM),
        ((4, 1, 128), {"norm": "rms"}, QK_NORM),
    ],
    "norm, equal split sizes": [
        ((8, 2, 64), {"norm": "rms"}, QK_NORM),
        ((4, 1, 128), {"norm": "rms"}, QK_NORM),
    ],
    "rope, inverse": [((4, 2, 64), {"body": "inverse_rotation"}, UNFUSED)],
    "rope, offset": [
        ((4, 2, 64), {"body": "rotation_with_offset", "rotary_dim": 32}, UNFUSED),
    ],
    "norm, inverse": [((4, 2, 64), {"body": "inverse_rotation", "norm": "rms"}, UNFUSED)],
    "norm, rotation of half heads": [
        ((4, 2, 64), {"body": "rotation_of_half_heads", "rotary_dim": 32, "norm": "rms"}, UNFUSED)
    ],
    "encoder only": [((4, 2, 64), {"attn_type": "encoder_only"}, UNFUSED)],
    "norm, encoder only": [
        ((4, 2, 64), {"attn_type": "encoder_only", "norm": "rms"}, UNFUSED),
    ],
}


def outcome(name: str) -> str:
    """ "right: <ops>", "wrong: ..." or "crashes: ..."."""
    from simulation import bodies
    from simulation.prologues import Prologue, fusing_config, run
    from simulation.todays_hooks import give_todays_hooks
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    config = fusing_config()
    layers = []
    for heads, arguments, _ in CASES[name]:
        arguments = {**arguments, "attn_backend": AttentionBackendEnum.TRITON_ATTN.get_class()}
        if "body" in arguments:
            arguments["body"] = getattr(bodies, arguments["body"])
        layers.append(Prologue(config, *heads, **arguments))
        give_todays_hooks(layers[-1].attn)
    try:
        found = run(config, layers)
    except Exception as e:
        return f"crashes: {type(e).__name__}: {str(e).splitlines()[0]}"
    if faults := found.faults():
        return f"wrong: {faults}"
    return f"right: {found.served_in_order()}"


def all_outcomes() -> dict[str, str]:
    from simulation.todays_hooks import define_aiter_quant

    define_aiter_quant()
    return {name: outcome(name) for name in CASES}


@simulated(arch="gfx942")
def patched() -> dict[str, str]:
    return all_outcomes()


@simulated(arch="gfx942", tree="pristine")
def pristine() -> dict[str, str]:
    return all_outcomes()


def test_layers_are_served_where_upstream_fails() -> None:
    found = patched.on()
    assert found == {name: f"right: {[op for *_, op in layers]}" for name, layers in CASES.items()}


def test_upstream_crashes_or_is_wrong_there() -> None:
    found = pristine.on()
    right = {name: text for name, text in found.items() if text.startswith("right")}
    # Not wrong, but left unfused although the layers could be served.
    expected = {
        name: text
        for name, text in right.items()
        if UNFUSED in text.replace(IN_PLACE, "").replace(QK_NORM, "")
        and UNFUSED not in [op for *_, op in CASES[name]]
    }
    assert right == expected, found


@simulated(arch="gfx1151", op=False)
def build_without_aiter() -> str:
    from simulation.prologues import Prologue, fusing_config
    from simulation.todays_hooks import give_todays_hooks
    from vllm.compilation.passes.fusion.qk_norm_rope_kvcache_fusion import (
        QkNormRopeKvCacheFusionPass,
    )
    from vllm.config import set_current_vllm_config

    config = fusing_config()
    give_todays_hooks(Prologue(config, 4, 2, 64, norm="rms").attn)
    try:
        with set_current_vllm_config(config):
            QkNormRopeKvCacheFusionPass(config)
    except AttributeError as e:
        return str(e)
    return "built"


def test_the_qk_norm_pass_builds_without_aiters_op() -> None:
    assert build_without_aiter.on(tree="patched") == "built"
    assert "rocm_aiter_per_tensor_quant" in build_without_aiter.on(tree="pristine")


FEATURES: dict[str, tuple[Any, dict[str, Any]]] = {
    "head size 512": ((2, 1, 512), {"norm": "rms"}),
    "head size 96": ((4, 2, 96), {"norm": "rms"}),
    "norm of V": ((4, 1, 256), {"norm": "rms", "v_norm": True}),
}


@pytest.mark.parametrize("feature", FEATURES)
@simulated(arch="gfx942", tree="pristine")
def test_upstream_does_not_fuse(feature: str) -> None:
    """What the gfx1151 class's layers get fused; see test_fusion_passes.py."""
    from simulation.prologues import Prologue, fusing_config, run
    from simulation.todays_hooks import define_aiter_quant, give_todays_hooks
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    define_aiter_quant()
    config = fusing_config()
    heads, arguments = FEATURES[feature]
    backend = AttentionBackendEnum.TRITON_ATTN.get_class()
    layer = Prologue(config, *heads, attn_backend=backend, **arguments)
    give_todays_hooks(layer.attn)
    assert run(config, [layer]).served_in_order() == [UNFUSED]
