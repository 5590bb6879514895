"""Stand-in for AITER: it can be found, and imported only on GPUs of AITER's own list.

None of its kernels is here: what vLLM imports from it is missing.
"""

import os

_SUPPORTED = ("gfx942", "gfx950")
_ARCH = os.environ["SIMULATED_ARCH"]

if _ARCH not in _SUPPORTED:
    raise RuntimeError(f"aiter: {_ARCH} is none of {', '.join(_SUPPORTED)}")
