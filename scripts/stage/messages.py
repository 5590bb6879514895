"""Commit messages as vLLM's reviewers expect them, and who signs them off."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from scripts import paths
from scripts.errors import Fault

# What a message says to the readers of this repository alone; a reason may go on over more lines.
_OURS = re.compile(r"^(?:Why here|Test|Overlay|Csrc):")
# vLLM asks for a trailer that says so; the pull request names the tools.
ASSISTED = "Assisted-by: AI coding agents, named in the pull request"


@dataclass(frozen=True)
class Person:
    """Who signs off, by git's configuration."""

    name: str
    email: str

    @property
    def sign_off(self) -> str:
        """The trailer of vLLM's developer certificate of origin."""
        return f"Signed-off-by: {self.name} <{self.email}>"


def configured_person(folder: Path = paths.ROOT) -> Person:
    """The person of git's configuration; Fault where it has none."""
    found = []
    for key in ("user.name", "user.email"):
        command = ["git", "config", "--get", key]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if not done.stdout.strip():
            raise Fault(f"git has no {key}, which signs the commits off; `git config {key} ...`")
        found.append(done.stdout.strip())
    return Person(*found)


def upstream_message(message: str, person: Person) -> str:
    """A patch's message without what is for this repository, with vLLM's prefix and trailers."""
    subject, _, body = message.strip("\n").partition("\n")
    if not subject.startswith("["):
        subject = f"[ROCm] {subject}"
    kept, ours = [], False
    for line in body.split("\n"):
        # A reason of ours ends with its paragraph, or where another trailer starts.
        ours = bool(_OURS.match(line)) or (ours and bool(line) and not _is_trailer(line))
        if not ours:
            kept.append(line)
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip("\n")
    parts = [subject, text, f"{ASSISTED}\n{person.sign_off}"]
    return "\n\n".join(part for part in parts if part) + "\n"


def _is_trailer(line: str) -> bool:
    return re.match(r"^[A-Z][A-Za-z-]+: \S", line) is not None
