"""Makes the simulated ROCm machines (`simulation/`) importable for these tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
