"""The table of a run: build/e2e/report.md."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from e2e.catalogue import Model
from e2e.result import Result
from e2e.verdict import failures, fused_counts


@dataclass(frozen=True)
class Row:
    """A model with its result in each of its processes, or why there is none."""

    model: Model
    results: Sequence[Result]
    error: str = ""

    @property
    def result(self) -> Result | None:
        """The first process's; `failures` looks at all."""
        return self.results[0] if self.results else None

    @property
    def failures(self) -> list[str]:
        """What is wrong; empty for a row that holds."""
        return failures(self.model, self.results) if self.results else [self.error]


_HEAD = (
    "model",
    "fused layers",
    "expected",
    "greedy tokens on = off",
    "off/eager",
    "on/off",
    "smallest fault",
    "holds",
)


def markdown(rows: Sequence[Row], about: str) -> str:
    """The report; `about` says what was run, where and when."""
    lines = [
        "# Whole models with the fusion on and off, on a simulated gfx1151",
        "",
        about,
        "",
        "Random weights, three sequences of different lengths, each twice: prefilled in parts and "
        "together with others' decoding, decoded in batches padded like a captured graph's, then "
        "again on shared blocks with drafts of three and seven tokens. Every unwritten slot of the "
        "cache is NaN. Differences are the largest of the log-probabilities, over the whole "
        "vocabulary and all positions; `off/eager` is what compiling alone makes and `on/off` may "
        "be twice that. `smallest fault` is the least that a deliberate fault in the hooks makes "
        "at the prompts' positions.",
        "",
        "| " + " | ".join(_HEAD) + " |",
        "| " + " | ".join("---" for _ in _HEAD) + " |",
    ]
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in rows]
    lines += _notes(rows)
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> list[str]:
    model, result = row.model, row.result
    expected = _counts(model.fused, model.layers)
    if result is None:
        return [model.title, "-", expected, "-", "-", "-", "-", "**no**"]
    faults = [f"{value:.3g} ({name})" for name, value in result.faults.items()]
    smallest = min(faults, key=lambda cell: float(cell.split()[0])) if faults else "-"
    equal = result.texts["on"] == result.texts["off"]
    return [
        model.title,
        _counts(fused_counts(result, "on"), model.layers),
        expected,
        "yes" if equal else "a tie flipped",
        f"{result.off_eager.everywhere:.4f}",
        f"{result.on_off.everywhere:.4f}",
        smallest,
        "**no**" if row.failures else "yes",
    ]


def _counts(fused: Mapping[str, int], layers: int) -> str:
    """As `2 of 4: QK norm, V norm`."""
    total = sum(fused.values())
    kinds = " + ".join(f"{n} {kind}" if len(fused) > 1 else kind for kind, n in fused.items())
    return f"{total} of {layers}" + (f": {kinds}" if kinds else "")


def _notes(rows: Sequence[Row]) -> list[str]:
    lines = []
    for row in rows:
        notes = [f"{row.model.why_not}."] if row.model.why_not else []
        if row.result:
            notes += [f"Tie: {flip}." for flip in row.result.on_off.flips]
        notes += [f"**Fails**: {failure}." for failure in row.failures]
        if notes:
            lines.append(f"- {row.model.title}: {' '.join(notes)}")
    return ["", *lines] if lines else []
