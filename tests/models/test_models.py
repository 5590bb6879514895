"""Whole models with the fusion on and off; `make e2e` runs more of them."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from e2e.catalogue import MODELS
from e2e.result import Result
from e2e.verdict import failures
from one_model import one_model


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[list[Result]]]]:
    """The results of the models that are asked for, two at a time."""
    chosen: dict[str, None] = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.path == request.path:
            chosen[str(item.callspec.params["name"])] = None
    with ThreadPoolExecutor(2) as pool:
        yield {name: pool.submit(one_model, name) for name in chosen}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if model.ci])
def test_the_text_is_the_same_with_the_fusion_on_and_off(
    name: str, results: dict[str, "Future[list[Result]]"]
) -> None:
    found = results[name].result()
    assert not failures(MODELS[name], found)
    assert found[0].drafted > found[0].accepted > 0
