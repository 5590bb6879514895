"""When the fusions with the KV cache write are on, and what else the configuration is then.

What is expected of everything that they do not concern is what the pristine tree resolves.
"""

import functools
from typing import Any

from simulation import simulated

ROPE, QK_NORM = "fuse_rope_kvcache", "fuse_qk_norm_rope_kvcache"
BOTH = {ROPE: True, QK_NORM: True}
PASSES = "compilation_config.pass_config"
UPDATE = "vllm::unified_kv_cache_update"
UPSTREAM = {"tree": "pristine", "op": False}


def _fused(found: dict[str, str]) -> list[str]:
    """Which of the two flags are on in a configuration's settings."""
    assert "refused" not in found, found
    return [name for name in (ROPE, QK_NORM) if found[f"{PASSES}.{name}"] == "True"]


@functools.cache
def _of_users(**machine: Any) -> dict[str, dict[str, str]]:
    """What a machine makes of what users ask for, by the names in `_users`."""
    return _users.on(**machine)


@simulated()
def _users() -> dict[str, dict[str, str]]:
    from simulation.configurations import resolved

    asked: dict[str, dict[str, Any]] = {
        "nothing": {},
        "both": {"passes": BOTH},
    }
    return {name: resolved(**settings) for name, settings in asked.items()}


def test_both_fusions_are_on_by_default_with_what_they_need() -> None:
    found = _of_users()["nothing"]
    assert _fused(found) == [ROPE, QK_NORM]
    assert "+rotary_embedding" in found["compilation_config.custom_ops"]
    assert UPDATE not in found["compilation_config.splitting_ops"]
    assert "vllm::unified_mla_kv_cache_update" in found["compilation_config.splitting_ops"]


def test_upstream_has_neither_by_default() -> None:
    found = _of_users(**UPSTREAM)["nothing"]
    assert _fused(found) == []
    assert "rotary_embedding" not in found["compilation_config.custom_ops"]


def test_a_request_is_honoured() -> None:
    found = _of_users()["both"]
    assert _fused(found) == [ROPE, QK_NORM]
    assert UPDATE not in found["compilation_config.splitting_ops"]


def test_upstream_undoes_a_request_and_keeps_its_side_effects() -> None:
    found = _of_users(**UPSTREAM)["both"]
    assert _fused(found) == []
    assert "+rotary_embedding" in found["compilation_config.custom_ops"]
    assert UPDATE in found["compilation_config.splitting_ops"]
