"""The table of a run, and where it differs from what was expected."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from scripts import paths
from what_fuses.expected import Expectation
from what_fuses.found import Found


@dataclass(frozen=True)
class Row:
    """A model class, as `module:class` of the registry, and the architectures that it serves."""

    name: str
    architectures: Sequence[str]
    expected: Expectation | None
    found: Found

    @property
    def fault(self) -> str:
        """How what was found differs from what was expected; "" if it does not."""
        expected, found = self.expected, self.found
        if expected is None:
            return "no expectation; add one to expected.py"
        if found.error:
            if expected.not_built and expected.not_built in found.error:
                return ""
            return f"not built: {found.error}"
        if expected.not_built:
            return f"built, though expected to fail with {expected.not_built!r}"
        if found.fused != expected.fused:
            return f"{_kinds(found.fused)} found, {_kinds(expected.fused)} expected"
        if found.fused and found.whole != (not expected.why_not):
            return f"{'all' if found.whole else 'not all'} layers fused"
        return ""


def _kinds(fused: frozenset[str]) -> str:
    return " + ".join(sorted(fused)) or "none"


_HEAD = ("model class", "architectures", "expected", "found", "layers", "rotation", "why not")


def markdown(rows: Sequence[Row], about: str) -> str:
    """The table; `about` says what was run, where and when."""
    counts = Counter(_kinds(row.found.fused) for row in rows if not row.found.error)
    lines = [
        "# What fuses",
        "",
        about,
        "",
        "Every model class of vLLM's registry, from small instances: of each kind of layer one, "
        "with the head size of its configuration's defaults where the kernel has it, else 64. "
        "`expected` is what reading its source says, `found` what vLLM's passes made of it with "
        "the defaults on gfx1151; `layers` are its attention layers, fused of all. Only language "
        "models are built. A class that is not built says what its attempt ended with.",
        "",
        "Found: "
        + ", ".join(f"{kind} {n}" for kind, n in sorted(counts.items()))
        + f", not built {sum(bool(row.found.error) for row in rows)}; of {len(rows)} classes.",
        "",
        "| " + " | ".join(_HEAD) + " |",
        "| " + " | ".join("---" for _ in _HEAD) + " |",
    ]
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in rows]
    faults = [f"- `{row.name}`: {row.fault}" for row in rows if row.fault]
    if faults:
        lines += ["", "## Not as expected", "", *faults]
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> Iterator[str]:
    expected, found = row.expected, row.found
    yield f"`{row.name}`"
    yield ", ".join(row.architectures)
    yield _kinds(expected.fused) if expected else "-"
    yield ("not built" if found.error else _kinds(found.fused)) + (" **!**" if row.fault else "")
    yield _layers(found)
    yield ", ".join(found.rotations) or "-"
    yield _cell("; ".join(_why_not(row)))


def _layers(found: Found) -> str:
    """As `1 of 2 (4/2/128)`."""
    layers = [layer for layer in found.layers if layer.kind == "Attention"]
    others = sorted({layer.kind for layer in found.layers} - {"Attention"})
    heads = sorted({layer.heads for layer in layers})
    fused = sum(bool(layer.fused) for layer in layers)
    text = f"{fused} of {len(layers)} ({', '.join(heads)})" if layers else ""
    return "; ".join(filter(None, [text, ", ".join(others)])) or "-"


def _why_not(row: Row) -> Iterator[str]:
    if row.expected and row.expected.why_not:
        yield row.expected.why_not
    if row.found.error:
        yield row.found.error
        if row.expected and row.expected.language_model:
            yield f"its language model is that of `{row.expected.language_model}`"
    elif not row.found.whole:
        yield from sorted({f"passes: {x.why_not}" for x in row.found.layers if x.why_not})


def _cell(text: str) -> str:
    text = text.replace(f"{paths.ROOT}/", "")
    return " ".join(text.replace("|", "\\|").split())


def faults(rows: Sequence[Row]) -> Mapping[str, str]:
    """By class, what is not as expected."""
    return {row.name: row.fault for row in rows if row.fault}
