"""What a run executed: instructions by class, memory traffic, dependent round trips."""

import dataclasses
from collections import Counter

# Of gfx11: a vector memory access moves lines of 128 bytes, a scalar one lines of 64.
VECTOR_LINE = 128
SCALAR_LINE = 64


@dataclasses.dataclass
class Measured:
    """Sums over the waves of a run; round trips are those of the wave that has most.

    instructions: by class (salu, valu, trans, smem, vmem load, vmem store, branch, wait, other).
    places: by where they are in the code, in bytes. transactions: lines that loads and stores
    touch, instruction by instruction. bytes: that active lanes asked for. round_trips_to_store:
    memory round trips that follow one another from a wave's start to its first store; round_trips:
    to its end.
    """

    waves: int = 0
    instructions: Counter[str] = dataclasses.field(default_factory=Counter)
    places: Counter[int] = dataclasses.field(default_factory=Counter)
    transactions: Counter[str] = dataclasses.field(default_factory=Counter)
    bytes: Counter[str] = dataclasses.field(default_factory=Counter)
    round_trips_to_store: int = 0
    round_trips: int = 0

    def add(self, other: "Measured") -> None:
        """Adds another run's."""
        self.waves += other.waves
        for name in ("instructions", "places", "transactions", "bytes"):
            getattr(self, name).update(getattr(other, name))
        self.round_trips_to_store = max(self.round_trips_to_store, other.round_trips_to_store)
        self.round_trips = max(self.round_trips, other.round_trips)

    def table(self) -> str:
        """The figures, a line each, with the mean per wave beside the sums."""
        waves = max(1, self.waves)
        lines = [
            f"waves {self.waves}",
            f"dependent round trips: {self.round_trips_to_store} to the first store, "
            f"{self.round_trips} in all",
        ]
        for title, counts in (
            ("instructions", self.instructions),
            ("transactions", self.transactions),
            ("bytes", self.bytes),
        ):
            total = sum(counts.values())
            lines.append(f"{title} {total}, {total / waves:.1f} a wave")
            lines += [
                f"  {name} {count}, {count / waves:.1f} a wave"
                for name, count in sorted(counts.items())
            ]
        return "\n".join(lines)
