"""When the fusions with the KV cache write are on, and what else the configuration is then.

`test_default_matrix.py` combines what concerns every model; here are the reasons one by one. What
is expected of everything that the fusions do not concern is what the pristine tree resolves.
"""

import functools
from typing import Any

import pytest
from simulation import simulated
from simulation.hf_configs import BERT, DEEPSEEK, GEMMA4, MAMBA, QWEN3, WINDOWED

ROPE, QK_NORM = "fuse_rope_kvcache", "fuse_qk_norm_rope_kvcache"
BOTH = {ROPE: True, QK_NORM: True}
THRESHOLD = "rope_kvcache_fusion_max_token_num"
COMPILATION, PASSES = "compilation_config", "compilation_config.pass_config"
ATTENTION_OP, UPDATE = "vllm::unified_attention_with_output", "vllm::unified_kv_cache_update"
UPSTREAM = {"tree": "pristine", "op": False}

# What keeps a model from being fused: settings, and the words that a request is refused with.
IN_THE_WAY: dict[str, tuple[dict[str, Any], str]] = {
    "fp32": ({"dtype": "float32"}, "activations are torch.float32"),
    "fp8 cache": ({"cache_dtype": "fp8"}, "the KV cache is quantized (fp8)"),
    "int8 cache": ({"cache_dtype": "int8_per_token_head"}, "the KV cache is quantized"),
    "checkpoint with an fp8 cache": (
        {
            "hf_config": {
                **QWEN3,
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "format": "dense",
                    "config_groups": {},
                    "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"},
                },
            }
        },
        "the checkpoint quantizes the KV cache",
    ),
    "TRITON_ATTN": ({"backend": "TRITON_ATTN"}, "TRITON_ATTN serves head size 128"),
    "FLEX_ATTENTION": ({"backend": "FLEX_ATTENTION"}, "FLEX_ATTENTION serves head size 128"),
    "another backend for windows": (
        {
            "hf_config": WINDOWED,
            "attention": {"backend_per_kind": {"sliding_window": "TRITON_ATTN"}},
        },
        "TRITON_ATTN serves head size 128 with a window",
    ),
    "head size 80": ({"hf_config": {**QWEN3, "head_dim": 80}}, "not built for head size 80"),
    "MLA": ({"hf_config": DEEPSEEK}, "the model uses MLA"),
    "encoder": ({"hf_config": BERT, "model": {"runner": "pooling"}}, "the model is encoder_only"),
    "no attention": ({"hf_config": MAMBA}, "the model is attention_free"),
    "Transformers backend": (
        {"hf_config": {**QWEN3, "sliding_window": None}, "model": {"model_impl": "transformers"}},
        "models of the Transformers backend",
    ),
    "eager": ({"model": {"enforce_eager": True}}, "not compiled by vLLM (mode NONE)"),
    "-O0": ({"level": 0}, "not compiled by vLLM (mode NONE)"),
    "stock compilation": ({"mode": "STOCK_TORCH_COMPILE"}, "(mode STOCK_TORCH_COMPILE)"),
    "eager compile backend": ({"backend_of_compilation": "eager"}, "the compile backend is eager"),
    "splitting at the update": (
        {"splitting_ops": [ATTENTION_OP, UPDATE]},
        f"splitting_ops has {UPDATE}",
    ),
    "splitting at the update's overload": (
        {"splitting_ops": [ATTENTION_OP, f"{UPDATE}.default"]},
        f"splitting_ops has {UPDATE}",
    ),
    "KV connector": ({"kv_connector": "ExampleConnector"}, "TRITON_ATTN serves head size 128"),
}

# What users ask for that is honoured.
USERS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "nothing at -O1": {"level": 1},
    "nothing at -O3": {"level": 3},
    "nothing, fp16": {"dtype": "float16"},
    "nothing, Gemma 4": {"hf_config": GEMMA4},
    "nothing, windows": {"hf_config": WINDOWED},
    "nothing, one head size of two": {
        "hf_config": {
            **GEMMA4,
            "head_dim": 80,
            "per_layer_config": {"1": {"head_dim": 512}},
        }
    },
    "another backend for windows, without any": {
        "attention": {"backend_per_kind": {"sliding_window": "TRITON_ATTN"}}
    },
    "ROCM_ATTN": {"backend": "ROCM_ATTN"},
    "both": {"passes": BOTH},
    "both at -O1": {"passes": BOTH, "level": 1},
    "RoPE's": {"passes": {ROPE: True}},
    "RoPE's at -O1": {"passes": {ROPE: True}, "level": 1},
    "QK norm's at -O1": {"passes": {QK_NORM: True}, "level": 1},
    "QK norm's alone": {"passes": {ROPE: False, QK_NORM: True}},
    "both, compiled at -O0": {"passes": BOTH, "level": 0, "mode": "VLLM_COMPILE"},
    "both, split nowhere": {"passes": {**BOTH, THRESHOLD: 256}, "splitting_ops": []},
    "both, split at attention": {
        "passes": {**BOTH, THRESHOLD: 256},
        "splitting_ops": [ATTENTION_OP],
    },
    "both, partitioned in Inductor": {
        "passes": {**BOTH, THRESHOLD: 256},
        "use_inductor_graph_partition": True,
    },
    "partitioned in Inductor at the update": {
        "use_inductor_graph_partition": True,
        "splitting_ops": [ATTENTION_OP, UPDATE],
    },
    "neither": {"passes": {ROPE: False, QK_NORM: False}},
    "attention fused with quantization": {"passes": {"fuse_attn_quant": True}},
    "nothing, larger batches": {"scheduler": {"max_num_batched_tokens": 16384}},
    "neither, larger batches": {
        "passes": {ROPE: False, QK_NORM: False},
        "scheduler": {"max_num_batched_tokens": 16384},
    },
    "up to 256 tokens": {"passes": {THRESHOLD: 256}},
    "up to 64 tokens": {"passes": {THRESHOLD: 64}},
    "up to more tokens than a batch has": {"passes": {THRESHOLD: 4096}},
    "a range of its own": {"compile_ranges_endpoints": [16]},
    "-rotary_embedding": {"custom_ops": ["-rotary_embedding"]},
}


def _fused(found: dict[str, str]) -> list[str]:
    """Which of the two flags are on in a configuration's settings."""
    assert "refused" not in found, found
    return [name for name in (ROPE, QK_NORM) if found[f"{PASSES}.{name}"] == "True"]


def _without_request(found: dict[str, str]) -> dict[str, str]:
    return {k: v for k, v in found.items() if k not in (f"{PASSES}.{ROPE}", f"{PASSES}.{QK_NORM}")}


@functools.cache
def _of_users(**machine: Any) -> dict[str, dict[str, str]]:
    """What a machine makes of each of USERS."""
    return _users.on(**machine)


@simulated()
def _users() -> dict[str, dict[str, str]]:
    from simulation.configurations import resolved

    return {name: resolved(**asked) for name, asked in USERS.items()}


@functools.cache
def _of_those_in_the_way(**machine: Any) -> dict[str, dict[str, dict[str, str]]]:
    """What a machine makes of IN_THE_WAY, without and with a request for both fusions."""
    return _in_the_way.on(**machine)


@simulated()
def _in_the_way() -> dict[str, dict[str, dict[str, str]]]:
    from simulation.configurations import resolved

    return {
        name: {"default": resolved(**asked), "request": resolved(passes=BOTH, **asked)}
        for name, (asked, _) in IN_THE_WAY.items()
    }


# By default.


@pytest.mark.parametrize(
    "user",
    [
        "nothing",
        "nothing at -O3",
        "nothing, fp16",
        "nothing, Gemma 4",
        "nothing, windows",
        "nothing, one head size of two",
        "another backend for windows, without any",
        "ROCM_ATTN",
        "attention fused with quantization",
        "partitioned in Inductor at the update",
    ],
)
def test_both_are_on_by_default_with_what_they_need(user: str) -> None:
    found = _of_users()[user]
    assert _fused(found) == [ROPE, QK_NORM]
    assert "'+rotary_embedding'" in found[f"{COMPILATION}.custom_ops"]
    if user != "partitioned in Inductor at the update":
        assert UPDATE not in found[f"{COMPILATION}.splitting_ops"]
    assert _fused(_of_users(**UPSTREAM)[user]) == []


def test_splitting_ops_are_otherwise_as_upstream() -> None:
    path = f"{COMPILATION}.splitting_ops"
    here, there = (found["nothing"][path] for found in (_of_users(), _of_users(**UPSTREAM)))
    assert f"'{UPDATE}'" in there
    assert here == there.replace(f"'{UPDATE}', ", "")


def test_resolvers_that_can_never_be_true_do_not_decide() -> None:
    """vLLM 57900: upstream's wait for `+rotary_embedding`, which only the flag would add."""
    there = _of_users(**UPSTREAM)["nothing"]
    assert _fused(there) == []
    assert "rotary_embedding" not in there[f"{COMPILATION}.custom_ops"]
    assert _fused(_of_users()["nothing"]) == [ROPE, QK_NORM]


def test_o1_has_neither() -> None:
    assert _of_users()["nothing at -O1"] == _of_users(**UPSTREAM)["nothing at -O1"]


@pytest.mark.parametrize("user", ["neither", "-rotary_embedding"])
def test_a_users_no_is_kept(user: str) -> None:
    assert _of_users()[user] == _of_users(**UPSTREAM)[user]


@pytest.mark.parametrize("case", IN_THE_WAY)
def test_what_cannot_be_fused_pays_for_nothing(case: str) -> None:
    """vLLM 55720: no custom op, compile range or other graph where there is nothing to fuse."""
    here = _of_those_in_the_way()[case]["default"]
    assert "refused" not in here
    assert here == _of_those_in_the_way(**UPSTREAM)[case]["default"]


# On request.


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("both", [ROPE, QK_NORM]),
        ("both at -O1", [ROPE, QK_NORM]),
        ("RoPE's", [ROPE, QK_NORM]),
        ("RoPE's at -O1", [ROPE]),
        ("QK norm's at -O1", [QK_NORM]),
        ("QK norm's alone", [QK_NORM]),
        ("both, compiled at -O0", [ROPE, QK_NORM]),
        ("both, split nowhere", [ROPE, QK_NORM]),
        ("both, split at attention", [ROPE, QK_NORM]),
        ("both, partitioned in Inductor", [ROPE, QK_NORM]),
    ],
)
def test_a_request_is_honoured(user: str, expected: list[str]) -> None:
    found = _of_users()[user]
    assert _fused(found) == expected
    assert "'+rotary_embedding'" in found[f"{COMPILATION}.custom_ops"]
    assert UPDATE not in found[f"{COMPILATION}.splitting_ops"]


@pytest.mark.parametrize("user", ["both", "RoPE's", "QK norm's alone"])
def test_a_flag_is_not_undone(user: str) -> None:
    """vLLM 57349: upstream takes the flag back and keeps its custom op and compile range."""
    there = _of_users(**UPSTREAM)[user]
    assert _fused(there) == []
    assert "'+rotary_embedding'" in there[f"{COMPILATION}.custom_ops"]
    assert there[f"{COMPILATION}.compile_ranges_endpoints"].startswith("[256")
    assert QK_NORM in _fused(_of_users()[user])


@pytest.mark.parametrize(
    "user", ["both, split nowhere", "both, split at attention", "both, partitioned in Inductor"]
)
def test_a_users_splitting_ops_are_kept(user: str) -> None:
    assert _of_users()[user] == _of_users(**UPSTREAM)[user]


@pytest.mark.parametrize("case", IN_THE_WAY)
def test_a_request_that_cannot_be_honoured_is_refused_with_the_reason(case: str) -> None:
    refusal = _of_those_in_the_way()[case]["request"].get("refused", "not refused")
    assert IN_THE_WAY[case][1] in refusal
    assert f"pass_config.{ROPE}=True cannot be honoured on gfx1151" in refusal
    assert "refused" not in _of_those_in_the_way(**UPSTREAM)[case]["request"]


def test_a_request_against_minus_rotary_embedding_is_refused() -> None:
    found = _asked_against_the_custom_op()
    assert "rotary_embedding" in found["before"]
    assert "custom_ops has -rotary_embedding" in found["after"]


@simulated()
def _asked_against_the_custom_op() -> dict[str, str]:
    from simulation.configurations import resolved
    from simulation.models import vllm_config
    from vllm.config import CompilationConfig

    # A flag may also be set on a CompilationConfig that is there already.
    compilation = CompilationConfig(custom_ops=["-rotary_embedding"])
    compilation.pass_config.fuse_qk_norm_rope_kvcache = True
    with pytest.raises(ValueError) as refusal:
        vllm_config(compilation_config=compilation)
    before = resolved(passes={ROPE: True}, custom_ops=["-rotary_embedding"])
    return {"before": before["refused"], "after": str(refusal.value)}


@simulated()
def _without_model() -> list[dict[str, str]]:
    from simulation.configurations import settings
    from vllm.config import CompilationConfig, VllmConfig

    requested = CompilationConfig(pass_config=dict(BOTH))
    return [settings(VllmConfig()), settings(VllmConfig(compilation_config=requested))]


def test_without_a_model_everything_is_as_upstream() -> None:
    assert _without_model() == _without_model.on(**UPSTREAM)


# Compile ranges.


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("nothing", [(1, 2048)]),
        ("nothing, larger batches", [(1, 8192), (8193, 16384)]),
        ("neither, larger batches", [(1, 16384)]),
        ("up to 256 tokens", [(1, 256), (257, 2048)]),
        ("up to 64 tokens", [(1, 64), (65, 2048)]),
        ("up to more tokens than a batch has", [(1, 2048)]),
        ("a range of its own", [(1, 16), (17, 2048)]),
        ("neither", [(1, 2048)]),
        ("-rotary_embedding", [(1, 2048)]),
    ],
)
def test_the_threshold_ends_a_compile_range(user: str, expected: list[tuple[int, int]]) -> None:
    assert _ranges()[user] == expected


@pytest.mark.parametrize("user", ["neither", "nothing at -O1", "-rotary_embedding"])
def test_without_a_fusion_the_threshold_is_upstreams(user: str) -> None:
    path = f"{PASSES}.{THRESHOLD}"
    assert _of_users()[user][path] == _of_users(**UPSTREAM)[user][path] == "256"


@simulated()
def _ranges() -> dict[str, list[tuple[int, int]]]:
    from simulation.configurations import configure

    found = {}
    for name in USERS:
        compilation = configure(**USERS[name]).compilation_config
        found[name] = [(r.start, r.end) for r in compilation.get_compile_ranges()]
    return found


# The order in which vLLM resolves a configuration, which all of this relies on.


@simulated()
def _order() -> list[str]:
    from simulation.models import model_config
    from vllm.config import CompilationConfig, VllmConfig
    from vllm.platforms import current_platform

    order: list[str] = []

    def note(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        before = getattr(owner, name)

        def noting(*args: Any, **kwargs: Any) -> Any:
            order.append(name)
            return before(*args, **kwargs)

        monkeypatch.setattr(owner, name, noting)

    compilation = CompilationConfig(pass_config=dict(BOTH))
    assert "+rotary_embedding" in compilation.custom_ops, "not added by CompilationConfig itself"
    model = model_config()
    with pytest.MonkeyPatch.context() as monkeypatch:
        note(VllmConfig, "try_verify_and_update_config", monkeypatch)
        note(current_platform, "apply_config_platform_defaults", monkeypatch)
        note(VllmConfig, "_apply_optimization_level_defaults", monkeypatch)
        note(current_platform, "check_and_update_config", monkeypatch)
        note(VllmConfig, "_set_compile_ranges", monkeypatch)
        note(CompilationConfig, "set_splitting_ops_for_v1", monkeypatch)
        VllmConfig(model_config=model, compilation_config=compilation)
    return order


@pytest.mark.parametrize("machine", [{}, UPSTREAM], ids=["patched", "pristine"])
def test_a_configuration_is_resolved_in_this_order(machine: dict[str, Any]) -> None:
    assert _order.on(**machine) == [
        "try_verify_and_update_config",
        "apply_config_platform_defaults",
        "_apply_optimization_level_defaults",
        "check_and_update_config",
        "_set_compile_ranges",
        "set_splitting_ops_for_v1",
    ]


# The build and the environment.


def test_without_the_op_everything_is_as_upstream_and_a_request_refused() -> None:
    here, there = _of_users(op=False), _of_users(**UPSTREAM)
    for user in ("nothing", "ROCM_ATTN", "neither", "nothing, Gemma 4"):
        assert here[user] == there[user]
    assert "this build has no rdna35_rope_cache" in here["both"]["refused"]


def test_the_setting_turns_all_of_it_off() -> None:
    """VLLM_ROCM_USE_GFX1151_ATTN=0."""
    former = (("VLLM_ROCM_USE_GFX1151_ATTN", "0"),)
    here, there = _of_users(env=former), _of_users(**UPSTREAM)
    for user in ("nothing", "ROCM_ATTN", "neither", "nothing, Gemma 4"):
        assert here[user] == there[user]
    assert "VLLM_ROCM_USE_GFX1151_ATTN=0 turns it off" in here["both"]["refused"]


def test_an_aiter_that_gfx1151_cannot_import_does_not_matter() -> None:
    """aiter 1498: it is installed and switched on, and its import fails on gfx1151."""
    found = _with_aiter.on(aiter=True, env=(("VLLM_ROCM_USE_AITER", "1"),))
    assert "gfx1151 is none of" in found.pop("import")
    assert found == {"flags": "True, True", "layer": "RocmGfx1151AttentionImpl", "fuses": "True"}


@simulated()
def _with_aiter() -> dict[str, str]:
    from simulation import layers
    from simulation.configurations import configure

    with pytest.raises(RuntimeError) as refusal:
        import aiter  # noqa: F401
    config = configure()
    passes = config.compilation_config.pass_config
    impl = layers.attention(config, 4, 2, 128).impl
    return {
        "import": str(refusal.value),
        "flags": f"{passes.fuse_rope_kvcache}, {passes.fuse_qk_norm_rope_kvcache}",
        "layer": type(impl).__name__,
        "fuses": str(impl.fused_rope_kvcache_supported()),
    }
