"""Attention layers, their caches and what the contract says of them. Imported on the machine."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.forward_context import get_forward_context, set_forward_context
from vllm.model_executor.layers.attention import Attention
from vllm.v1.kv_cache_layout import KVCacheLayout

from scripts import paths


def compare() -> ModuleType:
    """`tests/kernel/compare.py`; by its path, because vLLM's tree has a package `tests` too."""
    spec = importlib.util.spec_from_file_location(
        "kernel_compare", paths.ROOT / "tests" / "kernel" / "compare.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def attention(
    config: VllmConfig,
    num_heads: int,
    num_kv_heads: int,
    head_size: int,
    name: str = "model.layers.0.self_attn.attn",
    loaded: bool = True,
    **arguments: Any,
) -> Attention:
    """A layer of the backend that the configuration calls for.

    With `loaded`, it is as after the weights were loaded and processed.
    """
    with set_current_vllm_config(config), default_dtype(config.model_config.dtype):
        layer = Attention(
            num_heads,
            head_size,
            head_size**-0.5,
            num_kv_heads=num_kv_heads,
            cache_config=config.cache_config,
            prefix=name,
            **arguments,
        )
        if loaded:
            layer.process_weights_after_loading(config.model_config.dtype)
    return layer


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Torch's default dtype, as vLLM sets it while a model is built."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def packed_cache(
    num_blocks: int,
    num_kv_heads: int,
    block_size: int,
    head_size: int,
    dtype: torch.dtype,
    layout: str = "LBHNC",
    padding: int = 0,
) -> torch.Tensor:
    """One layer of a cache, logical [blocks, Hkv, block, 2 * D], every element a NaN.

    layout: physical order, one of vLLM's names. padding: elements between blocks.
    """
    order = KVCacheLayout[layout].layer_view_order
    logical = (num_blocks, num_kv_heads, block_size, 2 * head_size)
    physical = [logical[axis] for axis in order]
    if padding:
        assert order[0] == 0, f"padding is between blocks; {layout} has them inside"
        row = physical[1] * physical[2] * physical[3]
        storage = torch.full((num_blocks, row + padding), float("nan"), dtype=dtype)
        view = storage[:, :row].unflatten(1, tuple(physical[1:]))
    else:
        view = torch.full(physical, float("nan"), dtype=dtype)
    return view.permute([order.index(axis) for axis in range(4)])


def write_packed(
    cache: torch.Tensor, key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor
) -> None:
    """What a write of K and V must leave in a cache, one token after another."""
    block, head_size = cache.shape[2], key.shape[-1]
    for token, slot in enumerate(slots.tolist()):
        if slot >= 0:
            cache[slot // block, :, slot % block, :head_size] = key[token]
            cache[slot // block, :, slot % block, head_size:] = value[token]


@contextmanager
def forward_context(config: VllmConfig, slots: dict[str, torch.Tensor]) -> Iterator[None]:
    """vLLM's forward context, as the model runner sets it, with each layer's slots."""
    with set_current_vllm_config(config), set_forward_context(None, config):
        get_forward_context().slot_mapping = slots
        yield
