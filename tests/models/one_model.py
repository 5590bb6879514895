"""One model on a simulated gfx1151 of its own."""

from e2e.result import Result
from simulation import simulated


@simulated()
def one_model(name: str) -> Result:
    """The model's row; `name` is one of the catalogue's."""
    from e2e.measure import measure

    return measure(name)
