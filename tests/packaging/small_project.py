"""A project whose vLLM is five files: its source distribution, pin, series and checkout."""

import dataclasses
import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from scripts.checkout import checkout
from scripts.fetch import sha256_of
from scripts.git import Git
from scripts.pin import load_pin
from scripts.refresh import refresh
from scripts.series import Folders

# Sixty numbered lines: hunks far apart, and no two places alike.
LONG = "".join(f"line {n} of the long file\n" for n in range(60))
VLLM = {
    "vllm/__init__.py": "",
    "vllm/long.txt": LONG,
    "vllm/short.py": "first = 1\nsecond = 2\nthird = 3\n",
    "csrc/rocm/ops.h": "void op();\n",
    # Files that vLLM's own .gitignore hides from git.
    ".gitignore": "lib/\n/vllm/_version.py\n",
    "benchmarks/lib/hidden.py": "hidden = True\n",
    "run.sh": "#!/bin/sh\n",
}
SDIST_ONLY = {
    "PKG-INFO": "Name: vllm\n",
    "vllm.egg-info/SOURCES.txt": "vllm/__init__.py\n",
    "vllm/_version.py": "version = 'of the sdist'\n",
}


def write_sdist(path: Path, version: str, files: dict[str, str], date: int = 0) -> None:
    """A source distribution with these files (`.sh` files executable)."""
    with tarfile.open(path, "w:gz") as tar:
        for name, text in (SDIST_ONLY | files).items():
            member = tarfile.TarInfo(f"vllm-{version}/{name}")
            member.mtime = date
            member.size = len(text.encode())
            member.mode = 0o775 if name.endswith(".sh") else 0o664
            tar.addfile(member, io.BytesIO(text.encode()))


class SmallProject:
    """Everything that the packaging scripts take as arguments, in one folder."""

    def __init__(self, root: Path, files: dict[str, str] = VLLM):
        self.root = root
        self.cache = root / "cache"
        self.cache.mkdir(parents=True)
        self.folders = Folders(root / "patches", root / "vllm_overlay", root / "csrc")
        for folder in (self.folders.patches, self.folders.overlay, self.folders.csrc):
            folder.mkdir()
        self.tree = root / "vllm"
        pin = load_pin()
        self.sdist = self.cache / pin.sdist_name
        write_sdist(self.sdist, pin.version, files)
        self.pin = dataclasses.replace(pin, sha256=sha256_of(self.sdist))

    def upstream_becomes(self, files: dict[str, str]) -> None:
        """Moves the pin to a vLLM with these files."""
        write_sdist(self.sdist, self.pin.version, files)
        self.pin = dataclasses.replace(self.pin, sha256=sha256_of(self.sdist))

    def upstream_is(self, sdist: Path) -> None:
        """Moves the pin to the vLLM of a source distribution."""
        shutil.copyfile(sdist, self.sdist)
        self.pin = dataclasses.replace(self.pin, sha256=sha256_of(self.sdist))

    def checkout(self) -> str:
        """`make checkout`: the id of the last commit."""
        return checkout(self.pin, self.tree, self.folders, self.cache)

    def refresh(self) -> list[str]:
        """`make refresh`: what was written."""
        return refresh(self.pin, self.tree, self.folders)

    @property
    def git(self) -> Git:
        """git in the checkout."""
        return Git(self.tree, self.pin.source_date_epoch)

    def developer_git(self, *command: str, stdin: str = "") -> str:
        """git in the checkout as a developer with settings and hooks of their own runs it."""
        who = {"NAME": "A Developer", "EMAIL": "dev@example.com", "DATE": "1800000000 +0200"}
        env = {f"GIT_{role}_{k}": v for role in ("AUTHOR", "COMMITTER") for k, v in who.items()}
        done = subprocess.run(
            ["git", *command],
            cwd=self.tree,
            env=os.environ | env,
            input=stdin,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def write(self, changes: dict[str, str | None]) -> None:
        """Writes (or, for None, removes) files of the checkout."""
        for name, text in changes.items():
            file = self.tree / name
            if text is None:
                file.unlink()
            else:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")

    def commit(self, message: str, changes: dict[str, str | None]) -> None:
        """Commits changes in the checkout as a developer."""
        self.write(changes)
        self.developer_git("add", "--all", "--force", ".", ":!vllm/_version.py")
        self.developer_git("commit", "--quiet", "--no-verify", "--file=-", stdin=message)

    def snapshot(self) -> dict[str, bytes]:
        """Path -> bytes of all files of the series."""
        folders = (self.folders.patches, self.folders.overlay, self.folders.csrc)
        files = (file for folder in folders for file in folder.rglob("*") if file.is_file())
        return {str(file.relative_to(self.root)): file.read_bytes() for file in files}

    def tree_files(self) -> dict[str, str]:
        """Path -> text of what the last commit of the checkout holds."""
        return {path: self.git.text("show", f"HEAD:{path}") for path in self.git.files("HEAD")}

    def with_series(self) -> str:
        """Gives the project two patches: hunks in two files, an overlay file, two csrc files."""
        self.checkout()
        long = LONG.replace("line 5 ", "line five ").replace("line 50 ", "line fifty ")
        self.commit(
            "Name two lines\n\nThey had numbers.\n\nWhy here: a test.\nTest: tests/a.py::test_b\n",
            {"vllm/long.txt": long, "vllm/new/mod.py": "new = 1\n"},
        )
        self.commit(
            "[ROCm] Declare the second op\n\nWhy here: a test.\nTest: tests/c.py\n",
            {
                "csrc/rocm/ops.h": "void op();\nvoid second();\n",
                "csrc/rocm/second/op.h": "#pragma once\n",
                "csrc/rocm/second/op.cpp": "void second() {}\n",
            },
        )
        self.refresh()
        return self.git.text("rev-parse", "HEAD")
