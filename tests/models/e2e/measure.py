"""One model in every configuration: eager, fusion off, fusion on, and with faults. On the machine.

Off and on differ in the two `fuse_*` settings alone; on is vLLM's default.
"""

import collections
import gc
import time
from pathlib import Path
from typing import Any

import torch
from vllm.config import VllmConfig

from e2e.catalogue import MODELS, VOCABULARY, Model
from e2e.engine import Engine, config_of
from e2e.faults import FAULTS, watched
from e2e.result import Difference, Flip, Result
from e2e.schedule import Record, play

_OFF = {"pass_config": {"fuse_rope_kvcache": False, "fuse_qk_norm_rope_kvcache": False}}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "eager": {"enforce_eager": True},
    "off": {"compilation_config": _OFF},
    "on": {},
}


def measure(name: str, rank: int, meeting: Path) -> Result:
    """The model's row, as one of its tensor-parallel processes sees it."""
    model = MODELS[name]
    records: dict[str, Record] = {}
    fused: dict[str, dict[str, list[str]]] = {}
    seconds: dict[str, float] = {}
    for configuration, arguments in CONFIGURATIONS.items():
        started = time.monotonic()
        engine = Engine(_config(model, arguments), rank, meeting)
        with watched() as watch:
            records[configuration] = play(engine)
        fused[configuration] = {layer: sorted(kinds) for layer, kinds in watch.calls.items()}
        seconds[configuration] = time.monotonic() - started
        gc.collect()

    # The last engine is the one with the fusion on.
    faults = {}
    for fault, (_, kind) in FAULTS.items():
        if kind in watch.kinds:
            with watched(fault):
                faulty = play(engine, prompts_only=True)
            faults[fault] = compare(records["off"], faulty).prompt
    backends = collections.Counter(
        layer.get_attn_backend().get_name() for layer in engine.layers.values()
    )
    return Result(
        name=name,
        model_class=type(engine.model).__name__,
        backends=dict(backends),
        texts={key: [text.new for text in record.texts] for key, record in records.items()},
        fused=fused,
        off_eager=compare(records["eager"], records["off"]),
        on_off=compare(records["off"], records["on"]),
        faults=faults,
        drafted=records["on"].drafted,
        accepted=records["on"].accepted,
        seconds=seconds,
    )


def _config(model: Model, arguments: dict[str, Any]) -> VllmConfig:
    return config_of(
        model.hf_config,
        model.draft,
        model_loader_extra_config={
            "qk_norm_size": model.qk_norm_size,
            "embedding_size": model.embedding_size,
        },
        tensor_parallel_size=model.ranks,
        **model.engine,
        **arguments,
    )


def compare(first: Record, second: Record) -> Difference:
    """How far apart two records are, where they computed the same."""
    prompt = everywhere = 0.0
    flips = []
    for number, (a, b) in enumerate(zip(first.texts, second.texts, strict=False)):
        for position in sorted(a.log_probs.keys() & b.log_probs.keys()):
            if a.tokens[: position + 1] != b.tokens[: position + 1]:
                break
            row, other = a.log_probs[position], b.log_probs[position]
            difference = float((row - other).abs().max())  # NaN if there is one
            row, other = row[:VOCABULARY], other[:VOCABULARY]  # without a draft's
            everywhere = _larger(everywhere, difference)
            if position < a.prompt:
                prompt = _larger(prompt, difference)
            if a.new and position >= a.prompt - 1 and row.argmax() != other.argmax():
                best = torch.topk(row, 2).values
                flips.append(Flip(number, position, float(best[0] - best[1]), difference))
                break
    return Difference(prompt, everywhere, tuple(flips))


def _larger(a: float, b: float) -> float:
    return b if b != b or b > a else a
