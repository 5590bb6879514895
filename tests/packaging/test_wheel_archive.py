"""Archives: equal contents give equal bytes, and copied members keep theirs."""

import io
import random
import time
import zipfile
from pathlib import Path

import pytest

from scripts.errors import Fault
from scripts.wheel_archive import (
    WheelWriter,
    format_record,
    member_order,
    open_wheel,
    parse_record,
    read_member,
    stored_sha256,
)
from scripts.wheel_pack import New, pack

EPOCH = 1_793_606_823  # 2026-11-02 08:07:03 UTC


def noise(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


def deflated(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, (2025, 6, 7, 8, 9, 10))
            info.external_attr = 0o100755 << 16
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)
    return path


def test_zipfile_reads_what_is_written(tmp_path: Path) -> None:
    members = {"a/b.py": b"x = 1\n", "a/größe.txt": noise(70_000, 1), "empty": b""}
    path = tmp_path / "a.zip"
    with path.open("wb") as stream:
        writer = WheelWriter(stream, EPOCH)
        for name, data in members.items():
            writer.add(name, data, 0o755 if name == "empty" else 0o644)
        writer.finish()
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == members
        infos = archive.infolist()
    assert {info.date_time for info in infos} == {(2026, 11, 2, 8, 7, 2)}
    assert [info.external_attr >> 16 for info in infos] == [0o100644, 0o100644, 0o100755]


def test_a_date_before_zips_first_is_its_first() -> None:
    stream = io.BytesIO()
    writer = WheelWriter(stream, 0)
    writer.add("a", b"")
    writer.finish()
    assert zipfile.ZipFile(stream).getinfo("a").date_time == (1980, 1, 1, 0, 0, 0)


def test_the_order_and_time_of_making_members_leave_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {f"vllm/{n}.py": New(noise(100 + n, n)) for n in range(20)}
    members["vllm-1.dist-info/METADATA"] = New(b"Version: 1\n")
    pack(tmp_path / "a.whl", "vllm-1.dist-info", members, EPOCH)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    shuffled = dict(sorted(members.items(), key=lambda item: item[1].data))
    pack(tmp_path / "b.whl", "vllm-1.dist-info", shuffled, EPOCH)
    monkeypatch.undo()
    time.tzset()
    assert (tmp_path / "a.whl").read_bytes() == (tmp_path / "b.whl").read_bytes()


def test_metadata_comes_last_and_record_after_it() -> None:
    names = ["z/RECORD", "v.dist-info/RECORD", "v.dist-info/WHEEL", "a.py", "v.dist-info/METADATA"]
    assert sorted(names, key=member_order) == [
        "a.py",
        "z/RECORD",
        "v.dist-info/METADATA",
        "v.dist-info/WHEEL",
        "v.dist-info/RECORD",
    ]


def test_a_copied_member_keeps_its_compressed_bytes_mode_and_date(tmp_path: Path) -> None:
    # More than one block of the copy, compressible and not.
    data = noise(1_500_000, 2) + bytes(1_500_000)
    source = deflated(tmp_path / "source.zip", {"first": b"1", "old/name.so": data})
    copy = tmp_path / "copy.zip"
    with zipfile.ZipFile(source) as archive, source.open("rb") as raw, copy.open("wb") as stream:
        writer = WheelWriter(stream, EPOCH)
        writer.copy("new/name.so", raw, archive.getinfo("old/name.so"))
        writer.finish()
    with (
        zipfile.ZipFile(source) as before,
        zipfile.ZipFile(copy) as after,
        source.open("rb") as before_raw,
        copy.open("rb") as after_raw,
    ):
        old, new = before.getinfo("old/name.so"), after.getinfo("new/name.so")
        assert after.read("new/name.so") == data
        assert new.compress_size == old.compress_size < len(data)
        assert (new.external_attr, new.date_time) == (old.external_attr, old.date_time)
        assert stored_sha256(after_raw, new) == stored_sha256(before_raw, old)
        assert stored_sha256(before_raw, old) != stored_sha256(before_raw, before.getinfo("first"))


def test_a_member_written_before_its_size_was_known_is_copied_whole(tmp_path: Path) -> None:
    class Pipe(io.BytesIO):
        """A stream that cannot seek: zipfile then writes the sizes behind the data."""

        def seekable(self) -> bool:
            return False

        def seek(self, *_: int) -> int:
            raise io.UnsupportedOperation("seek")

        def tell(self) -> int:
            raise io.UnsupportedOperation("tell")

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", noise(5000, 3) + bytes(5000))
    source, copy = tmp_path / "source.zip", tmp_path / "copy.zip"
    source.write_bytes(pipe.getvalue())
    with zipfile.ZipFile(source) as archive, source.open("rb") as raw, copy.open("wb") as stream:
        assert archive.getinfo("a").flag_bits & 0x08
        writer = WheelWriter(stream, EPOCH)
        writer.copy("a", raw, archive.getinfo("a"))
        writer.finish()
    assert zipfile.ZipFile(copy).read("a") == noise(5000, 3) + bytes(5000)


def test_what_is_no_wheel_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(Fault, match=r"missing\.whl: No such file"):
        open_wheel(tmp_path / "missing.whl")
    (tmp_path / "text.whl").write_text("not a wheel")
    with pytest.raises(Fault, match=r"text\.whl: no zip archive"):
        open_wheel(tmp_path / "text.whl")


def test_a_member_that_is_in_twice_is_named(tmp_path: Path) -> None:
    path = tmp_path / "twice.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/b.py", "1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a/b.py", "2")
    with pytest.raises(Fault, match=r"twice\.whl: a/b\.py is in it 2 times"):
        open_wheel(path)


def test_a_damaged_member_is_named(tmp_path: Path) -> None:
    path = deflated(tmp_path / "a.whl", {"good": b"1" * 50, "bad/member.py": noise(1000, 4)})
    data = bytearray(path.read_bytes())
    data[data.index(b"bad/member.py") + 200] ^= 1
    path.write_bytes(data)
    with open_wheel(path) as archive, pytest.raises(Fault, match=r"bad/member\.py is damaged"):
        read_member(archive, "bad/member.py")


def test_record_rows_come_back_as_written() -> None:
    rows = [("a,b.py", "sha256=x", "3"), ('quo"te', "sha256=y", "0"), ("RECORD", "", "")]
    assert parse_record(format_record(rows)) == {name: (h, size) for name, h, size in rows}


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"a,b\n", "not rows of name, hash and size"), (b"a,b,1\na,c,2\n", "two rows for a")],
)
def test_a_record_of_another_form_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(Fault, match=message):
        parse_record(data)
