"""The version of a wheel of the series, and the places that say it."""

from pathlib import Path

import pytest
from packaging.version import Version

from scripts.errors import Fault
from scripts.wheel_version import (
    has_series,
    is_rocm,
    metadata_version,
    parse_wheel_name,
    series_version,
    version_file_versions,
    with_metadata_version,
    with_version_file_version,
)
from tests.packaging.small_wheels import version_file


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("0.33.0", "0.33.0+gfx1151.4"),
        ("0.33.0+rocm722", "0.33.0+rocm722.gfx1151.4"),
        ("0.33.0+rocm7.2.2", "0.33.0+rocm7.2.2.gfx1151.4"),
        ("0.33.0+rocm722.gfx1151.3", "0.33.0+rocm722.gfx1151.4"),
        ("0.33.0+gfx1151.12", "0.33.0+gfx1151.4"),
        # Another's local part that only looks like the series'.
        ("0.33.0+gfx1151", "0.33.0+gfx1151.gfx1151.4"),
    ],
)
def test_series_version(base: str, expected: str) -> None:
    assert str(series_version(Version(base), 4)) == expected
    assert has_series(Version(expected))


def test_only_a_local_part_of_the_series_counts_as_the_series() -> None:
    assert not has_series(Version("0.33.0"))
    assert not has_series(Version("0.33.0+rocm722"))
    assert not has_series(Version("0.33.0+rocm722.gfx1151"))


def test_only_a_local_part_of_rocm_counts_as_rocm() -> None:
    assert is_rocm(Version("0.33.0+rocm722"))
    assert is_rocm(Version("0.33.0+rocm722.gfx1151.3"))
    assert not is_rocm(Version("0.33.0+cu130"))
    assert not is_rocm(Version("0.33.0"))


def test_wheel_names_are_taken_apart_as_downloads_have_them() -> None:
    name = parse_wheel_name(Path("a/vllm-0.33.0%2Brocm722-cp312-cp312-linux_x86_64.whl"))
    assert (str(name.version), name.tags) == ("0.33.0+rocm722", "cp312-cp312-linux_x86_64")
    assert name.file_name == "vllm-0.33.0+rocm722-cp312-cp312-linux_x86_64.whl"
    assert name.dist_info == "vllm-0.33.0+rocm722.dist-info"


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("vllm.whl", "not the file name of a wheel"),
        ("vllm-0.33.0-py3-none-any.zip", "not the file name of a wheel"),
        ("torch-2.13.0-cp312-cp312-linux_x86_64.whl", "a wheel of torch, not of vllm"),
    ],
)
def test_other_file_names_are_refused(file: str, message: str) -> None:
    with pytest.raises(Fault, match=message):
        parse_wheel_name(Path(file))


def test_metadata_keeps_every_byte_but_its_version() -> None:
    before = b"Name: vllm\r\nVersion: 0.33.0\r\nX: y\r\n\nVersion: 1 in the text\n\n"
    after = with_metadata_version(before, Version("0.33.0+gfx1151.4"))
    assert after == before.replace(b"Version: 0.33.0\r", b"Version: 0.33.0+gfx1151.4\r")
    assert metadata_version(after) == "0.33.0+gfx1151.4"


@pytest.mark.parametrize("versions", [b"", b"Version: 1\nVersion: 2\n"])
def test_metadata_without_one_version_is_refused(versions: bytes) -> None:
    metadata = b"Name: vllm\n" + versions + b"\nVersion: 3\n"
    assert metadata_version(metadata) is None
    with pytest.raises(Fault, match="Version fields, not one"):
        with_metadata_version(metadata, Version("1"))


def test_the_version_file_keeps_every_line_but_its_versions() -> None:
    before = version_file("0.33.0+rocm722").decode()
    after = with_version_file_version(before, Version("0.33.0+rocm722.gfx1151.4"))
    assert after == version_file("0.33.0+rocm722.gfx1151.4").decode()
    assert version_file_versions(after) == (
        "0.33.0+rocm722.gfx1151.4",
        (0, 33, 0, "rocm722.gfx1151.4"),
    )


def test_a_version_file_of_another_form_is_refused() -> None:
    with pytest.raises(Fault, match="sets __version__ 0 times, not once"):
        with_version_file_version('version = "0.33.0"\n', Version("1"))
    assert version_file_versions('version = "0.33.0"\n') == (None, None)
