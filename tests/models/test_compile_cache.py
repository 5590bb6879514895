"""A second process takes the compiled model from vLLM's cache; one of another version does not.

vLLM's cache goes by its version, which a wheel of this series extends by its number. Inductor's own
cache goes by the passes' uuid.
"""

from pathlib import Path
from typing import Any

import pytest
from simulation import simulated


@simulated()
def _serve(cache: Path, version: str = "") -> dict[str, Any]:
    """What a process with this cache folder compiles and loads, and what the model then says."""
    import os

    import vllm
    from e2e.catalogue import MODELS
    from e2e.engine import Engine, config_of
    from e2e.faults import watched
    from e2e.schedule import play
    from vllm.compilation.counter import compilation_counter

    os.environ["VLLM_CACHE_ROOT"] = str(cache)
    vllm.__version__ = version or vllm.__version__
    config = config_of(
        {**MODELS["qwen3"].hf_config, "num_hidden_layers": 1},
        model_loader_extra_config={"qk_norm_size": 1.0, "embedding_size": 1.0},
    )
    engine = Engine(config, 0, Path("meeting").resolve())
    with watched() as watch:
        record = play(engine, prompts_only=True)
    return {
        "compiled": compilation_counter.num_compiled_artifacts_saved,
        "loaded": compilation_counter.num_aot_artifacts_loaded,
        "fused": watch.calls,
        "said": [{at: row.tolist() for at, row in t.log_probs.items()} for t in record.texts],
    }


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def first(cache: Path) -> dict[str, Any]:
    """What the first process with the cache folder does."""
    return _serve.alone(cache=cache)


@pytest.mark.slow
def test_a_second_process_loads_what_the_first_compiled(first: dict[str, Any], cache: Path) -> None:
    second = _serve.alone(cache=cache)
    assert first["compiled"] and not first["loaded"]
    assert second["loaded"] and not second["compiled"]
    assert first["fused"] == {"model.layers.0.self_attn.attn": {"norm", "rope", "write"}}
    assert second["fused"] == first["fused"]
    assert second["said"] == first["said"]


@pytest.mark.slow
def test_another_version_compiles_anew(first: dict[str, Any], cache: Path) -> None:
    second = _serve.alone(cache=cache, version="0.33.0+gfx1151.9999")
    assert second["compiled"] == first["compiled"]
    assert not second["loaded"]
    assert second["said"] == first["said"]


@pytest.mark.parametrize(
    "module",
    [
        "fusion.rope_kvcache_match",
        "fusion.rope_kvcache_fusion",
        "fusion.qk_norm_rope_kvcache_fusion",
        "utility.fix_functionalization",
        "utility.scatter_split_replace",
    ],
)
@simulated()
def test_the_passes_uuid_follows_their_source(module: str) -> None:
    import importlib
    import inspect

    from e2e.catalogue import MODELS
    from e2e.engine import Engine, config_of
    from vllm.compilation.passes import inductor_pass
    from vllm.compilation.passes.pass_manager import PostGradPassManager
    from vllm.config import set_current_vllm_config
    from vllm.config.utils import Range

    sizes = {"qk_norm_size": 1.0, "embedding_size": 1.0}
    config = config_of(MODELS["qwen3"].hf_config, model_loader_extra_config=sizes)
    Engine(config, 0, Path("meeting").resolve())
    edited = importlib.import_module(f"vllm.compilation.passes.{module}")
    source = inspect.getsource

    def uuid() -> str:
        inductor_pass._hash_source_cached.cache_clear()
        manager = PostGradPassManager()
        with set_current_vllm_config(config), inductor_pass.pass_context(Range(1, 128)):
            manager.configure(config)
            return manager.uuid()

    def after_the_edit(what: Any) -> str:
        return source(what) + ("# edited" if inspect.getmodule(what) is edited else "")

    before = uuid()
    assert uuid() == before
    inspect.getsource = after_the_edit  # type: ignore[assignment]
    try:
        assert uuid() != before
    finally:
        inspect.getsource = source
