"""Makes the simulated ROCm machines of tests/integration importable for these tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))
