"""A copy of this repository, in which the series can be tried on another vLLM."""

import shutil
from pathlib import Path

from scripts import paths

# What the scripts and tests read; build/, dist/ and .venv/ stay out.
PARTS = (
    "CMakeLists.txt", "Makefile", "README.md", "cmake", "csrc", "patches", "pin.toml",
    "pyproject.toml", "scripts", "tests", "upstream", "vllm_overlay",
)  # fmt: skip


def copy_to(folder: Path, root: Path = paths.ROOT) -> None:
    """Makes `folder` a copy of the repository as it lies there; what it was goes."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for part in PARTS:
        source = root / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, folder / part)
