"""The series laid over a base wheel, whose other members stay byte for byte what they were."""

import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.version import Version

from scripts import wheel_op
from scripts.errors import Fault
from scripts.pin import Pin
from scripts.wheel_archive import (
    FILE_MODE,
    PROGRAM_MODE,
    open_wheel,
    parse_record,
    read_member,
)
from scripts.wheel_changes import Changes
from scripts.wheel_pack import Kept, New, pack
from scripts.wheel_version import (
    VERSION_FILE,
    WheelName,
    has_series,
    is_rocm,
    metadata_version,
    parse_wheel_name,
    series_version,
    with_metadata_version,
    with_version_file_version,
)

ROCM_EXTENSION = re.compile(r"vllm/_rocm_C\b[^/]*\.so")


def rocm_extension(archive: zipfile.ZipFile) -> str | None:
    """The name of vLLM's ROCm extension in a wheel, or None."""
    return next(filter(ROCM_EXTENSION.fullmatch, archive.namelist()), None)


def rocm_lacks(base: Path) -> list[str]:
    """What a wheel lacks of a ROCm wheel of vLLM; nothing for one that is."""
    with open_wheel(base) as archive:
        return _rocm_lacks(archive, parse_wheel_name(base).version)


def check(pin: Pin, changes: Changes, base: Path, force: bool) -> None:
    """Refuses, by a Fault that says which, a base wheel that the series cannot be laid over.

    That is one of another vLLM and one whose files the series could not patch; and, unless `force`,
    one that is not for ROCm or has the series already.
    """
    name = parse_wheel_name(base)
    with open_wheel(base) as archive:
        _check_version(archive, base, name, pin)
        patched_before = _check_kind(archive, base, name.version, changes, force)
        _check_patched(archive, base, changes, pin, patched_before)


def build(
    pin: Pin, changes: Changes, op: Mapping[str, New], base: Path, force: bool, work: Path
) -> Path:
    """Lays the series and the op library over the wheel `base`; Fault as `check`.

    Returns the path of the new wheel, in the folder `work`.
    """
    check(pin, changes, base, force)
    base_name = parse_wheel_name(base)
    name = WheelName(series_version(base_name.version, pin.number), base_name.tags)
    with open_wheel(base) as archive, base.open("rb") as source:
        members = _kept(archive, base_name, name)
        for gone in changes.removed:
            members.pop(gone, None)
        members |= {
            path: New(data, PROGRAM_MODE if changes.head[path].is_program else FILE_MODE)
            for path, data in changes.contents([*changes.patched, *changes.added]).items()
        }
        members |= op
        members |= _renamed(archive, base_name, name)
        work.mkdir(parents=True, exist_ok=True)
        wheel = work / name.file_name
        pack(wheel, name.dist_info, members, pin.source_date_epoch, source)
    return wheel


def kept_members(
    archive: zipfile.ZipFile, changes: Changes, op: Iterable[str], base_dist_info: str
) -> list[str]:
    """The members of a base wheel that a wheel laid over it has unchanged."""
    replaced = {
        *changes.patched,
        *changes.added,
        *changes.removed,
        *op,
        VERSION_FILE,
        f"{base_dist_info}/METADATA",
        f"{base_dist_info}/RECORD",
    }
    return [name for name in archive.namelist() if name not in replaced]


def renamed_member(name: str, base_name: WheelName, new_name: WheelName) -> str:
    """A kept member's name in the new wheel: the folders named after the version change theirs."""
    folder, slash, rest = name.partition("/")
    for suffix in ".dist-info", ".data":
        if folder == f"vllm-{base_name.version}{suffix}":
            return f"vllm-{new_name.version}{suffix}{slash}{rest}"
    return name


def _rocm_lacks(archive: zipfile.ZipFile, version: Version) -> list[str]:
    lacks = [] if rocm_extension(archive) else ["no vllm/_rocm_C*.so in it"]
    return lacks + ([] if is_rocm(version) else [f"no +rocm in its version {version}"])


def _check_version(archive: zipfile.ZipFile, base: Path, name: WheelName, pin: Pin) -> None:
    if name.version.public != pin.version:
        raise Fault(
            f"{base.name} is vLLM {name.version.public}, the pin is {pin.version};"
            f" use a wheel of vLLM {pin.version}"
        )
    metadata = metadata_version(read_member(archive, f"{name.dist_info}/METADATA"))
    if metadata is None or Version(metadata) != name.version:
        raise Fault(
            f"{base.name}: its METADATA says version {metadata}, its file name {name.version};"
            " use a wheel as vLLM's build made it"
        )


def _check_kind(
    archive: zipfile.ZipFile, base: Path, version: Version, changes: Changes, force: bool
) -> bool:
    """Refuses what needs force; returns whether a series is in the wheel already."""
    there = sorted({*changes.added, wheel_op.MEMBER} & set(archive.namelist()))
    signs = [f"its version is {version}"] if has_series(version) else []
    signs += [f"it holds {there[0]}"] if there else []
    if signs and not force:
        raise Fault(
            f"{base.name} already has the series ({', '.join(signs)});"
            " use the wheel that the series was laid over, or FORCE=1"
        )
    lacks = _rocm_lacks(archive, version)
    if lacks and not force:
        raise Fault(
            f"{base.name} is no ROCm wheel ({', '.join(lacks)}) and would not serve on Strix Halo;"
            " use a ROCm wheel of vLLM, or FORCE=1"
        )
    return bool(signs)


def _check_patched(
    archive: zipfile.ZipFile, base: Path, changes: Changes, pin: Pin, patched_before: bool
) -> None:
    present = set(archive.namelist())
    for name in sorted([*changes.patched, *changes.removed]):
        if name not in present:
            if patched_before and name not in changes.head:
                continue
            raise Fault(
                f"{base.name} has no {name}, which the series patches; use a complete wheel of vLLM"
            )
        data = read_member(archive, name)
        if changes.pin[name].holds(data):
            continue
        if patched_before and name in changes.head and changes.head[name].holds(data):
            continue
        raise Fault(
            f"{base.name}: {name} is not vLLM {pin.version}'s, and the series patches it;"
            f" use a wheel built from unchanged vLLM {pin.version}"
        )


def _kept(archive: zipfile.ZipFile, base_name: WheelName, name: WheelName) -> dict[str, New | Kept]:
    record_name = f"{base_name.dist_info}/RECORD"
    record = parse_record(read_member(archive, record_name))
    members: dict[str, New | Kept] = {}
    for info in archive.infolist():
        if info.is_dir() or info.filename == record_name:
            continue
        if info.filename not in record:
            raise Fault(
                f"{archive.filename}: RECORD has no row for {info.filename}; fetch the wheel again"
            )
        members[renamed_member(info.filename, base_name, name)] = Kept(info, record[info.filename])
    return members


def _renamed(archive: zipfile.ZipFile, base_name: WheelName, name: WheelName) -> dict[str, New]:
    """The two members that say the version."""
    metadata = read_member(archive, f"{base_name.dist_info}/METADATA")
    version_file = read_member(archive, VERSION_FILE).decode("utf-8")
    return {
        f"{name.dist_info}/METADATA": New(with_metadata_version(metadata, name.version)),
        VERSION_FILE: New(with_version_file_version(version_file, name.version).encode("utf-8")),
    }
