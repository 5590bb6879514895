"""Builds a small model of a class and reads which of its layers fuse. Imported on the machine.

Configuration, model, tracing, splitting and passes are vLLM's own, with its defaults on gfx1151.
What comes after the passes, generating code, is left out: a compiled part returns zeros.
"""

import inspect
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import torch
from simulation.prologues import served
from torch import fx, nn
from vllm.compilation import backends
from vllm.compilation.compiler_interface import InductorAdaptor
from vllm.compilation.passes.fusion import rope_kvcache_report
from vllm.compilation.passes.pass_manager import PostGradPassManager
from vllm.config import VllmConfig, get_layers_from_vllm_config, set_current_vllm_config
from vllm.distributed import (
    destroy_model_parallel,
    init_distributed_environment,
    initialize_model_parallel,
    model_parallel_is_initialized,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.forward_context import set_forward_context
from vllm.model_executor.layers import rotary_embedding
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbeddingBase
from vllm.model_executor.model_loader import get_model
from vllm.model_executor.models.registry import ModelRegistry
from vllm.v1.attention import selector
from vllm.v1.worker.workspace import init_workspace_manager

from what_fuses.found import NORM, NORM_V, ROPE, Found, Layer
from what_fuses.instances import Instance, instance

_TOKENS = 8
_LARGEST = 256  # end of the one compile range; below the fusions' own limit
_EMBEDDINGS_ONLY = ("CLIPEmbeddingModel", "SiglipEmbeddingModel")  # take no tokens
_WRITE = torch.ops.vllm.unified_kv_cache_update
# What the op that writes a layer's cache stands for.
_FUSED = {
    "unified_kv_cache_update": "",
    "fused_rope_and_unified_kv_cache_update": ROPE,
    "fused_rope_into_and_unified_kv_cache_update": ROPE,
    "fused_mrope_into_and_unified_kv_cache_update": ROPE,
    "fused_qk_norm_rope_and_unified_kv_cache_update": NORM,
    "fused_qk_norm_mrope_into_and_unified_kv_cache_update": NORM,
    "fused_qkv_norm_rope_and_unified_kv_cache_update": NORM_V,
}


def look(architectures: Sequence[str]) -> Found:
    """What became of the layers of a small model of a class, by its architectures in the registry.

    Raises:
        Exception: Whatever keeps the model from being configured, built or traced.
    """
    torch._dynamo.reset()
    # A rotary module of another configuration may not call the op that this one's would.
    rotary_embedding._ROPE_DICT.clear()
    # Nor may the backend that an encoder-decoder got serve the next model's layers.
    selector._cached_get_attn_backend.cache_clear()
    registered: Any = ModelRegistry.models[architectures[0]]
    registered.load_model_cls()  # says by itself what cannot be imported
    config = _config(instance(architectures))
    with set_current_vllm_config(config), torch.no_grad(), _watched() as seen:
        _join()
        draft = config.speculative_config and config.speculative_config.draft_model_config
        model = get_model(vllm_config=config, model_config=draft)
        made = draft or config.model_config
        # A draft takes every stream of hyper-connections.
        streams = getattr(made.hf_text_config, "hc_count", 1) if draft else 1
        _run(model, config, made.get_hidden_size() * streams)
    return Found(
        built=type(model).__name__,
        layers=tuple(_layers(config, seen)),
        rotations=tuple(sorted({_rotation(m) for m in model.modules() if _rotates(m)})),
        compiled=seen.graphs > 0,
    )


def _config(made_from: Instance) -> VllmConfig:
    arguments: dict[str, Any] = {}
    if made_from.method:
        arguments["speculative_config"] = {"method": made_from.method, "num_speculative_tokens": 1}
        if made_from.draft:
            arguments["speculative_config"]["model"] = _folder(made_from.draft)
    return EngineArgs(
        model=_folder(made_from.hf_config),
        skip_tokenizer_init=True,
        load_format="dummy",
        max_model_len=_LARGEST,
        max_num_seqs=8,
        max_num_batched_tokens=_LARGEST,
        language_model_only=True,
        **arguments,
    ).create_engine_config()


def _folder(hf_config: dict[str, Any]) -> str:
    folder = tempfile.mkdtemp(dir=".")
    Path(folder, "config.json").write_text(json.dumps(hf_config))
    return folder


def _join() -> None:
    """One process; its groups anew, because a mixture of experts has one more."""
    if model_parallel_is_initialized():
        destroy_model_parallel()
    else:
        init_workspace_manager(torch.device("cpu"))
        init_distributed_environment(1, 0, f"file://{Path('meeting').resolve()}", 0, "gloo")
    initialize_model_parallel(1)


def _run(model: nn.Module, config: VllmConfig, hidden_size: int) -> None:
    config.kernel_config.ir_op_priority.set_default()
    positions = torch.arange(_TOKENS)
    if config.model_config.uses_mrope:
        positions = positions.repeat(3, 1)
    given: dict[str, Any] = {
        "input_ids": torch.ones(_TOKENS, dtype=torch.int32),
        "positions": positions,
    }
    parameters = inspect.signature(model.forward).parameters
    if "hidden_states" in parameters:
        given["hidden_states"] = torch.zeros(_TOKENS, hidden_size, dtype=config.model_config.dtype)
    if "intermediate_tensors" in parameters:
        given["intermediate_tensors"] = None
    if type(model).__name__ in _EMBEDDINGS_ONLY:
        given["inputs_embeds"] = cast(Any, model).embed_input_ids(given["input_ids"])
    with set_forward_context(None, config, num_tokens=_TOKENS):
        model(**given)


def _layers(config: VllmConfig, seen: "_Seen") -> Iterator[Layer]:
    layers: dict[str, Any] = get_layers_from_vllm_config(config, AttentionLayerBase)
    for name, layer in layers.items():
        heads = [getattr(layer, x, "") for x in ("num_heads", "num_kv_heads", "head_size")]
        yield Layer(
            kind=type(layer).__name__,
            fused=_FUSED[seen.writers.get(name, "unified_kv_cache_update")],
            writes=name in seen.writers,
            why_not=seen.reasons.get(name) or "",
            heads="/".join(map(str, heads)) if all(heads) else "",
        )


def _rotates(module: nn.Module) -> bool:
    return isinstance(module, RotaryEmbeddingBase)


def _rotation(module: Any) -> str:
    return type(module).__name__ + ("" if module.is_neox_style else " (GPT-J)")


# Compiling up to the end of the passes.


@dataclass
class _Seen:
    """writers: the op that writes each layer's cache. reasons: the passes', by layer. graphs: how
    many parts of the model vLLM has compiled."""

    writers: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str | None] = field(default_factory=dict)
    graphs: int = 0


class _PassesDone(BaseException):
    """Not an Exception, which Inductor would wrap."""


class _UpToThePasses(InductorAdaptor):
    """Inductor's way to the end of vLLM's passes; of pieces that write no cache, nothing."""

    def compile(
        self, graph: fx.GraphModule, *args: Any, **kwargs: Any
    ) -> tuple[Callable[..., Any], None]:
        if graph.graph.find_nodes(op="call_function", target=_WRITE):
            with suppress(_PassesDone):
                super().compile(graph, *args, **kwargs)
        return _not_called, None


def _not_called(*_: Any) -> None:
    raise AssertionError("a compiled piece is called")


def _zeros(graph: fx.GraphModule) -> Callable[..., Any]:
    """What returns zeros of the shapes that the graph returns."""

    def zeros(node: fx.Node) -> Any:
        value = node.meta["example_value"]
        if isinstance(value, torch.SymInt):
            return value.node.hint
        shape = [x.node.hint if isinstance(x, torch.SymInt) else x for x in value.shape]
        return torch.zeros(shape, dtype=value.dtype)

    outputs = fx.map_arg(graph.graph.output_node().args[0], zeros)
    return lambda *_: outputs


@contextmanager
def _watched() -> Iterator[_Seen]:
    """While it is open, vLLM compiles up to the end of its passes, and what they did is noted."""
    seen = _Seen()
    run_passes, compile_model = PostGradPassManager.__call__, backends.VllmBackend.__call__

    def passes(self: Any, graph: fx.Graph) -> None:
        run_passes(self, graph)
        seen.writers.update(served(graph))
        raise _PassesDone

    def compiled(self: Any, graph: fx.GraphModule, inputs: Any) -> Any:
        compile_model(self, graph, inputs)
        seen.graphs += 1
        return _zeros(graph)

    def log() -> None:
        seen.reasons.update(rope_kvcache_report._reasons)
        rope_kvcache_report._reasons.clear()

    with ExitStack() as stack:
        for target, name, instead in (
            (PostGradPassManager, "__call__", passes),
            (backends.VllmBackend, "__call__", compiled),
            (backends, "make_compiler", lambda *_, **options: _UpToThePasses(**options)),
            (backends, "log_layers", log),
        ):
            stack.enter_context(patch.object(target, name, instead))
        yield seen
