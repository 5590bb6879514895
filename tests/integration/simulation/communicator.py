"""Tensor-parallel processes of simulated machines, over gloo. Imported on the machine."""

import torch
from vllm.distributed.device_communicators.base_device_communicator import DeviceCommunicatorBase


class GlooCommunicator(DeviceCommunicatorBase):
    """As a GPU's, all_reduce leaves its input: compiled code relies on that."""

    def all_reduce(self, input_: torch.Tensor) -> torch.Tensor:
        """The sum of all processes' tensors."""
        return super().all_reduce(input_.clone())
