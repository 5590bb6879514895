"""Wheels as zip archives: written so that equal contents give equal bytes, read without unpacking.

New members are stored, not deflated: what deflate makes of the same bytes differs between zlib and
zlib-ng, and so between Linux distributions. Members taken from another wheel keep the very bytes
that they were compressed to there. (Python's zipfile can neither copy a member as it is nor promise
the same headers from one Python to the next, so the writing is done here.)
"""

import base64
import csv
import hashlib
import io
import struct
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from scripts.errors import Fault

_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_CENTRAL_HEADER = struct.Struct("<4s6H3L5H2L")
_END_RECORD = struct.Struct("<4s4H2LH")
_ZIP_2_0 = 20
_MADE_ON_UNIX = 3 << 8 | _ZIP_2_0
_ENCRYPTED = 1 << 0
_NAME_IS_UTF8 = 1 << 11
_REGULAR_FILE = 0o100000
_MAX_U16 = 0xFFFF
_MAX_U32 = 0xFFFFFFFF
_COPY_BYTES = 1 << 20

FILE_MODE = 0o644
PROGRAM_MODE = 0o755


def open_wheel(path: Path) -> zipfile.ZipFile:
    """Opens a wheel for reading; raises Fault where it is missing, no archive, or ambiguous."""
    try:
        archive = zipfile.ZipFile(path)
    except OSError as error:
        raise Fault(f"{path}: {error.strerror}; give the path of a wheel") from None
    except zipfile.BadZipFile as error:
        raise Fault(f"{path}: no zip archive ({error}); fetch or build the wheel again") from None
    for name, count in Counter(archive.namelist()).items():
        if count > 1:
            archive.close()
            raise Fault(f"{path}: {name} is in it {count} times; fetch or build the wheel again")
    return archive


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """The content of a member; raises Fault where it is missing or damaged."""
    try:
        return archive.read(name)
    except KeyError:
        raise Fault(f"{archive.filename}: no {name} in it") from None
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise Fault(f"{archive.filename}: {name} is damaged ({error})") from None


def _stored_span(stream: BinaryIO, info: zipfile.ZipInfo) -> tuple[int, int]:
    """Offset and length, in bytes, of a member's compressed data in its archive."""
    stream.seek(info.header_offset)
    header = stream.read(_LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size or header[:4] != b"PK\3\4":
        raise Fault(
            f"{stream.name}: {info.filename} has no local header; fetch or build the wheel again"
        )
    name_length, extra_length = _LOCAL_HEADER.unpack(header)[-2:]
    return info.header_offset + _LOCAL_HEADER.size + name_length + extra_length, info.compress_size


def stored_sha256(stream: BinaryIO, info: zipfile.ZipInfo) -> str:
    """SHA-256 (hex) of a member's compressed bytes, to compare members without inflating them."""
    offset, left = _stored_span(stream, info)
    stream.seek(offset)
    digest = hashlib.sha256()
    while left and (block := stream.read(min(left, _COPY_BYTES))):
        digest.update(block)
        left -= len(block)
    return digest.hexdigest()


class WheelWriter:
    """Writes an archive member by member to `stream`; `finish` completes it.

    `timestamp` (seconds since 1970, as SOURCE_DATE_EPOCH) dates every new member.
    """

    def __init__(self, stream: BinaryIO, timestamp: int) -> None:
        self._stream = stream
        # Zip knows no time zone (UTC: the same on every machine) and no date before 1980.
        date = max(time.gmtime(timestamp)[:6], (1980, 1, 1, 0, 0, 0))
        self._dos_time = date[3] << 11 | date[4] << 5 | date[5] // 2
        self._dos_date = (date[0] - 1980) << 9 | date[1] << 5 | date[2]
        self._central: list[bytes] = []

    def add(self, name: str, data: bytes, mode: int = FILE_MODE) -> None:
        """Adds a new member, stored."""
        self._head(
            name,
            method=zipfile.ZIP_STORED,
            dos_time=self._dos_time,
            dos_date=self._dos_date,
            crc=zlib.crc32(data),
            compressed_size=len(data),
            size=len(data),
            attributes=(_REGULAR_FILE | mode) << 16,
        )
        self._stream.write(data)

    def copy(self, name: str, source: BinaryIO, info: zipfile.ZipInfo) -> None:
        """Adds the member `info` of the archive `source` as `name`, its bytes not even inflated."""
        if info.flag_bits & _ENCRYPTED:
            raise Fault(
                f"{source.name}: {info.filename} is encrypted; use a wheel that pip can install"
            )
        year, month, day, hour, minute, second = info.date_time
        offset, left = _stored_span(source, info)
        self._head(
            name,
            method=info.compress_type,
            dos_time=hour << 11 | minute << 5 | second // 2,
            dos_date=(year - 1980) << 9 | month << 5 | day,
            crc=info.CRC,
            compressed_size=info.compress_size,
            size=info.file_size,
            attributes=info.external_attr,
        )
        source.seek(offset)
        while left:
            block = source.read(min(left, _COPY_BYTES))
            if not block:
                raise Fault(
                    f"{source.name}: ends inside {info.filename}; fetch or build the wheel again"
                )
            self._stream.write(block)
            left -= len(block)

    def finish(self) -> None:
        """Writes the directory of the archive."""
        start = self._stream.tell()
        directory = b"".join(self._central)
        count = len(self._central)
        if count > _MAX_U16 or start + len(directory) > _MAX_U32:
            raise Fault(
                f"{count} members, {start} bytes: more than the 65535 and 4 GiB of a plain zip"
            )
        self._stream.write(directory)
        self._stream.write(
            _END_RECORD.pack(b"PK\5\6", 0, 0, count, count, len(directory), start, 0)
        )

    def _head(
        self,
        name: str,
        *,
        method: int,
        dos_time: int,
        dos_date: int,
        crc: int,
        compressed_size: int,
        size: int,
        attributes: int,
    ) -> None:
        offset = self._stream.tell()
        if max(offset, size, compressed_size) > _MAX_U32:
            raise Fault(f"{name}: {size} bytes, after {offset}: more than the 4 GiB of a plain zip")
        raw_name = name.encode("utf-8")
        flags = 0 if name.isascii() else _NAME_IS_UTF8
        common = (flags, method, dos_time, dos_date, crc, compressed_size, size, len(raw_name), 0)
        self._stream.write(_LOCAL_HEADER.pack(b"PK\3\4", _ZIP_2_0, *common) + raw_name)
        self._central.append(
            _CENTRAL_HEADER.pack(
                b"PK\1\2", _MADE_ON_UNIX, _ZIP_2_0, *common, 0, 0, 0, attributes, offset
            )
            + raw_name
        )


def member_order(name: str) -> tuple[bool, bool, str]:
    """Sort key of members: by name, the metadata after the packages, RECORD last."""
    in_dist_info = ".dist-info/" in name
    return in_dist_info, in_dist_info and name.endswith(".dist-info/RECORD"), name


def record_hash(data: bytes) -> str:
    """The hash of a content as RECORD writes it."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode(
        "ascii"
    )


def parse_record(data: bytes) -> dict[str, tuple[str, str]]:
    """RECORD as member -> (hash, size), both as text; raises Fault where it is no such table."""
    rows: dict[str, tuple[str, str]] = {}
    try:
        for row in csv.reader(io.StringIO(data.decode("utf-8"), newline="")):
            name, content_hash, size = row
            if name in rows:
                raise Fault(f"RECORD: two rows for {name}")
            rows[name] = content_hash, size
    except (ValueError, csv.Error) as error:
        raise Fault(f"RECORD: not rows of name, hash and size ({error})") from None
    return rows


def format_record(rows: Iterable[tuple[str, str, str]]) -> bytes:
    """RECORD from (member, hash, size) rows, in their order."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8")
