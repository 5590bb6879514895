"""git with nothing of the user's in it: no configuration, hooks, signing or line-end rewriting.

Two machines must make the same commits and the same mails from the same files, so every call
goes through `Git`.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.errors import Fault

# Who commits; a patch keeps its own author.
NAME = "rdna35 series"
EMAIL = "rdna35@series.invalid"

_SETTINGS = (
    "core.autocrlf=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.fileMode=true",
    "core.hooksPath=/dev/null",
    "core.quotePath=false",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "diff.algorithm=myers",
    "gc.auto=0",
    "i18n.commitEncoding=UTF-8",
    "advice.detachedHead=false",
)


class GitError(Exception):
    """A git command ended with an error; `stderr` is what it said."""

    def __init__(self, command: Sequence[str], stderr: str):
        super().__init__(f"git {' '.join(command)}: {stderr.strip()}")
        self.stderr = stderr


def environment(epoch: int, index: Path | None = None) -> dict[str, str]:
    """The environment of a git call: a fixed identity and date (`epoch`, seconds since 1970)."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_NAME": NAME,
        "GIT_AUTHOR_EMAIL": EMAIL,
        "GIT_AUTHOR_DATE": f"{epoch} +0000",
        "GIT_COMMITTER_NAME": NAME,
        "GIT_COMMITTER_EMAIL": EMAIL,
        "GIT_COMMITTER_DATE": f"{epoch} +0000",
        "LC_ALL": "C",
        "TZ": "UTC",
    }
    if index is not None:
        env["GIT_INDEX_FILE"] = str(index)
    return env


class Git:
    """git in one folder, with one index and one date."""

    def __init__(self, folder: Path, epoch: int, index: Path | None = None):
        self.folder = folder
        self.epoch = epoch
        self.index = index

    def with_index(self, index: Path) -> "Git":
        """The same repository through another index file."""
        return Git(self.folder, self.epoch, index)

    def bytes(
        self, *command: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> bytes:
        """Output of a command; raises GitError where it fails, Fault where there is no git."""
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        try:
            done = subprocess.run(
                ["git", *settings, *command],
                cwd=self.folder,
                env=environment(self.epoch, self.index) | dict(env or {}),
                input=stdin,
                capture_output=True,
            )
        except FileNotFoundError as error:
            if error.filename != "git":
                raise
            raise Fault("git is not installed; install it with your system's packages") from None
        if done.returncode != 0:
            raise GitError(command, done.stderr.decode(errors="replace"))
        return done.stdout

    def text(self, *command: str, stdin: str = "", env: Mapping[str, str] | None = None) -> str:
        """Output of a command as text, without the last line end."""
        return self.bytes(*command, stdin=stdin.encode(), env=env).decode().rstrip("\n")

    def lines(self, *command: str) -> list[str]:
        """The zero-separated fields of a command's output (give the command its -z)."""
        return [part for part in self.bytes(*command).decode().split("\0") if part]

    def commit_id(self, revision: str) -> str | None:
        """Full id of the commit that a revision names, or None."""
        try:
            return self.text("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        except GitError:
            return None

    def files(self, revision: str) -> dict[str, tuple[str, str]]:
        """Path -> (mode, blob id) of every file of a revision."""
        entries = {}
        for line in self.lines("ls-tree", "-r", "-z", "--full-tree", revision):
            facts, path = line.split("\t", 1)
            mode, _, blob = facts.split()
            entries[path] = (mode, blob)
        return entries
