"""Where everything is: the one place that spells out the repository's layout."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PIN = ROOT / "pin.toml"
PATCHES = ROOT / "patches"
OVERLAY = ROOT / "vllm_overlay"
CSRC = ROOT / "csrc"

VENV = ROOT / ".venv"
BUILD = ROOT / "build"
DIST = ROOT / "dist"

CACHE = BUILD / "cache"
CHECKOUT = BUILD / "vllm"
OP = BUILD / "op"
OP_LIBRARY = OP / "librdna35.so"
