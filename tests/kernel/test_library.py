"""The op library's file: what it needs, what it gives, what is embedded in it."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from scripts import paths
from scripts.pin import load_pin
from tests.kernel import op

if op.device().type != "cpu":
    pytest.skip("looks at the build for the pin's architectures", allow_module_level=True)

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

from scripts.wheel_elf import library_problems


def _content(elf: ELFFile, section: str) -> bytes:
    found = elf.get_section_by_name(section)
    assert found is not None, section
    return found.data()


def _symbols(library: Path) -> list[tuple[str, bool, bool]]:
    """Name, defined, versioned of each global symbol in the dynamic table."""
    with library.open("rb") as file:
        elf = ELFFile(file)
        symbols, versions = (elf.get_section_by_name(n) for n in (".dynsym", ".gnu.version"))
        assert isinstance(symbols, SymbolTableSection) and isinstance(versions, GNUVerSymSection)
        return [
            (
                symbol.name,
                symbol["st_shndx"] != "SHN_UNDEF",
                isinstance(version["ndx"], int),
            )
            for symbol, version in zip(symbols.iter_symbols(), versions.iter_symbols(), strict=True)
            if symbol.name and symbol["st_info"]["bind"] == "STB_GLOBAL"
        ]


def test_of_torch_only_the_c_shim_is_needed(op_library: Path) -> None:
    # What has no version is neither libc's nor libstdc++'s.
    needed = [name for name, defined, versioned in _symbols(op_library) if not versioned]
    assert [n for n in needed if not re.match(r"(aoti_)?torch_[a-z0-9_]+$", n)] == []
    assert len(needed) > 10


def test_nothing_is_exported(op_library: Path) -> None:
    assert [name for name, defined, _ in _symbols(op_library) if defined] == []


def test_it_loads_on_the_oldest_system_promised(op_library: Path) -> None:
    with op_library.open("rb") as file:
        assert library_problems(ELFFile(file)) == []


def test_no_path_of_this_machine_is_in_it(op_library: Path) -> None:
    data = op_library.read_bytes()
    for folder in (paths.ROOT, Path.home(), Path(sys.prefix)):
        assert str(folder).encode() not in data


def test_manifest_and_code_objects_are_sections_of_the_library(op_library: Path) -> None:
    folder = op_library.parent
    with op_library.open("rb") as file:
        elf = ELFFile(file)
        embedded = _content(elf, ".rdna35.manifest")
        assert embedded == (folder / "manifest.json").read_bytes()
        objects = json.loads(embedded)["code_objects"]
        assert tuple(objects) == load_pin().architectures
        for architecture, item in objects.items():
            image = _content(elf, item["section"])
            assert image == (folder / architecture / f"{item['name']}.hsaco").read_bytes()
            assert item["size"] == len(image)
            assert item["sha256"] == hashlib.sha256(image).hexdigest()


def test_torchs_functions_are_declared_as_torch_declares_them(tmp_path: Path) -> None:
    # Both declarations in one file: a parameter or a result of another type does not compile.
    source = tmp_path / "both.cpp"
    source.write_text(
        "#include <torch/csrc/stable/c/shim.h>\n"
        f'#include "{paths.CSRC}/runtime/torch_shim.h"\n'
        "static_assert(TORCH_TARGET_VERSION == TORCH_VERSION_2_11_0);\n"
    )
    include = Path(torch.__file__).parent / "include"
    command = ["g++", "-std=c++17", "-fsyntax-only", f"-I{include}", str(source)]
    command.append("-DTORCH_TARGET_VERSION=0x020B000000000000ULL")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_build_in_another_folder_has_the_same_bytes(op_library: Path, tmp_path: Path) -> None:
    for name in ("CMakeLists.txt", "cmake", "csrc", "scripts", "pin.toml"):
        source = paths.ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    subprocess.run([sys.executable, "-m", "scripts.op"], cwd=tmp_path, check=True)
    other = tmp_path / op_library.relative_to(paths.ROOT)
    assert other.read_bytes() == op_library.read_bytes()
