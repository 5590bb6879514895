"""The op library as a member of a wheel, and the code objects in it."""

import hashlib
import json
from pathlib import Path

from scripts import paths
from scripts.errors import Fault
from scripts.wheel_archive import PROGRAM_MODE
from scripts.wheel_elf import code_object_problems, library_problems, read_library, sections
from scripts.wheel_pack import New

MEMBER = "vllm/librdna35.so"

# The library's build puts each code object and their list into sections of their own.
_SECTION = ".rdna35."
_MANIFEST = f"{_SECTION}manifest"

_SCHEMA = b"rdna35_rope_cache("


def members(library: Path = paths.OP_LIBRARY) -> dict[str, New]:
    """What `make op` gives a wheel; raises Fault where there is no library."""
    try:
        return {MEMBER: New(library.read_bytes(), PROGRAM_MODE)}
    except OSError as error:
        raise Fault(f"{library}: {error.strerror}; run `make op`") from None


def has_op(extension: bytes) -> bool:
    """Whether an extension module registers the op."""
    return _SCHEMA in extension


def problems(library: bytes, architectures: tuple[str, ...]) -> list[str]:
    """What is wrong with the library: how it links, what it registers, each architecture's code."""
    try:
        elf = read_library(library)
    except ValueError as error:
        return [str(error)]
    found = library_problems(elf)
    if not has_op(library):
        found.append("does not register rdna35_rope_cache")
    parts = sections(elf, _SECTION)
    try:
        rows = json.loads(parts[_MANIFEST])["code_objects"]
        listed = {arch: (row["section"], row["size"], row["sha256"]) for arch, row in rows.items()}
    except KeyError as error:
        return [*found, f"its manifest of code objects has no {error.args[0]}"]
    except (AttributeError, TypeError, ValueError) as error:
        return [*found, f"its manifest of code objects is not one ({error})"]
    for architecture in architectures:
        if architecture not in listed:
            found.append(f"no code object for {architecture} in its manifest")
            continue
        section, size, sha256 = listed.pop(architecture)
        image = parts.get(section)
        if image is None:
            found.append(f"no code object for {architecture} in it, though its manifest lists one")
        elif len(image) != size or hashlib.sha256(image).hexdigest() != sha256:
            found.append(f"the code object for {architecture} is not the manifest's")
        else:
            wrong = code_object_problems(image, architecture)
            found += [f"the code object for {architecture}: {problem}" for problem in wrong]
    found += [f"code for {architecture}, which pin.toml does not list" for architecture in listed]
    return found
