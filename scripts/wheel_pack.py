"""The last step of making a wheel: members in order, RECORD, one archive."""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from scripts.wheel_archive import (
    FILE_MODE,
    WheelWriter,
    format_record,
    member_order,
    record_hash,
)


@dataclass(frozen=True)
class New:
    """A member that this build makes."""

    data: bytes
    mode: int = FILE_MODE


@dataclass(frozen=True)
class Kept:
    """A member of another wheel, taken over as it is; `record` is its hash and size in RECORD."""

    info: zipfile.ZipInfo
    record: tuple[str, str]


def pack(
    path: Path,
    dist_info: str,
    members: Mapping[str, New | Kept],
    timestamp: int,
    source: BinaryIO | None = None,
) -> None:
    """Writes the wheel `path` from its members (all but RECORD).

    `source` is the archive that kept members come from; `timestamp` dates the new ones.
    """
    record_name = f"{dist_info}/RECORD"
    rows: list[tuple[str, str, str]] = []
    with path.open("wb") as stream:
        writer = WheelWriter(stream, timestamp)
        for name in sorted(members, key=member_order):
            member = members[name]
            if isinstance(member, New):
                writer.add(name, member.data, member.mode)
                rows.append((name, record_hash(member.data), str(len(member.data))))
            else:
                assert source is not None
                writer.copy(name, source, member.info)
                rows.append((name, *member.record))
        rows.append((record_name, "", ""))
        writer.add(record_name, format_record(rows))
        writer.finish()
