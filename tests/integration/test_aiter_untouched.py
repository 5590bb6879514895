"""Graphs with AITER's implementations, on the patched tree and on the pristine one.

What upstream compiles correctly must come out node for node the same; what it crashes on or
computes wrongly must be right. AITER is a stand-in (see `simulation/aiter_stand_in`).
"""

import difflib
import functools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from simulation import simulated

ROCM, FA, UNIFIED = "ROCM_ATTN", "ROCM_AITER_FA", "ROCM_AITER_UNIFIED_ATTN"
TRITON = "TRITON_ATTN"

UNFUSED = "unified_kv_cache_update"
ROPE = "fused_rope_and_unified_kv_cache_update"
QK_NORM = "fused_qk_norm_rope_and_unified_kv_cache_update"
QK_NORM_MROPE = "fused_qk_norm_mrope_and_unified_kv_cache_update"

Layer = tuple[str, tuple[int, int, int], dict[str, Any]]

FP8: dict[str, Any] = {"cache": {"cache_dtype": "fp8"}}
FP8_OP = {**FP8, "custom_ops": ("+rotary_embedding", "+quant_fp8")}
AITER_ROPE = {"VLLM_ROCM_USE_AITER_TRITON_ROPE": "1"}
SMALL, OTHER = (4, 2, 64), (2, 1, 128)
NORM: dict[str, Any] = {"norm": "rms"}


@dataclass(frozen=True)
class Graph:
    """One graph's layers: backend, (num_heads, num_kv_heads, head_size), Prologue's arguments.

    served: the ops that must write the caches, in order. config: arguments of `fusing_config`.
    env: vLLM's variables about AITER. mrope: M-RoPE's three sections, and whether interleaved.
    upstream: what upstream's graph is: "right", "wrong" or "crashes", at compiling or in a hook.
    """

    layers: list[Layer]
    served: list[str]
    config: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    mrope: tuple[list[int], bool] | None = None
    upstream: str = "right"


def _families(backend: str) -> list[Layer]:
    """Llama's, Qwen3's, Gemma's, LFM2's and Qwen3-Next's prologues, of one shape."""
    kinds: list[dict[str, Any]] = [
        {},
        {"rotary_dim": 32},
        {"is_neox": False},
        NORM,
        {"norm": "rms", "eps": 1e-5, "rotary_dim": 32},
        {"norm": "rms", "is_neox": False},
        {"norm": "gemma"},
        {"norm": "rms", "v_norm": True},
        {"norm": "rms", "by_head": True},
        {"norm": "gemma", "gated": True},
    ]
    return [(backend, SMALL, kind) for kind in kinds]


_ALL_FUSED = [*[ROPE] * 3, *[QK_NORM] * 4, *[UNFUSED] * 3]
_ROPE_FUSED = [*[ROPE] * 3, *[UNFUSED] * 7]


def _each(backends: list[str], heads: tuple[int, int, int], **arguments: Any) -> list[Layer]:
    return [(backend, heads, arguments) for backend in backends]


# With one shape, every backend's; with several, those that upstream's first shape does not catch.
SAME = {
    **{f"families, {b}": Graph(_families(b), _ALL_FUSED) for b in (ROCM, FA, UNIFIED)},
    f"families, {TRITON}": Graph(_families(TRITON), _ROPE_FUSED),
    "fp8 cache": Graph(_families(ROCM) + _families(FA), _ALL_FUSED * 2, FP8),
    f"fp8 query, {UNIFIED}": Graph(_families(UNIFIED), _ALL_FUSED, FP8),
    f"fp8 query, {TRITON}": Graph(_families(TRITON), _ROPE_FUSED, FP8),
    "fp8 query without AITER's quantization": Graph(
        _each([TRITON, UNIFIED], SMALL) + _each([UNIFIED], SMALL, **NORM),
        [ROPE, ROPE, UNFUSED],
        FP8_OP,
        {"VLLM_ROCM_USE_AITER_LINEAR": "0"},
    ),
    "fp8 query, a scale for each KV head": Graph(
        _each([UNIFIED, TRITON], SMALL, scales=2) + _each([UNIFIED], SMALL, scales=2, **NORM),
        [UNFUSED, UNFUSED, QK_NORM],
        FP8_OP,
    ),
    "AITER's rotary op": Graph(
        _each([ROCM, FA, UNIFIED], SMALL) + _each([ROCM, FA, UNIFIED], SMALL, **NORM),
        [ROPE] * 3 + [QK_NORM] * 3,
        env=AITER_ROPE,
    ),
    f"AITER's rotary op, fp8 query, {UNIFIED}": Graph(
        _families(UNIFIED), _ALL_FUSED, FP8, env=AITER_ROPE
    ),
    f"AITER's rotary op, {TRITON}": Graph(_families(TRITON), _ROPE_FUSED, env=AITER_ROPE),
    "rotation in plain ops": Graph(
        _each([UNIFIED], SMALL) + _each([UNIFIED], SMALL, **NORM),
        [UNFUSED] * 2,
        {"custom_ops": ("-rotary_embedding",)},
    ),
    "one KV head": Graph(
        _each([ROCM, FA, UNIFIED], (4, 1, 128)) + _each([ROCM, FA, UNIFIED], (4, 1, 128), **NORM),
        [ROPE] * 3 + [QK_NORM] * 3,
    ),
    "as many KV heads, float16": Graph(
        _each([ROCM, FA, UNIFIED], (2, 2, 256)) + _each([ROCM, FA, UNIFIED], (2, 2, 256), **NORM),
        [ROPE] * 3 + [QK_NORM] * 3,
        {"dtype": "float16"},
    ),
    "RoPE of one shape, norms of another": Graph(
        [*_each([FA, UNIFIED], SMALL), *_each([FA, UNIFIED], OTHER, **NORM)],
        [ROPE, ROPE, UNFUSED, UNFUSED],
        {"qk_norm": False},
    ),
    "norms of one shape, RoPE of another": Graph(
        [*_each([FA, UNIFIED], SMALL, **NORM), *_each([FA, UNIFIED], OTHER)],
        [QK_NORM, QK_NORM, UNFUSED, UNFUSED],
        {"rope": False},
    ),
    "a head size without norm kernels": Graph(
        _each([ROCM, FA, UNIFIED], (4, 2, 96)) + _each([ROCM, FA, UNIFIED], (4, 2, 96), **NORM),
        [ROPE] * 3 + [UNFUSED] * 3,
    ),
    "Q scaled by position": Graph(
        _each([ROCM, FA, UNIFIED, TRITON], SMALL, q_scaling=(0.1, 16)), [UNFUSED] * 4
    ),
    "M-RoPE": Graph(
        _each([UNIFIED], SMALL, **NORM) * 2 + _each([UNIFIED], SMALL, is_neox=False, **NORM),
        [QK_NORM_MROPE] * 3,
        mrope=([16, 8, 8], False),
    ),
    "M-RoPE, interleaved, partial, fp8 query": Graph(
        _each([UNIFIED], SMALL, **NORM) * 2, [QK_NORM_MROPE] * 2, FP8, mrope=([8, 4, 4], True)
    ),
    "M-RoPE without norms": Graph(
        _each([ROCM, FA, UNIFIED, TRITON], SMALL), [UNFUSED] * 4, mrope=([16, 8, 8], False)
    ),
    "M-RoPE with backends without it": Graph(
        _each([ROCM, FA, TRITON], SMALL, **NORM), [UNFUSED] * 3, mrope=([16, 8, 8], False)
    ),
}


def _of_body(body: str, upstream: str, served: str = UNFUSED, **arguments: Any) -> Graph:
    """One layer that does what a body of `simulation/bodies.py` does."""
    return Graph(_each([ROCM], SMALL, body=body, **arguments), [served], upstream=upstream)


# Head sizes are the one difference that upstream's RoPE pass notices: it leaves the layer unfused.
FUSED_AS_WELL = {
    "two head sizes": Graph(_each([UNIFIED], SMALL) + _each([UNIFIED], OTHER), [ROPE] * 2),
    "same sizes of the split": Graph(
        _each([UNIFIED], (8, 2, 64)) + _each([UNIFIED], (4, 1, 128)), [ROPE] * 2
    ),
}

MENDED = {
    "two head sizes, norms": Graph(
        _each([FA], SMALL, **NORM) + _each([FA], OTHER, **NORM), [QK_NORM] * 2, upstream="crashes"
    ),
    "two head counts": Graph(
        _each([ROCM], SMALL) + _each([ROCM], (6, 2, 64)), [ROPE] * 2, upstream="crashes"
    ),
    "two head counts, norms": Graph(
        _each([ROCM], SMALL, **NORM) + _each([ROCM], (4, 1, 64), **NORM),
        [QK_NORM] * 2,
        upstream="crashes",
    ),
    "two head sizes, fp8 query": Graph(
        _each([UNIFIED], SMALL, **NORM) + _each([UNIFIED], OTHER, **NORM),
        [QK_NORM] * 2,
        FP8,
        upstream="crashes",
    ),
    "two head sizes, fp8 query, a scale for each KV head": Graph(
        _each([UNIFIED], SMALL, scales=2, **NORM) + _each([UNIFIED], (8, 2, 128), scales=2, **NORM),
        [QK_NORM] * 2,
        FP8_OP,
        upstream="crashes",
    ),
    "a backend without norms beside one with": Graph(
        _each([UNIFIED, TRITON], SMALL, **NORM), [QK_NORM, UNFUSED], upstream="crashes"
    ),
    "M-RoPE, a backend without it beside one with": Graph(
        _each([UNIFIED, FA], SMALL, **NORM),
        [QK_NORM_MROPE, UNFUSED],
        mrope=([16, 8, 8], False),
        upstream="crashes",
    ),
    "a head size without norm kernels beside one with": Graph(
        _each([FA], SMALL, **NORM) + _each([FA], (4, 2, 96), **NORM),
        [QK_NORM, UNFUSED],
        upstream="crashes",
    ),
    "encoder-only": Graph(
        _each([ROCM], SMALL, attn_type="encoder_only"), [UNFUSED], upstream="wrong"
    ),
    "encoder-only, norms": Graph(
        _each([ROCM], SMALL, attn_type="encoder_only", **NORM), [UNFUSED], upstream="wrong"
    ),
    "[gate, q, k, v]": _of_body("gate_first", "crashes", width=768),
    "[v, q, k]": _of_body("v_first", "crashes"),
    "[k, q, v]": _of_body("k_first", "crashes"),
    "V projected apart": _of_body("v_apart", "crashes", width=384),
    "rotated Q used twice": _of_body("rotated_q_twice", "crashes"),
    "Q from before RoPE used later": _of_body("raw_q_later", "wrong"),
    "qkv from before RoPE used later": _of_body("raw_qkv_later", "wrong", ROPE),
    "inverse rotation": _of_body("inverse_rotation", "wrong"),
    "rotation with an offset": _of_body("rotation_with_offset", "wrong", rotary_dim=32),
    "rotation of half heads, norms": _of_body(
        "rotation_of_half_heads", "wrong", rotary_dim=32, **NORM
    ),
}


def layers_of(config: Any, graph: Graph) -> list[Any]:
    """The graph's prologues."""
    import torch
    from simulation import bodies
    from simulation.prologues import MAX_POSITION, Prologue
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.layers.quantization.input_quant_fp8 import QuantFP8
    from vllm.model_executor.layers.quantization.utils.quant_utils import GroupShape
    from vllm.model_executor.layers.rotary_embedding import MRotaryEmbedding
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    def layer(backend: str, heads: tuple[int, int, int], arguments: dict[str, Any]) -> Any:
        arguments = dict(arguments)
        if "body" in arguments:
            arguments["body"] = getattr(bodies, arguments["body"])
        if graph.mrope:
            sections, interleaved = graph.mrope
            arguments["body"] = bodies.rotation_module
            arguments["modules"] = lambda: {
                "first": MRotaryEmbedding(
                    heads[2],
                    2 * sum(sections),
                    MAX_POSITION,
                    1e4,
                    arguments.get("is_neox", True),
                    config.model_config.dtype,
                    mrope_section=sections,
                    mrope_interleaved=interleaved,
                )
            }
        scales = arguments.pop("scales", None)
        made = Prologue(
            config, *heads, attn_backend=AttentionBackendEnum[backend].get_class(), **arguments
        )
        if scales is not None:
            with set_current_vllm_config(config):
                group = GroupShape(-1, heads[0] * heads[2] // scales)
                made.attn.query_quant = QuantFP8(static=True, group_shape=group)
            made.attn._q_scale = torch.linspace(0.5, 1.5, scales)
        made.positions_of = lambda x: torch.stack([x, x // 2, x // 3])
        return made

    return [layer(*asked) for asked in graph.layers]


def compile_all(graphs: dict[str, Graph]) -> dict[str, dict[str, Any]]:
    """What becomes of each graph: `Compiled`'s attributes."""
    from simulation.graphs import compiled
    from simulation.hf_configs import QWEN3
    from simulation.prologues import fusing_config
    from vllm._aiter_ops import rocm_aiter_ops

    found = {}
    for name, graph in graphs.items():
        # Patterns take long to make, so a pass is off where it has nothing to do.
        normed = any("norm" in arguments for _, _, arguments in graph.layers)
        more = {"qk_norm": normed, **graph.config}
        if graph.mrope:
            sections, interleaved = graph.mrope
            parameters = {"mrope_section": sections, "mrope_interleaved": interleaved}
            parameters |= {"rope_type": "default", "rope_theta": 1e6}
            more["hf_config"] = {**QWEN3, "rope_parameters": parameters}
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in graph.env.items():
                patch.setenv(variable, value)
            rocm_aiter_ops.refresh_env_variables()
            config = fusing_config(**more)
            # Fusions of other parts of a model.
            passes = config.compilation_config.pass_config
            passes.fuse_norm_quant = passes.fuse_act_quant = False
            found[name] = vars(compiled(config, layers_of(config, graph)))
        rocm_aiter_ops.refresh_env_variables()
    return found


@simulated(arch="gfx942", aiter=True, env={"VLLM_ROCM_USE_AITER": "1"})
def compile_same() -> dict[str, dict[str, Any]]:
    return compile_all(SAME)


@simulated(arch="gfx942", aiter=True, env={"VLLM_ROCM_USE_AITER": "1"})
def compile_others() -> dict[str, dict[str, Any]]:
    return compile_all(FUSED_AS_WELL | MENDED)


@functools.cache
def on_both(ask: Any) -> list[dict[str, dict[str, Any]]]:
    """What the pristine and the patched tree make of the graphs; both at once."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda tree: ask.on(tree=tree), ("pristine", "patched")))


def _assert_right(patched: dict[str, Any], graph: Graph) -> None:
    assert patched["fault"] == ""
    assert patched["served"] == graph.served


@pytest.mark.parametrize("name", SAME)
def test_what_upstream_compiles_correctly_comes_out_the_same(name: str) -> None:
    pristine, patched = (tree[name] for tree in on_both(compile_same))
    assert pristine["fault"] == ""
    _assert_right(patched, SAME[name])
    assert list(pristine["graphs"]) == ["after the fusions", "after all passes"]
    for stage, before in pristine["graphs"].items():
        after = patched["graphs"][stage]
        lines = difflib.unified_diff(
            before.splitlines(), after.splitlines(), "pristine", "patched", lineterm="", n=1
        )
        assert after == before, "\n".join([stage, *lines])


@pytest.mark.parametrize("name", FUSED_AS_WELL)
def test_layers_are_fused_that_upstream_leaves_unfused_for_their_head_size(name: str) -> None:
    pristine, patched = (tree[name] for tree in on_both(compile_others))
    assert pristine["fault"] == ""
    assert pristine["served"] == [ROPE, UNFUSED]
    _assert_right(patched, FUSED_AS_WELL[name])


@pytest.mark.parametrize("name", MENDED)
def test_what_upstream_does_not_compile_correctly_is_right(name: str) -> None:
    pristine, patched = (tree[name] for tree in on_both(compile_others))
    assert pristine["fault"].split(":")[0] == MENDED[name].upstream, pristine["fault"]
    _assert_right(patched, MENDED[name])
