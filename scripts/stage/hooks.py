"""Runs the hooks of vLLM's pre-commit configuration that need no network, over the changed files.

The linters of other repositories run at the versions that the configuration names, which pin.toml
has as well; vLLM's own hooks run as they stand in the tree.
"""

import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped, unused-ignore]

from scripts.errors import Fault
from scripts.lint_vllm import HOOKS
from scripts.linters import layout_faults, run, tool, type_faults

# What pre-commit calls the kinds of files, by their ends.
KINDS: Mapping[str, frozenset[str]] = {
    end: frozenset(kinds.split())
    for end, kinds in {
        ".py": "python", ".pyi": "pyi", ".h": "c c++ header", ".hpp": "c++ header", ".cc": "c++",
        ".cpp": "c++", ".cu": "cuda", ".cuh": "cuda", ".rs": "rust", ".proto": "proto",
        ".png": "png", ".md": "markdown", ".sh": "shell", ".yaml": "yaml", ".yml": "yaml",
        ".json": "json", ".toml": "toml", ".txt": "plain-text",
    }.items()
}  # fmt: skip
# The linters of other repositories: what only looks, with the configuration's own settings.
LINTERS = {
    "ruff-check": ("ruff", "check", "--quiet", "--force-exclude", "--output-format=concise"),
    "ruff-format": ("ruff", "format", "--force-exclude", "--diff", "--quiet"),
    "typos": ("typos", "--format=brief", "--force-exclude"),
    "clang-format": ("clang-format", "--style=file", "--dry-run", "--Werror"),
}
# Kinds of files, and paths, that the hooks' own repositories name, not the configuration.
OF_REPOSITORIES = {
    "ruff-check": "python pyi",
    "ruff-format": "python pyi",
    "markdownlint-cli2": "markdown",
    "shellcheck": "shell",
}
WHERE = {"actionlint": r"^\.github/workflows/"}
# It only prints a piece of advice.
ADVICE = "suggestion"


@dataclass(frozen=True)
class Hook:
    """One hook as configured."""

    id: str
    local: bool
    language: str
    entry: str
    args: tuple[str, ...]
    files: str
    exclude: str
    types: frozenset[str]
    types_or: frozenset[str]
    pass_filenames: bool
    always_run: bool
    at_commit: bool

    def chosen(self, names: Iterable[str], exclude: str) -> list[str]:
        """The files that pre-commit would give it."""
        return [name for name in names if self._takes(name, exclude)]

    def _takes(self, name: str, exclude: str) -> bool:
        if not re.search(self.files, name) or any(
            pattern and re.search(pattern, name) for pattern in (self.exclude, exclude)
        ):
            return False
        kinds = KINDS.get(Path(name).suffix, frozenset()) | {"file", "text"}
        return self.types <= kinds and (not self.types_or or bool(self.types_or & kinds))


@dataclass(frozen=True)
class Result:
    """What became of a hook: the reason why it did not run, or what it found."""

    id: str
    not_run: str = ""
    faults: tuple[str, ...] = ()


def load(text: str) -> tuple[list[Hook], str]:
    """The hooks of a configuration, and what it leaves out of all of them."""
    table = yaml.safe_load(text)
    found = [
        _hook(entry, repo["repo"] == "local") for repo in table["repos"] for entry in repo["hooks"]
    ]
    return found, table.get("exclude", "")


def _hook(entry: Mapping[str, Any], local: bool) -> Hook:
    return Hook(
        id=entry["id"],
        local=local,
        language=entry.get("language", ""),
        entry=entry.get("entry", ""),
        args=tuple(entry.get("args", ())),
        files=entry.get("files", WHERE.get(entry["id"], "")),
        exclude=entry.get("exclude", ""),
        types=frozenset(entry.get("types", ())),
        types_or=frozenset(entry.get("types_or", OF_REPOSITORIES.get(entry["id"], "").split())),
        pass_filenames=entry.get("pass_filenames", True),
        always_run=entry.get("always_run", False),
        at_commit=entry.get("stages") != ["commit-msg"],
    )


def run_all(tree: Path, names: Sequence[str], say: Callable[[str], None]) -> list[Result]:
    """Runs every hook on the changed files `names` of the tree, in the configuration's order."""
    hooks, exclude = load((tree / HOOKS).read_text(encoding="utf-8"))
    results = []
    for hook in hooks:
        chosen = hook.chosen(names, exclude)
        if hook.id == ADVICE:
            continue
        if not hook.at_commit:
            results.append(
                Result(hook.id, "it is for commit messages, whose sign-off was checked apart")
            )
        elif not chosen and not hook.always_run:
            results.append(Result(hook.id, "no changed file is of its kind"))
        else:
            results.append(_run(tree, hook, chosen if hook.pass_filenames else [], say))
    return results


def _run(tree: Path, hook: Hook, names: Sequence[str], say: Callable[[str], None]) -> Result:
    command = _command(tree, hook)
    if command is None:
        return Result(hook.id, "it is not installed and needs the network to be")
    say(hook.id)
    lines = run([*command, *names], tree)
    if hook.id == "ruff-format":
        lines = layout_faults(lines)
    elif hook.id == "mypy":
        lines = type_faults(lines) or lines
    elif hook.id == "clang-format":
        lines = [line for line in lines if ": error: " in line] or lines
    return Result(hook.id, faults=tuple(lines))


def _command(tree: Path, hook: Hook) -> list[str] | None:
    """How a hook is run, or None where what it needs is not here."""
    if hook.id in LINTERS:
        name, *arguments = LINTERS[hook.id]
        return [tool(name), *arguments]
    if not hook.local:
        found = shutil.which(hook.id)
        return [found, *(arg for arg in hook.args if arg != "--fix")] if found else None
    program, *arguments = shlex.split(hook.entry)
    if hook.language == "python" and program == "python":
        program = tool("python")
    elif hook.language == "script":
        program = str(tree / program)
    elif shutil.which(program) is None:
        raise Fault(f"vLLM's hook {hook.id} needs {program}, which is not installed")
    return [program, *arguments, *hook.args]
