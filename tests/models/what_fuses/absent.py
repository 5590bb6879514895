"""Stands in for packages of images and sound, so that modules which import them can be imported.

Nothing of them is called: only language models are built. Imported on the machine.
"""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

_MODULES = (
    "torchvision",
    "torchvision.io",
    "torchvision.transforms",
    "torchvision.transforms.functional",
    "torchvision.transforms.v2",
    "torchvision.transforms.v2.functional",
    "torchaudio",
    "torchaudio.compliance",
    "torchaudio.compliance.kaldi",
    "torchaudio.functional",
    "torchaudio.transforms",
    "timm",
    "timm.layers",
    "timm.models",
    "timm.models.regnet",
)


class _Absent(ModuleType):
    """A module with every attribute that it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}") or MagicMock(name=name)


def stand_in() -> None:
    """Put what is not installed into `sys.modules`."""
    for name in _MODULES:
        module = _Absent(name)
        module.__spec__ = ModuleSpec(name, None)
        module.__path__ = []
        sys.modules.setdefault(name, module)
