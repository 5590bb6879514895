"""Random weights, the same for every configuration of a model. Imported on the machine.

They are drawn by each tensor's name, in vLLM's own loading step, so that what vLLM makes of them
afterwards (packing, derived buffers, kernels loaded) is what it makes of a checkpoint's.
"""

import zlib

import torch
from torch import nn
from vllm.config import ModelConfig
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.model_executor.layers.layernorm import GemmaRMSNorm
from vllm.model_executor.layers.linear import ColumnParallelLinear, RowParallelLinear
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

LOAD_FORMAT = "seeded"
_SHARDED = (ColumnParallelLinear, RowParallelLinear, VocabParallelEmbedding)


@register_model_loader(LOAD_FORMAT)
class SeededLoader(BaseModelLoader):
    """Draws every parameter of the model instead of reading a checkpoint.

    `model_loader_extra_config`: `qk_norm_size`, a factor of Q's and K's norm weights;
    `embedding_size`, a factor of the embeddings, by which the last norm's weight is divided.
    """

    def download_model(self, model_config: ModelConfig) -> None:
        """Nothing is read."""

    def load_weights(self, model: nn.Module, model_config: ModelConfig) -> None:
        """Fill all parameters of `model`."""
        sizes = self.load_config.model_loader_extra_config
        for path, module in model.named_modules():
            for name, parameter in module.named_parameters(recurse=False):
                key = f"{path}.{name}"
                if isinstance(module, _SHARDED) and (rank := get_tensor_model_parallel_rank()):
                    key += f" of rank {rank}"
                generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
                drawn = _drawn(module, parameter, generator)
                if path.endswith(("q_norm", "k_norm")):
                    drawn *= sizes["qk_norm_size"]
                elif path.endswith("embed_tokens"):
                    drawn *= sizes["embedding_size"]
                elif path.endswith(".norm"):
                    drawn /= sizes["embedding_size"]
                parameter.data.copy_(drawn)


def _drawn(module: nn.Module, parameter: nn.Parameter, generator: torch.Generator) -> torch.Tensor:
    """A norm's weight around its neutral value, a matrix that keeps its input's size, a bias."""
    normal = torch.randn(parameter.shape, generator=generator)
    if parameter.dim() >= 2:
        normal *= parameter.shape[-1] ** -0.5
        if isinstance(module, VocabParallelEmbedding):
            normal *= 2.0
        if isinstance(module, ParallelLMHead):
            # Tokens of unequal size: the logits' largest stand apart by more than rounding moves.
            normal *= torch.exp(0.4 * torch.randn(parameter.shape[0], 1, generator=generator))
        return normal
    if "Norm" in type(module).__name__ and parameter is module.weight:
        return 0.5 * normal + (0.0 if isinstance(module, GemmaRMSNorm) else 1.0)
    return 0.2 * normal
