"""The op library as a member of a wheel, and the list of the code objects in it."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from scripts import paths
from scripts.errors import Fault
from scripts.wheel_archive import PROGRAM_MODE
from scripts.wheel_elf import code_object_offsets, code_object_problems, library_problems
from scripts.wheel_pack import New

LIBRARY = "vllm/librdna35.so"
MANIFEST = "vllm/librdna35.json"


@dataclass(frozen=True)
class CodeObject:
    """A row of the manifest: the device code of one architecture, as it lies in the library."""

    architecture: str
    size: int  # bytes
    sha256: str


def members(folder: Path = paths.OP) -> dict[str, New]:
    """The members of a wheel that `make op` makes; raises Fault where it has not."""
    try:
        return {
            LIBRARY: New((folder / "librdna35.so").read_bytes(), PROGRAM_MODE),
            MANIFEST: New((folder / "manifest.json").read_bytes()),
        }
    except OSError as error:
        raise Fault(f"{error.filename}: {error.strerror}; run `make op`") from None


def parse_manifest(data: bytes) -> dict[str, CodeObject]:
    """Architecture -> code object; raises ValueError where the manifest has another form."""
    try:
        rows = json.loads(data)["code_objects"]
        return {
            architecture: CodeObject(architecture, int(row["size"]), str(row["sha256"]))
            for architecture, row in rows.items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a table of code objects ({error!r})") from None


def problems(library: bytes, manifest: bytes, architectures: tuple[str, ...]) -> list[str]:
    """What is wrong with the library or its manifest, each with the member's name in front."""
    found = [f"{LIBRARY}: {problem}" for problem in library_problems(library)]
    try:
        rows = parse_manifest(manifest)
    except ValueError as error:
        return [*found, f"{MANIFEST}: {error}"]
    offsets = code_object_offsets(library)
    for architecture in architectures:
        row = rows.pop(architecture, None)
        if row is None:
            found.append(f"{MANIFEST}: no code object for {architecture}")
            continue
        images = (library[offset : offset + row.size] for offset in offsets)
        image = next((i for i in images if hashlib.sha256(i).hexdigest() == row.sha256), None)
        if image is None:
            found.append(f"{LIBRARY}: the manifest's code object for {architecture} is not in it")
        else:
            found += [f"{LIBRARY}: code object for {architecture}: {problem}" for problem in code_object_problems(image, architecture)]
    found += [f"{MANIFEST}: lists {architecture}, which pin.toml does not" for architecture in rows]
    return found
