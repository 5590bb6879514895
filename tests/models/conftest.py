"""Makes the simulated machines, `e2e` and `what_fuses` importable for these tests."""

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parent / "integration")]
