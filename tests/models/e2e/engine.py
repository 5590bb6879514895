"""A model of vLLM with its paged cache, which runs batches. Imported on the machine.

Configuration, model, compilation, cache planning, cache views and attention metadata are vLLM's
own. What is here is the model runner's part: the tensors of a step.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from vllm.config import VllmConfig, get_layers_from_vllm_config, set_current_vllm_config
from vllm.distributed import (
    init_distributed_environment,
    initialize_model_parallel,
    model_parallel_is_initialized,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.forward_context import set_forward_context
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.model_loader import get_model
from vllm.v1.attention.backends.utils import (
    get_supported_kv_cache_layouts,
    resolve_kv_cache_layout,
)
from vllm.v1.core.kv_cache_planning import get_global_kv_cache_groups, get_kv_cache_configs
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import (
    EncoderOnlyAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    MambaSpec,
)
from vllm.v1.worker.gpu import attn_utils
from vllm.v1.worker.workspace import init_workspace_manager

from e2e.draft import Draft
from e2e.weights import LOAD_FORMAT

CPU = torch.device("cpu")
BLOCKS = 64
MAX_MODEL_LEN = 512


@dataclass(frozen=True)
class Query:
    """One sequence's part of a batch.

    tokens: ids to compute. start: position of the first. blocks: the sequence's blocks in each
    cache group. prompt: how many tokens of the sequence are its prompt.
    """

    tokens: Sequence[int]
    start: int
    blocks: Sequence[Sequence[int]]
    prompt: int


@dataclass(frozen=True)
class Padding:
    """How a batch is padded for a captured graph of `tokens` tokens.

    sequences: with attention inside the graph, the sequences it was captured for; the slot mapping
    is padded with -1. None: attention is outside, and there are fewer slots than tokens.
    """

    tokens: int
    sequences: int | None


def config_of(
    hf_config: Mapping[str, Any], draft: Mapping[str, Any] | None = None, **arguments: Any
) -> VllmConfig:
    """The configuration that `vllm serve` makes of a folder with nothing but a config.json.

    draft: the config.json of an EAGLE3 draft model.
    """
    defaults = {
        "model": _folder(hf_config),
        "skip_tokenizer_init": True,
        "load_format": LOAD_FORMAT,
        "max_model_len": MAX_MODEL_LEN,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 128,
        "num_gpu_blocks_override": BLOCKS,
    }
    if draft:
        defaults["speculative_config"] = {
            "method": "eagle3",
            "model": _folder(draft),
            "num_speculative_tokens": 3,
        }
    return EngineArgs(**{**defaults, **arguments}).create_engine_config()


def _folder(hf_config: Mapping[str, Any]) -> str:
    """Named by its content: vLLM's caches go by a model's name."""
    content = json.dumps(dict(hf_config))
    folder = Path(f"model-{zlib.crc32(content.encode()):08x}")
    folder.mkdir(exist_ok=True)
    folder.joinpath("config.json").write_text(content)
    return str(folder)


class Engine:
    """The model of a configuration, loaded, with NaN in every slot of its cache.

    rank: which of its tensor-parallel processes this is. meeting: a file that they all know, absent
    before the first comes.
    """

    def __init__(self, config: VllmConfig, rank: int, meeting: Path) -> None:
        self.config = config
        with set_current_vllm_config(config), torch.no_grad():
            _join(config.parallel_config.tensor_parallel_size, rank, meeting)
            self.model = get_model(vllm_config=config)
            self.draft = Draft(config, self.model) if config.speculative_config else None
            self.layers = get_layers_from_vllm_config(config, AttentionLayerBase)
            self._make_cache()

    def _make_cache(self) -> None:
        register_all_kvcache_specs(self.config)
        specs = attn_utils.get_kv_cache_spec(self.config)
        self.cache = self._planned(specs) if specs else self._without_cache()
        self.block_sizes = [group.kv_cache_spec.block_size for group in self.cache.kv_cache_groups]
        self.groups, _, self.kernel_block_sizes = attn_utils.init_attn_backend(
            self.cache, self.config, CPU
        )
        if not specs:
            self.kernel_block_sizes = self.block_sizes
        caches = attn_utils.init_kv_cache(
            self.layers,
            self.cache,
            CPU,
            self.kernel_block_sizes,
            self.config,
            attn_groups=[group for groups in self.groups for group in groups],
        )
        for cache in caches.values():
            cache.view(torch.int8).fill_(-1)  # all bits set: a NaN in every float type

    def _planned(self, specs: dict[str, KVCacheSpec]) -> KVCacheConfig:
        """The cache that vLLM plans for the layers, of as many blocks as the configuration says."""
        backends = [self.layers[name].get_attn_backend() for name in specs]
        layouts = [layout.name for layout in get_supported_kv_cache_layouts(backends)]
        resolve_kv_cache_layout(self.config, [layouts], list(specs.values()))
        groups = get_global_kv_cache_groups(self.config, [specs])
        unlimited = 1 << 40
        (cache,) = get_kv_cache_configs(self.config, [specs], [unlimited], groups)
        return cache

    def _without_cache(self) -> KVCacheConfig:
        """What stands for a cache in a model of encoder-only layers."""
        layer: Any = next(iter(self.layers.values()))
        spec = EncoderOnlyAttentionSpec(
            block_size=16,
            num_kv_heads=layer.num_kv_heads,
            head_size=layer.head_size,
            dtype=self.config.model_config.dtype,
        )
        self.config.cache_config.kv_cache_layout = "LBNHC"
        return KVCacheConfig(1, [], [KVCacheGroupSpec(list(self.layers), spec)])

    @property
    def generates(self) -> bool:
        """Whether the model predicts tokens; otherwise its rows are of hidden states."""
        return self.config.model_config.runner_type == "generate"

    @property
    def can_share_blocks(self) -> bool:
        """Whether every layer keeps its past in blocks of tokens, which other sequences can use."""
        specs = (group.kv_cache_spec for group in self.cache.kv_cache_groups)
        return not any(isinstance(spec, MambaSpec) for spec in specs)

    def run(self, queries: Sequence[Query], padding: Padding | None = None) -> torch.Tensor:
        """Log-probabilities fp32 after each of the batch's T tokens: [T, vocabulary].

        With a draft model, its own after the greedy token stand beside them: [T, 2 * vocabulary].
        """
        lengths = [len(query.tokens) for query in queries]
        count = sum(lengths)
        total = padding.tokens if padding else count
        full = padding is not None and padding.sequences is not None
        sequences = padding.sequences if padding and padding.sequences else len(queries)
        ids = torch.zeros(total, dtype=torch.int32)
        ids[:count] = torch.tensor([t for query in queries for t in query.tokens])
        # The buffers of a captured graph keep what an earlier step left past the batch's end.
        positions = torch.full((total,), MAX_MODEL_LEN - 1)
        positions[:count] = torch.cat(
            [torch.arange(q.start, q.start + len(q.tokens)) for q in queries]
        )
        starts = torch.full((sequences + 1,), count, dtype=torch.int32)
        starts[: len(queries)] = torch.tensor([0, *lengths[:-1]]).cumsum(0)
        seq_lens = torch.zeros(sequences, dtype=torch.int32)
        seq_lens[: len(queries)] = torch.tensor([q.start + len(q.tokens) for q in queries])
        is_prefilling = torch.zeros(sequences, dtype=torch.bool)
        is_prefilling[: len(queries)] = torch.tensor([q.start < q.prompt for q in queries])

        tables = [self._table(queries, sequences, group) for group in range(len(self.block_sizes))]
        slots = torch.full((len(tables), total), -1)
        for group, (table, size) in enumerate(zip(tables, self.kernel_block_sizes, strict=True)):
            rows = torch.repeat_interleave(torch.arange(len(queries)), torch.tensor(lengths))
            at = positions[:count]
            slots[group, :count] = table[rows, at // size].long() * size + at % size
        if not full:
            slots = slots[:, :count]

        self.config.kernel_config.ir_op_priority.set_default()
        with set_current_vllm_config(self.config), torch.no_grad():
            metadata = attn_utils.build_attn_metadata(
                attn_groups=self.groups,
                num_reqs=sequences,
                num_tokens=total if full else count,
                query_start_loc_gpu=starts,
                query_start_loc_cpu=starts,
                max_query_len=max(lengths),
                seq_lens=seq_lens,
                max_seq_len=int(seq_lens.max()),
                block_tables=tables,
                slot_mappings=slots,
                kv_cache_config=self.cache,
                seq_lens_cpu_upper_bound=seq_lens,
                positions=positions,
                is_prefilling=is_prefilling,
            )
            by_layer = attn_utils.build_slot_mappings_by_layer(slots, self.cache)
            with set_forward_context(
                metadata, self.config, num_tokens=total, slot_mapping=by_layer
            ):
                out = self.model(input_ids=ids, positions=self._model_positions(positions))
                hidden, auxiliary = out if self.draft else (out, None)
                logits = hidden[:count]
                if self.generates:
                    logits = self.model.compute_logits(logits)
                rows = torch.log_softmax(logits.float(), dim=-1)
                if self.draft is None:
                    return rows
                next_ids = ids[:count].roll(-1)
                last = torch.tensor(lengths).cumsum(0) - 1
                next_ids[last] = rows[last].argmax(dim=-1).int()
                logits = self.draft.logits(ids, positions, auxiliary, next_ids)
        return torch.cat([rows, torch.log_softmax(logits.float(), dim=-1)], dim=-1)

    def _model_positions(self, positions: torch.Tensor) -> torch.Tensor:
        """What the model gets: with M-RoPE a row for time, height and width, as if an image of
        4 x 4 patches came after three tokens. The rows are equal before and behind it."""
        if not self.config.model_config.uses_mrope:
            return positions
        first, side = 3, 4
        patch = positions - first
        behind = patch >= side * side
        plain = torch.where(behind, positions - side * side + side, positions)
        of_image = torch.stack([patch * 0, patch // side, patch % side]) + first
        return torch.where((patch < 0) | behind, plain, of_image)

    def _table(self, queries: Sequence[Query], sequences: int, group: int) -> torch.Tensor:
        """The group's block table [sequences, most blocks], in blocks of the kernel's size."""
        ratio = self.block_sizes[group] // self.kernel_block_sizes[group]
        rows = [
            [block * ratio + part for block in query.blocks[group] for part in range(ratio)]
            for query in queries
        ]
        table = torch.zeros(sequences, max(map(len, rows)), dtype=torch.int32)
        for index, row in enumerate(rows):
            table[index, : len(row)] = torch.tensor(row)
        return table


def _join(ranks: int, rank: int, meeting: Path) -> None:
    if model_parallel_is_initialized():
        return
    init_workspace_manager(CPU)
    init_distributed_environment(ranks, rank, f"file://{meeting}", 0, "gloo")
    initialize_model_parallel(ranks)
