"""vLLM on a simulated ROCm machine: the real RocmPlatform, with CPU tensors.

`@simulated(...)` runs a test in a process of such a machine; see `host.py`. What a test needs there
(configuration, layers, counting compile backends) is in the modules beside it.
"""

from simulation.host import Machine, simulated

__all__ = ["Machine", "simulated"]
