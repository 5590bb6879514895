"""Where everything is: the one place that spells out the repository's layout."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PIN = ROOT / "pin.toml"
PATCHES = ROOT / "patches"
OVERLAY = ROOT / "vllm_overlay"
CSRC = ROOT / "csrc"

VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
BUILD = ROOT / "build"
DIST = ROOT / "dist"

CACHE = BUILD / "cache"
CHECKOUT = BUILD / "vllm"
LINT = BUILD / "lint"
LINT_VENV = LINT / "venv"
OP = BUILD / "op"
OP_LIBRARY = OP / "librdna35.so"
