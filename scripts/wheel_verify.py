"""Opens a finished wheel and checks everything that its summary promises.

    python -m scripts.wheel_verify dist/<file>

prints one line for each thing that is missing or wrong, and which; the checkout says what the
package's files must be, pin.toml the version and the architectures.
"""

import argparse
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.tags import parse_tag

from scripts import errors, wheel_op
from scripts.errors import Fault
from scripts.pin import Pin, load_pin
from scripts.wheel_archive import (
    open_wheel,
    parse_record,
    read_member,
    record_hash,
    stored_sha256,
)
from scripts.wheel_base import kept_members, renamed_member, rocm_extension
from scripts.wheel_changes import Changes, read_changes
from scripts.wheel_install import install_obstacle, install_problems
from scripts.wheel_python import TAGS
from scripts.wheel_version import (
    VERSION_FILE,
    WheelName,
    metadata_version,
    parse_wheel_name,
    series_version,
    version_file_versions,
)

# What vLLM's metadata has in every wheel.
_METADATA_FILES = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")


@dataclass(frozen=True)
class Verified:
    """What verification found: no problems, or one line for each."""

    problems: list[str]
    content_only: str | None  # why it was not installed, where it was not


def verify(path: Path, pin: Pin, changes: Changes, base: Path | None = None) -> Verified:
    """Checks the wheel's contents (`base`: also that its members are kept) and that it installs."""
    problems = content_problems(path, pin, changes, base)
    if problems:
        return Verified(problems, None)
    obstacle = install_obstacle(path)
    if obstacle is None:
        problems = install_problems(path, changes.added)
    return Verified(problems, obstacle)


def content_problems(path: Path, pin: Pin, changes: Changes, base: Path | None = None) -> list[str]:
    """One line for each thing in the wheel that is missing or wrong."""
    try:
        name = parse_wheel_name(path)
        with open_wheel(path) as archive:
            return [
                *_name_problems(archive, name, pin),
                *_record_problems(archive, name),
                *_package_problems(archive, name, changes),
                *_op_problems(archive, pin),
                *(_base_problems(archive, path, name, base, changes) if base else ()),
            ]
    except Fault as fault:
        return [str(fault)]


def _name_problems(archive: zipfile.ZipFile, name: WheelName, pin: Pin) -> Iterator[str]:
    version = name.version
    if series_version(version, pin.number) != version:
        yield f"file name: version {version} is not {pin.version}+...gfx1151.{pin.number}"
    if version.public != pin.version:
        yield f"file name: version {version} is not of vLLM {pin.version}, the pin"
    present = set(archive.namelist())
    for file in _METADATA_FILES:
        if f"{name.dist_info}/{file}" not in present:
            yield f"{name.dist_info}/{file}: missing"
    folders = {n.partition("/")[0] for n in present if n.partition("/")[0].endswith(".dist-info")}
    for folder in sorted(folders - {name.dist_info}):
        yield f"{folder}: metadata of another version than the file name's {version}"
    if f"{name.dist_info}/METADATA" in present:
        said = metadata_version(read_member(archive, f"{name.dist_info}/METADATA"))
        if said != str(version):
            yield f"{name.dist_info}/METADATA: version {said}, the file name says {version}"
    if f"{name.dist_info}/WHEEL" in present:
        yield from _tag_problems(read_member(archive, f"{name.dist_info}/WHEEL"), name)
    if VERSION_FILE not in present:
        yield f"{VERSION_FILE}: missing"
    else:
        text, parts = version_file_versions(
            read_member(archive, VERSION_FILE).decode("utf-8", "replace")
        )
        if text != str(version):
            yield f"{VERSION_FILE}: version {text}, the file name says {version}"
        expected = (*version.release, version.local)
        if not isinstance(parts, tuple) or (*parts[: len(version.release)], parts[-1]) != expected:
            yield f"{VERSION_FILE}: version tuple {parts}, the file name says {version}"


def _tag_problems(wheel_file: bytes, name: WheelName) -> Iterator[str]:
    lines = wheel_file.decode("utf-8", "replace").splitlines()
    fields = [line.partition(": ")[::2] for line in lines]
    tags = {str(tag) for key, value in fields if key == "Tag" for tag in parse_tag(value)}
    named = {str(tag) for tag in parse_tag(name.tags)}
    # vLLM publishes wheels whose file was renamed from linux_* to manylinux_* and nothing else.
    renamed = {tag.replace(tag.split("-")[2], f"linux_{_machine(tag)}") for tag in named}
    if tags not in (named, renamed):
        yield f"{name.dist_info}/WHEEL: tags {sorted(tags)}, the file name says {name.tags}"
    if ("Root-Is-Purelib", "false") not in fields:
        yield f"{name.dist_info}/WHEEL: no Root-Is-Purelib: false, but the wheel has machine code"


def _machine(tag: str) -> str:
    return "x86_64" if tag.endswith("x86_64") else tag.rpartition("_")[2]


def _record_problems(archive: zipfile.ZipFile, name: WheelName) -> Iterator[str]:
    record_name = f"{name.dist_info}/RECORD"
    if record_name not in archive.namelist():
        return
    rows = parse_record(read_member(archive, record_name))
    for info in archive.infolist():
        member = info.filename
        row = rows.pop(member, None)
        if row is None:
            yield f"{record_name}: no row for {member}"
        elif member == record_name:
            if row != ("", ""):
                yield f"{record_name}: its own row has a hash or a size"
        else:
            data = read_member(archive, member)
            if row[0] != record_hash(data):
                yield f"{record_name}: hash of {member} is not its content's"
            if row[1] != str(len(data)):
                yield f"{record_name}: size of {member} is {row[1]}, its content has {len(data)}"
    for member in rows:
        yield f"{record_name}: lists {member}, which is not in the wheel"


def _package_problems(archive: zipfile.ZipFile, name: WheelName, changes: Changes) -> Iterator[str]:
    present = set(archive.namelist())
    # A base wheel's maker may have changed files that the series leaves alone.
    is_all_ours = name.tags == TAGS
    added, patched = set(changes.added), set(changes.patched)
    for path, blob in sorted(changes.head.items()):
        is_series = path in added or path in patched
        if path == VERSION_FILE or not (is_series or is_all_ours):
            continue
        kind = (
            "overlay file"
            if path in added
            else "patched file"
            if path in patched
            else "vLLM's file"
        )
        if path not in present:
            yield f"{path}: {kind} missing"
        elif not blob.holds(data := read_member(archive, path)):
            is_pins = path in patched and changes.pin[path].holds(data)
            yield f"{path}: {kind} has {'the pin' if is_pins else 'another'}'s content"
    for path in changes.removed:
        if path in present:
            yield f"{path}: in the wheel, but the series removes it"


def _op_problems(archive: zipfile.ZipFile, pin: Pin) -> Iterator[str]:
    member = wheel_op.MEMBER
    extension = rocm_extension(archive)
    if member in archive.namelist():
        for problem in wheel_op.problems(read_member(archive, member), pin.architectures):
            yield f"{member}: {problem}"
    elif extension is None:
        yield f"{member}: missing"
    elif not wheel_op.has_op(read_member(archive, extension)):
        yield f"{member}: missing, and {extension} does not register rdna35_rope_cache"


def _base_problems(
    archive: zipfile.ZipFile, path: Path, name: WheelName, base: Path, changes: Changes
) -> Iterator[str]:
    base_name = parse_wheel_name(base)
    present = set(archive.namelist())
    with open_wheel(base) as before, base.open("rb") as before_file, path.open("rb") as file:
        for member in kept_members(before, changes, {wheel_op.MEMBER}, base_name.dist_info):
            kept = renamed_member(member, base_name, name)
            if member.endswith("/"):
                continue
            if kept not in present:
                yield f"{kept}: in {base.name}, missing here"
            elif stored_sha256(file, archive.getinfo(kept)) != stored_sha256(
                before_file, before.getinfo(member)
            ):
                yield f"{kept}: not the bytes of {base.name}"


def main() -> None:
    """Verifies the wheel that the command line names."""
    parser = argparse.ArgumentParser(
        prog="wheel_verify", description="Checks a wheel of the series."
    )
    parser.add_argument("wheel", type=Path)
    wheel = parser.parse_args().wheel
    pin = load_pin()
    verified = verify(wheel, pin, read_changes(pin))
    for problem in verified.problems:
        print(f"wheel_verify: {problem}")
    if verified.problems:
        raise Fault(f"{wheel.name}: not whole, see above; build it again")
    untried = f"; not installed, because {verified.content_only}" if verified.content_only else ""
    print(f"wheel_verify: {wheel.name} is whole{untried}")


if __name__ == "__main__":
    errors.run("wheel_verify", main)
