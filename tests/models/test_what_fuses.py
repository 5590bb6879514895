"""What fuses: a class for each kind of prologue; `make fuses` looks at all that vLLM has."""

import pytest
from small_models import classes, look_at
from what_fuses.expected import EXPECTED, Expectation
from what_fuses.found import NORM, ROPE, Found, Layer
from what_fuses.table import Row

# Classes that stand for the ways in which a layer is, or is not, fused.
SOME = (
    "llama:LlamaForCausalLM",
    "exaone4:Exaone4ForCausalLM",
    "gemma3n:Gemma3nForCausalLM",
    "glm4:Glm4ForCausalLM",
    "qwen2_vl:Qwen2VLForConditionalGeneration",
)


def test_every_class_of_the_registry_has_an_expectation() -> None:
    assert set(EXPECTED) == set(classes())


@pytest.mark.slow
def test_what_fuses_is_what_was_expected() -> None:
    faults = {name: Row(name, [], EXPECTED[name], found).fault for name, found in look_at(SOME)}
    assert faults == dict.fromkeys(SOME, "")


def _layers(*fused: str) -> tuple[Layer, ...]:
    return tuple(Layer("Attention", kind, True, "", "4/2/64") for kind in fused)


@pytest.mark.parametrize(
    ("expected", "found", "fault"),
    [
        (Expectation(frozenset({ROPE})), Found(layers=_layers(ROPE, ROPE)), ""),
        (Expectation(frozenset({ROPE}), "no RoPE"), Found(layers=_layers(ROPE, "")), ""),
        (
            Expectation(frozenset({NORM})),
            Found(layers=_layers(ROPE)),
            "RoPE found, QK norm expected",
        ),
        (Expectation(), Found(layers=_layers(ROPE)), "RoPE found, none expected"),
        (Expectation(frozenset({ROPE})), Found(layers=_layers(ROPE, "")), "not all layers fused"),
        (
            Expectation(frozenset({ROPE}), "no RoPE"),
            Found(layers=_layers(ROPE)),
            "all layers fused",
        ),
        (Expectation(), Found(error="ImportError: x"), "not built: ImportError: x"),
        (Expectation(not_built="ImportError"), Found(error="ImportError: x"), ""),
        (
            Expectation(not_built="ImportError"),
            Found(layers=_layers("")),
            "built, though expected to fail with 'ImportError'",
        ),
        (None, Found(), "no expectation; add one to expected.py"),
    ],
)
def test_a_row_says_how_it_is_not_as_expected(
    expected: Expectation | None, found: Found, fault: str
) -> None:
    assert Row("module:Class", [], expected, found).fault == fault
