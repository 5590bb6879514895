"""The form of a patch: what a reader must find in its mail, and what must not be in it."""

import re
from pathlib import Path

from scripts.series import Patch, Series, message_of

# From "vLLM's" convention and git's own: a subject fits one line of `git log --oneline`.
SUBJECT_LIMIT = 72

_SUBJECT = re.compile(r"^Subject: (.*(?:\n .*)*)", re.MULTILINE)
# How a reason says when the patch can go.
_END = re.compile(r"\b(?:go|goes|ends?|until)\b")
_TRAILER = re.compile(r"^(?:Why here|Test|Overlay|Csrc): ")
_LISTED = re.compile(r"^(?:Test: |Overlay: |Csrc: |diff --git )")
_TEST = re.compile(r"^Test: (\S+?)(?:::(\S+))?$")


def series_faults(series: Series, folder: Path, root: Path) -> list[str]:
    """`file:line: what is wrong` for each fault of a series' mails, and of what lies beside them.

    `folder` is where the mails are; other arguments as of `faults`.
    """
    found = []
    for number, patch in enumerate(series.patches, 1):
        found += faults(patch, number, root)
    found += [f"{path}:1: no patch claims it" for path in series.unclaimed]
    mails = {patch.path for patch in series.patches}
    strays = (file for file in sorted(folder.iterdir()) if file not in mails)
    return found + [f"{folder.name}/{file.name}:1: is no mail of the series" for file in strays]


def faults(patch: Patch, number: int, root: Path) -> list[str]:
    """`file:line: what is wrong` for each fault of a mail, the series' `number`th.

    `root` is the repository, where the tests that the patch names must be.
    """
    text = patch.mail.decode(errors="replace")
    found = []
    if not re.fullmatch(rf"{number:04}-[\w.+-]+\.patch", patch.path.name):
        found.append((1, f"its name does not start with {number:04}-: `make refresh` numbers them"))
    found += _head_faults(text)
    found += _message_faults(message_of(text), root)
    found += _added_line_faults(text)
    found += _twice_faults(text)
    return [f"{patch.name}:{line}: {fault}" for line, fault in sorted(found)]


def _head_faults(text: str) -> list[tuple[int, str]]:
    if not re.match(r"From [0-9a-f]{40} Mon Sep 17 00:00:00 2001\n", text):
        return [(1, "not a `git format-patch` mail; write it with `make refresh`")]
    match = _SUBJECT.search(message_of(text))
    if match is None or not match[1].startswith("[PATCH] "):
        return [(4, "no `Subject: [PATCH] ...`; write it with `make refresh`")]
    line = text.count("\n", 0, match.start()) + 1
    subject = match[1].replace("\n", "").removeprefix("[PATCH] ")
    found = []
    if len(subject) > SUBJECT_LIMIT and not subject.startswith("=?"):
        found.append((line, f"the subject has {len(subject)} characters, {SUBJECT_LIMIT} at most"))
    if subject.endswith("."):
        found.append((line, "the subject ends in a full stop"))
    if not re.match(r"[A-Z\[=]", subject):
        found.append((line, "the subject does not start with a capital letter"))
    return found


def _message_faults(message: str, root: Path) -> list[tuple[int, str]]:
    lines = message.split("\n")
    last = len(message.rstrip().split("\n"))
    found = [(n, "ends in white space") for n, line in _numbered(lines) if line != line.rstrip()]
    reasons = [n for n, line in _numbered(lines) if re.match(r"Why here: +\S", line)]
    if len(reasons) != 1:
        found.append((last, "no one `Why here:` line, which says why the patch is here and ends"))
    elif not _END.search(_paragraph(lines, reasons[0])):
        found.append((reasons[0], "`Why here:` does not say when the patch goes (`goes when ...`)"))
    tests = [(n, line) for n, line in _numbered(lines) if line.startswith("Test:")]
    if not tests:
        found.append((last, "no `Test:` line, which names the test that fails without the patch"))
    for n, line in tests:
        if fault := _test_fault(line, root):
            found.append((n, fault))
    return found


def _paragraph(lines: list[str], first: int) -> str:
    """The text from line `first` on, up to the next trailer or empty line."""
    rest = lines[first:]
    end = next((n for n, line in enumerate(rest) if not line or _TRAILER.match(line)), len(rest))
    return " ".join([lines[first - 1], *rest[:end]])


def _twice_faults(text: str) -> list[tuple[int, str]]:
    """Trailers, and files in the diff, that are there already further up."""
    seen: dict[str, int] = {}
    found = []
    for n, line in _numbered(text.split("\n")):
        if not _LISTED.match(line):
            continue
        if line in seen:
            found.append((n, f"`{line}` is in line {seen[line]} already"))
        seen.setdefault(line, n)
    return found


def _test_fault(line: str, root: Path) -> str:
    match = _TEST.match(line)
    if match is None:
        return "a `Test:` line is `Test: <file>` or `Test: <file>::<test>`, one test a line"
    file, test = root / match[1], match[2]
    if not file.is_file():
        return f"there is no {match[1]}"
    name = re.split(r"\[|::", test)[0] if test else ""
    if name and not re.search(rf"\b(?:def|class) {re.escape(name)}\b", file.read_text("utf-8")):
        return f"{match[1]} has no {name}"
    return ""


def _added_line_faults(text: str) -> list[tuple[int, str]]:
    start = text.count("\n", 0, len(message_of(text))) + 1
    found = []
    for n, line in _numbered(text.split("\n")):
        if n < start or not line.startswith("+") or line.startswith("+++ "):
            continue
        if line != line.rstrip():
            found.append((n, "an added line ends in white space"))
        if "\t" in line.rstrip():
            found.append((n, "an added line has a tab"))
    return found


def _numbered(lines: list[str]) -> list[tuple[int, str]]:
    return list(enumerate(lines, 1))
