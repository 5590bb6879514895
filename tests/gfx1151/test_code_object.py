"""What the compiler says of the kernels: the metadata in each code object's notes."""

import dataclasses
import functools
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection

from scripts import paths
from scripts.pin import load_pin

ARCHITECTURES = load_pin().architectures

MAX_BYTES = 400 * 1024
MAX_KERNELS = 64

_NT_AMDGPU_METADATA = 32  # LLVM's User Guide for AMDGPU Backend, "Note Records"
_ABI_OF_V5 = 3  # EI_ABIVERSION of code object version 5


@dataclasses.dataclass(frozen=True)
class Built:
    """What the headers say is built: each kernel's name and head size; bytes of the arguments."""

    head_dims: dict[str, int]
    params_bytes: int


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Asks the compiler for the table of kernels and the size of their argument."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "main.cpp").write_text(
        '#include "params.h"\n#include <cstdio>\n'
        '#define ROW(symbol, type, head_dim, ...) std::printf("%s %d\\n", #symbol, head_dim);\n'
        'int main() { std::printf("%zu\\n", sizeof(rdna35::RopeCacheParams));\n'
        "  RDNA35_KERNELS(ROW) }\n"
    )
    include = f"-I{paths.CSRC / 'rdna35_rope_cache'}"
    subprocess.run(["g++", "-std=c++17", include, "main.cpp", "-o", "main"], cwd=folder, check=True)
    lines = subprocess.run([folder / "main"], capture_output=True, text=True, check=True).stdout
    size, *rows = lines.splitlines()
    head_dims = dict(row.split() for row in rows)
    return Built({name: int(dim) for name, dim in head_dims.items()}, int(size))


@pytest.fixture(params=ARCHITECTURES)
def architecture(request: pytest.FixtureRequest) -> str:
    """Each architecture of the pin."""
    return request.param


@pytest.fixture
def code_object(op_library: Path, architecture: str) -> Path:
    """The code object of the architecture."""
    return op_library.parent / architecture / "rdna35_rope_cache.hsaco"


@functools.cache
def _metadata(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        notes = ELFFile(file).get_section_by_name(".note")
        assert isinstance(notes, NoteSection), f"{path} has no notes"
        (metadata,) = (
            note["n_descdata"]
            for note in notes.iter_notes()
            if note["n_name"] == "AMDGPU" and note["n_type"] == _NT_AMDGPU_METADATA
        )
    return msgspec.msgpack.decode(metadata, type=dict[str, Any])


def _kernels(path: Path) -> list[dict[str, Any]]:
    return _metadata(path)["amdhsa.kernels"]


def _values(path: Path, field: str) -> dict[str, int]:
    return {kernel[".name"]: kernel[field] for kernel in _kernels(path)}


def test_the_kernels_are_those_of_the_table(code_object: Path, built: Built) -> None:
    assert {kernel[".name"] for kernel in _kernels(code_object)} == set(built.head_dims)
    assert len(built.head_dims) <= MAX_KERNELS


def test_nothing_is_spilled_and_no_scratch_is_used(code_object: Path) -> None:
    for field in (".vgpr_spill_count", ".sgpr_spill_count", ".private_segment_fixed_size"):
        assert {name: n for name, n in _values(code_object, field).items() if n} == {}, field
    assert {k[".name"] for k in _kernels(code_object) if k.get(".uses_dynamic_stack")} == set()


def test_registers_stay_in_their_budget(code_object: Path, built: Built) -> None:
    over = {
        name: vgprs
        for name, vgprs in _values(code_object, ".vgpr_count").items()
        if vgprs > (64 if built.head_dims[name] <= 256 else 96)
    }
    assert over == {}


def test_waves_have_32_lanes(code_object: Path) -> None:
    assert set(_values(code_object, ".wavefront_size").values()) == {32}


def test_the_argument_is_the_parameter_struct_alone(code_object: Path, built: Built) -> None:
    for kernel in _kernels(code_object):
        (argument,) = kernel[".args"]
        assert (argument[".offset"], argument[".size"]) == (0, built.params_bytes)
        assert argument[".value_kind"] == "by_value"
        assert kernel[".kernarg_segment_size"] == built.params_bytes


def test_it_is_small_and_of_version_5_for_its_architecture(
    code_object: Path, architecture: str
) -> None:
    assert code_object.stat().st_size <= MAX_BYTES
    metadata = _metadata(code_object)
    assert metadata["amdhsa.version"] == [1, 2]
    assert metadata["amdhsa.target"] == f"amdgcn-amd-amdhsa--{architecture}"
    with code_object.open("rb") as file:
        assert ELFFile(file)["e_ident"]["EI_ABIVERSION"] == _ABI_OF_V5
