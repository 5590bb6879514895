"""A project like this one, small enough to be made anew for each test."""

from pathlib import Path

import pytest

from tests.packaging.small_project import SmallProject


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallProject:
    """A small vLLM's source distribution, in the cache of a project without patches."""
    monkeypatch.delenv("VLLM_SDIST", raising=False)
    monkeypatch.delenv("VLLM_GIT", raising=False)
    return SmallProject(tmp_path)
