"""One model on a simulated gfx1151 of its own, or on several that share it."""

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import simulation
from e2e.catalogue import MODELS
from e2e.result import Result
from simulation import simulated


def one_model(name: str) -> list[Result]:
    """The model's row as each of its processes sees it; `name` is one of the catalogue's.

    Raises:
        RuntimeError: A process ended or does not answer.
        pytest.fail.Exception: The model does not run; with the traceback.
    """
    ranks = MODELS[name].ranks
    with tempfile.TemporaryDirectory(prefix="e2e-") as folder, ThreadPoolExecutor(ranks) as pool:
        meeting = Path(folder, "meeting")
        runs = [
            pool.submit(_one_rank.alone, name=name, rank=rank, meeting=meeting)
            for rank in range(ranks)
        ]
        return [run.result() for run in runs]


@simulated()
def _one_rank(name: str, rank: int, meeting: Path) -> Result:
    if MODELS[name].flash_attn:
        sys.path.append(str(Path(simulation.__file__).parent / "flash_attn_stand_in"))
    from e2e.measure import measure

    return measure(name, rank, meeting)
