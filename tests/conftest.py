"""What tests of every layer share."""

import os
from pathlib import Path

import pytest

from scripts import paths
from scripts.pin import load_pin


@pytest.fixture(scope="session")
def op_library() -> Path:
    """The op library: the one that RDNA35_TEST_LIBRARY names, or build/op's, built where needed."""
    if named := os.environ.get("RDNA35_TEST_LIBRARY"):
        return Path(named)
    from scripts import op

    return op.build()


@pytest.fixture(scope="session")
def checkout() -> Path:
    """build/vllm with the series on it, made where needed."""
    from scripts.checkout import checkout as make

    make(load_pin())
    return paths.CHECKOUT
