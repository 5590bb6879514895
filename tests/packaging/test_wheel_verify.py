"""Verification: a whole wheel has no problems, and whatever is taken out or changed is named."""

import dataclasses
import hashlib
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.wheel_changes import Changes
from scripts.wheel_verify import content_problems
from tests.packaging import small_wheels
from tests.packaging.small_wheels import (
    OVERLAY,
    PATCHED,
    PIN,
    REMOVED,
    SERIES,
    UNTOUCHED,
    Members,
    rewritten,
    tampered,
    without,
)

LIBRARY = "vllm/librdna35.so"
DIST_INFO = f"vllm-{SERIES}.dist-info"
RECORD = f"{DIST_INFO}/RECORD"

Change = Callable[[Members], None]


@pytest.fixture(scope="module")
def changes(tmp_path_factory: pytest.TempPathFactory) -> Changes:
    """The made checkout's."""
    return small_wheels.checkout(tmp_path_factory.mktemp("made") / "vllm")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, changes: Changes, op_library: Path) -> Path:
    """A wheel with nothing wrong."""
    members = small_wheels.series_members(changes, op_library.read_bytes())
    return small_wheels.wheel(tmp_path_factory.mktemp("whole"), members)


def with_bytes(name: str, data: bytes) -> Change:
    def change(members: Members) -> None:
        members[name] = data

    return change


def replaced(name: str, old: bytes, new: bytes) -> Change:
    def change(members: Members) -> None:
        assert old in members[name]
        members[name] = members[name].replace(old, new)

    return change


def patched_backwards(name: str) -> Change:
    def change(members: Members) -> None:
        members[name] = small_wheels.base_members("1", "t")[name]

    return change


def test_a_whole_wheel_has_no_problems(whole: Path, changes: Changes) -> None:
    assert content_problems(whole, PIN, changes) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        *((without(name), f"{name}: overlay file missing") for name in OVERLAY),
        *(
            (with_bytes(name, b"other = 1\n"), f"{name}: overlay file has another's content")
            for name in OVERLAY
        ),
        *((without(name), f"{name}: patched file missing") for name in PATCHED),
        *(
            (patched_backwards(name), f"{name}: patched file has the pin's content")
            for name in PATCHED
        ),
        (with_bytes(PATCHED[0], b""), f"{PATCHED[0]}: patched file has another's content"),
        (without(UNTOUCHED), f"{UNTOUCHED}: vLLM's file missing"),
        (with_bytes(UNTOUCHED, b""), f"{UNTOUCHED}: vLLM's file has another's content"),
        (patched_backwards(REMOVED), f"{REMOVED}: in the wheel, but the series removes it"),
    ],
)
def test_a_file_of_the_package_is_named(
    whole: Path, changes: Changes, tmp_path: Path, change: Change, problem: str
) -> None:
    assert content_problems(tampered(whole, tmp_path, change), PIN, changes) == [problem]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        *(
            (without(f"{DIST_INFO}/{name}"), f"{DIST_INFO}/{name}: missing")
            for name in ("METADATA", "WHEEL", "entry_points.txt", "licenses/LICENSE")
        ),
        (
            replaced(f"{DIST_INFO}/METADATA", b"+gfx1151.7", b"+gfx1151.6"),
            f"{DIST_INFO}/METADATA: version 0.33.0+gfx1151.6, the file name says {SERIES}",
        ),
        (
            replaced(f"{DIST_INFO}/METADATA", b"Version: 0", b"Fersion: 0"),
            f"{DIST_INFO}/METADATA: version None, the file name says {SERIES}",
        ),
        (
            replaced(f"{DIST_INFO}/WHEEL", b"py3-none-linux_x86_64", b"py3-none-any"),
            f"{DIST_INFO}/WHEEL: tags ['py3-none-any'], the file name says py3-none-linux_x86_64",
        ),
        (
            replaced(f"{DIST_INFO}/WHEEL", b"false", b"true"),
            f"{DIST_INFO}/WHEEL: no Root-Is-Purelib: false, but the wheel has machine code",
        ),
        (without("vllm/_version.py"), "vllm/_version.py: missing"),
        (
            replaced("vllm/_version.py", b"version = '0.33.0+gfx1151.7'", b"version = '0.33.0'"),
            f"vllm/_version.py: version 0.33.0, the file name says {SERIES}",
        ),
        (
            replaced("vllm/_version.py", b"33, 0, 'gfx1151.7'", b"33, 0, 'gfx1151.8'"),
            f"vllm/_version.py: version tuple (0, 33, 0, 'gfx1151.8'), the file name says {SERIES}",
        ),
        (
            with_bytes("vllm-0.33.0.dist-info/METADATA", b"Version: 0.33.0\n"),
            f"vllm-0.33.0.dist-info: metadata of another version than the file name's {SERIES}",
        ),
    ],
)
def test_a_thing_of_the_metadata_is_named(
    whole: Path, changes: Changes, tmp_path: Path, change: Change, problem: str
) -> None:
    assert content_problems(tampered(whole, tmp_path, change), PIN, changes) == [problem]


def record_edit(old: str, new: str) -> Change:
    def change(members: Members) -> None:
        text, count = re.subn(old, new, members[RECORD].decode(), flags=re.MULTILINE)
        assert count == 1
        members[RECORD] = text.encode()

    return change


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (without(RECORD), f"{RECORD}: missing"),
        (
            record_edit(r"^vllm/config\.py,sha256=.", "vllm/config.py,sha256=-"),
            f"{RECORD}: hash of vllm/config.py is not its content's",
        ),
        (
            record_edit(r"^(vllm/config\.py,.*),(\d+)$", r"\1,1"),
            f"{RECORD}: size of vllm/config.py is 1, its content has 13",
        ),
        (record_edit(r"^vllm/config\.py,.*\n", ""), f"{RECORD}: no row for vllm/config.py"),
        (
            record_edit(r"\Z", "vllm/lost.py,sha256=x,1\n"),
            f"{RECORD}: lists vllm/lost.py, which is not in the wheel",
        ),
        (
            record_edit(r"^(.*RECORD),,$", r"\1,sha256=x,1"),
            f"{RECORD}: its own row has a hash or a size",
        ),
        (record_edit(r"\Z", "x\n"), "RECORD: not rows of name, hash and size"),
        (record_edit(r"\Z", "vllm/config.py,,\n"), "RECORD: two rows for vllm/config.py"),
    ],
)
def test_a_row_of_record_is_named(
    whole: Path, changes: Changes, tmp_path: Path, change: Change, problem: str
) -> None:
    (found,) = content_problems(rewritten(whole, tmp_path, change), PIN, changes)
    assert found.startswith(problem)


def in_library(change: Callable[[bytes], bytes]) -> Change:
    def changed(members: Members) -> None:
        before = members[LIBRARY]
        members[LIBRARY] = change(before)
        assert members[LIBRARY] != before

    return changed


def code_object(library: bytes, architecture: str) -> tuple[int, int, bytes]:
    """Where an architecture's code is in the library (start, size), and its sha256 in the list."""
    row = re.search(
        rb'"%s": \{[^}]*"size": (\d+), "sha256": "(\w+)"' % architecture.encode(), library
    )
    assert row is not None
    size, sha256 = int(row[1]), row[2]
    for match in re.finditer(rb"\x7fELF\x02\x01\x01\x40", library):
        image = library[match.start() : match.start() + size]
        if hashlib.sha256(image).hexdigest().encode() == sha256:
            return match.start(), size, sha256
    raise AssertionError(f"no code for {architecture}")


def with_damaged_code(architecture: str) -> Callable[[bytes], bytes]:
    def change(library: bytes) -> bytes:
        start, size, _ = code_object(library, architecture)
        middle = start + size // 2
        return library[:middle] + bytes([library[middle] ^ 1]) + library[middle + 1 :]

    return change


def with_section_renamed(architecture: str) -> Callable[[bytes], bytes]:
    def change(library: bytes) -> bytes:
        name = architecture.encode()
        return library.replace(b"\0.rdna35.%s\0" % name, b"\0.rdna35.%s\0" % name[::-1])

    return change


def with_code_edited(
    architecture: str, offset: int, old: int, new: int
) -> Callable[[bytes], bytes]:
    """Changes a byte of the code and its hash in the list with it."""

    def change(library: bytes) -> bytes:
        start, size, sha256 = code_object(library, architecture)
        image = bytearray(library[start : start + size])
        assert image[offset] == old
        image[offset] = new
        hidden = hashlib.sha256(image).hexdigest().encode()
        return (library[:start] + image + library[start + size :]).replace(sha256, hidden)

    return change


def newest_symbol(name: bytes, version: bytes) -> Callable[[bytes], bytes]:
    """Lets the library need `version` in the place of one of the same length."""

    def change(library: bytes) -> bytes:
        found = re.search(rb"\0%s[0-9.]{%d}\0" % (name, len(version)), library)
        assert found is not None
        return library.replace(found[0], b"\0" + name + version + b"\0")

    return change


E_MACHINE, E_FLAGS = 18, 48


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (without(LIBRARY), "missing"),
        (with_bytes(LIBRARY, b"no library"), "not a whole ELF file"),
        (in_library(lambda data: data[:5000]), "not a whole ELF file"),
        (
            in_library(lambda data: data[:E_MACHINE] + b"\xb7" + data[E_MACHINE + 1 :]),
            "not a shared library for x86_64 (EM_AARCH64, ET_DYN)",
        ),
        (
            in_library(lambda data: data.replace(b"rdna35_rope_cache(", b"rdna36_rope_cache(")),
            "does not register rdna35_rope_cache",
        ),
        (
            in_library(lambda data: data.replace(b"\0libm.so.6\0", b"\0libhip.so\0")),
            "is linked to libhip.so",
        ),
        (
            in_library(lambda data: data.replace(b"\0.rdna35.manifest\0", b"\0.rdna35.manifesT\0")),
            "its manifest of code objects has no .rdna35.manifest",
        ),
        *(
            (
                in_library(with_section_renamed(arch)),
                f"no code object for {arch} in it, though its manifest lists one",
            )
            for arch in PIN.architectures
        ),
        *(
            (
                in_library(with_damaged_code(arch)),
                f"the code object for {arch} is not the manifest's",
            )
            for arch in PIN.architectures
        ),
        (
            in_library(with_code_edited("gfx1151", E_FLAGS, 0x4A, 0x43)),
            "the code object for gfx1151: code for gfx1150",
        ),
        (
            in_library(with_code_edited("gfx1152", E_MACHINE, 224, 62)),
            "the code object for gfx1152: not loadable code for an AMD GPU (EM_X86_64, ET_DYN)",
        ),
    ],
)
def test_a_fault_of_the_library_is_named(
    whole: Path, changes: Changes, tmp_path: Path, change: Change, problem: str
) -> None:
    (found,) = content_problems(tampered(whole, tmp_path, change), PIN, changes)
    assert found.startswith(f"{LIBRARY}: {problem}")


@pytest.mark.parametrize(
    ("prefix", "version", "limit"),
    [
        (b"GLIBC_2.", b"36", "GLIBC_2.35"),
        (b"GLIBC_2.", b"99", "GLIBC_2.35"),
        (b"GLIBCXX_3.4.", b"31", "GLIBCXX_3.4.30"),
        (b"CXXABI_1.", b"4", "CXXABI_1.3.13"),
    ],
)
def test_a_symbol_newer_than_the_oldest_system_is_named(
    whole: Path, changes: Changes, tmp_path: Path, prefix: bytes, version: bytes, limit: str
) -> None:
    change = in_library(newest_symbol(prefix, version))
    (found,) = content_problems(tampered(whole, tmp_path, change), PIN, changes)
    assert found.startswith(f"{LIBRARY}: needs {(prefix + version).decode()} of lib")
    assert found.endswith(f", newer than {limit}")


def test_code_that_the_pin_does_not_list_is_named_and_code_that_it_lists_is_missed(
    whole: Path, changes: Changes
) -> None:
    first, *rest = PIN.architectures
    pin = dataclasses.replace(PIN, architectures=(*rest, "gfx1199"))
    assert content_problems(whole, pin, changes) == [
        f"{LIBRARY}: no code object for gfx1199 in its manifest",
        f"{LIBRARY}: code for {first}, which pin.toml does not list",
    ]


def test_a_wheel_of_another_series_or_vllm_is_named(whole: Path, changes: Changes) -> None:
    other = dataclasses.replace(PIN, number=8)
    assert content_problems(whole, other, changes) == [
        f"file name: version {SERIES} is not 0.33.0+...gfx1151.8"
    ]
    other = dataclasses.replace(PIN, version="0.34.0")
    assert content_problems(whole, other, changes) == [
        f"file name: version {SERIES} is not of vLLM 0.34.0, the pin"
    ]


def test_a_wheel_whose_file_was_renamed_is_named(
    whole: Path, changes: Changes, tmp_path: Path
) -> None:
    renamed = tmp_path / whole.name.replace("gfx1151.7", "rocm72.gfx1151.7")
    renamed.write_bytes(whole.read_bytes())
    found = content_problems(renamed, PIN, changes)
    assert f"{DIST_INFO}: metadata of another version than the file name's" in "\n".join(found)


def test_a_damaged_member_is_named(whole: Path, changes: Changes, tmp_path: Path) -> None:
    copy = tmp_path / whole.name
    data = bytearray(whole.read_bytes())
    data[data.index(b"backend = 'fused'")] ^= 1
    copy.write_bytes(data)
    (found,) = content_problems(copy, PIN, changes)
    assert "vllm/model/attention.py is damaged" in found


def test_a_wheel_that_was_cut_short_is_named(whole: Path, changes: Changes, tmp_path: Path) -> None:
    copy = tmp_path / whole.name
    copy.write_bytes(whole.read_bytes()[:-100])
    (found,) = content_problems(copy, PIN, changes)
    assert found.startswith(f"{copy}: no zip archive")


def test_a_rocm_extension_in_place_of_the_library_must_have_the_op(
    whole: Path, changes: Changes, tmp_path: Path
) -> None:
    """A full build has the op inside vLLM's own extension."""

    def with_extension(data: bytes) -> Change:
        def change(members: Members) -> None:
            del members[LIBRARY]
            members["vllm/_rocm_C.abi3.so"] = data

        return change

    full = tampered(whole, tmp_path, with_extension(b"\0rdna35_rope_cache(Tensor positions, "))
    assert content_problems(full, PIN, changes) == []
    without_op = tampered(whole, tmp_path, with_extension(b"\0paged_attention(Tensor out, "))
    assert content_problems(without_op, PIN, changes) == [
        f"{LIBRARY}: missing, and vllm/_rocm_C.abi3.so does not register rdna35_rope_cache"
    ]


def test_a_member_of_the_base_wheel_that_changed_is_named(
    whole: Path, changes: Changes, tmp_path: Path
) -> None:
    """Same contents in other bytes are a change, too: kept means the compressed bytes."""
    base = tmp_path / "vllm-0.33.0-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(base, "w") as archive:
        for name, data in small_wheels.base_members("0.33.0", "py3-none-linux_x86_64").items():
            is_engine = name == UNTOUCHED
            method = zipfile.ZIP_DEFLATED if is_engine else zipfile.ZIP_STORED
            archive.writestr(name, data, method)
        archive.writestr("vllm/extra.so", b"native")
    assert content_problems(whole, PIN, changes, base) == [
        f"{UNTOUCHED}: not the bytes of {base.name}",
        f"vllm/extra.so: in {base.name}, missing here",
    ]
