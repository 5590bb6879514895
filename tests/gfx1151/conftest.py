"""The code object under test, and launches for it."""

from pathlib import Path

import pytest

from tests.gfx1151 import launches
from tests.gfx1151.emulator import code_object
from tests.gfx1151.emulator.code_object import CodeObject
from tests.gfx1151.launches import Key, Packed


@pytest.fixture(scope="session")
def hsaco(op_library: Path) -> Path:
    """The file of the code object for gfx1151 that lies beside the op library."""
    return op_library.parent / "gfx1151" / "rdna35_rope_cache.hsaco"


@pytest.fixture(scope="session")
def code(hsaco: Path) -> CodeObject:
    """The code object, loaded."""
    return code_object.load(hsaco)


@pytest.fixture(scope="session")
def packed(op_library: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Key, Packed]:
    """The launches of every case of these tests, as the library makes them."""
    keys = dict.fromkeys(
        (
            *launches.FAMILY_KEYS,
            *launches.KERNEL_KEYS,
            *launches.OPTION_KEYS,
            *launches.ONE_OF_EACH,
        )
    )
    return launches.pack(list(keys), op_library, tmp_path_factory.mktemp("launches"))
