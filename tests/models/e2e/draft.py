"""An EAGLE3 draft model beside the target. Imported on the machine.

vLLM's proposer configures and loads it: its layers join the target's in one cache, and its graph is
compiled by itself. It runs here once for each of the target's batches.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from vllm.config import VllmConfig
from vllm.v1.spec_decode.eagle import EagleProposer


class Draft:
    """The draft model of a configuration that names one."""

    def __init__(self, config: VllmConfig, target: nn.Module) -> None:
        assert config.speculative_config is not None
        hf_config = config.speculative_config.draft_model_config.hf_config
        set_layers: Any = target.set_aux_hidden_state_layers
        set_layers(tuple(hf_config.eagle_aux_hidden_state_layer_ids))
        # Its constructor imports packages that are for images; loading needs none of its buffers.
        proposer = object.__new__(EagleProposer)
        proposer.vllm_config = config
        proposer.speculative_config = config.speculative_config
        for feature in ("supports_mm_inputs", "parallel_drafting", "use_local_argmax_reduction"):
            setattr(proposer, feature, False)
        proposer.load_model(target)
        self.model = proposer.model

    def logits(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        auxiliary: Sequence[torch.Tensor],
        next_ids: torch.Tensor,
    ) -> torch.Tensor:
        """What the draft expects after the token that follows each: [T, vocabulary].

        Called within the target's forward context. ids: the target's, padded. auxiliary: hidden
        states of its layers. next_ids: the token after each of the batch's; T of them.
        """
        shifted = ids.clone()
        shifted[: len(next_ids)] = next_ids
        hidden = self.model.combine_hidden_states(torch.cat(list(auxiliary), dim=-1))
        out, _ = self.model(shifted, positions, hidden)
        return self.model.compute_logits(out[: len(next_ids)])
