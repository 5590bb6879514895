"""vLLM's own checks over what the series puts into vLLM, run in the checkout."""

import re
from pathlib import Path

from scripts import paths
from scripts.errors import Fault
from scripts.git import Git
from scripts.linters import layout_faults, run, tool, type_faults
from scripts.pin import Pin, load_pin
from scripts.series import files_below, home_of

HOOKS = ".pre-commit-config.yaml"
# vLLM's hooks that only read the files named to them and need no more than the linters have.
PYTHON_HOOKS = (
    "check_forbidden_imports",
    "check_torch_cuda",
    "check_boolean_context_manager",
    "check_trust_remote_code",
    "validate_config",
)
CLANG_FORMAT_KINDS = (".h", ".hpp", ".cc", ".cpp", ".cu", ".cuh")
# A linter's version in vLLM's hooks: the line after its repository, or its requirement.
VERSIONS = {
    "ruff": r"ruff-pre-commit\n +rev: v(\S+)",
    "typos": r"crate-ci/typos\n +rev: v(\S+)",
    "clang-format": r"mirrors-clang-format\n +rev: v(\S+)",
    "mypy": r'"mypy==([^"]+)"',
    "pydantic": r'"pydantic==([^"]+)"',
}


def lint() -> list[str]:
    """`file:line: fault` for each fault of the series' files, by vLLM's settings."""
    tree, pin = paths.CHECKOUT, load_pin()
    found = version_faults(pin, (tree / HOOKS).read_text(encoding="utf-8"))
    files, ours = changed_files(Git(tree, pin.source_date_epoch))
    lines = _python(tree, [file for file in files if file.endswith(".py")])
    lines += _native(tree, [file for file in files if file.endswith(CLANG_FORMAT_KINDS)])
    lines += _words(tree, files)
    return found + [at_home(line, ours) for line in lines] + _ours_alone(tree)


def version_faults(pin: Pin, hooks: str) -> list[str]:
    """Where the pin's linters are not those of vLLM's hooks."""
    found = []
    for name, pattern in VERSIONS.items():
        match = re.search(pattern, hooks)
        if match is None:
            raise Fault(f"vLLM's {HOOKS} names no version of {name} any more; see VERSIONS")
        if match[1] != pin.tools[name]:
            text = paths.PIN.read_text(encoding="utf-8").split("\n")
            line = next(n for n, row in enumerate(text, 1) if row.startswith(f"{name} ="))
            found.append(
                f"pin.toml:{line}: {name} is {pin.tools[name]}, vLLM's {HOOKS} has {match[1]}"
            )
    return found


def changed_files(git: Git) -> tuple[list[str], set[str]]:
    """Files that the series adds or changes, and those of them that upstream lacks."""
    changed = ("diff", "--name-only", "-z", "--no-renames", "--diff-filter=d", "base", "HEAD")
    files = git.lines(*changed)
    return files, set(files) - git.files("base").keys()


def at_home(line: str, ours: set[str]) -> str:
    """A linter's line with its file as it is named here: where one edits it."""
    path = line.split(":", 1)[0]
    if path in ours:
        claim, home = home_of(path)
        folder = paths.OVERLAY.name if claim == "Overlay" else paths.CSRC.name
        return f"{folder}/{home}{line[len(path) :]}"
    if (paths.CHECKOUT / path).is_file():
        return f"build/vllm/{line}"
    return line


def _python(tree: Path, files: list[str]) -> list[str]:
    if not files:
        return []
    ruff = tool("ruff")
    check = [ruff, "check", "--quiet", "--force-exclude", "--output-format=concise"]
    found = run([*check, *files], tree)
    layout = [ruff, "format", "--force-exclude", "--diff", "--quiet"]
    found += layout_faults(run([*layout, *files], tree))
    found += type_faults(run([tool("python"), "tools/pre_commit/mypy.py", "3.11", *files], tree))
    for hook in PYTHON_HOOKS:
        found += run([tool("python"), f"tools/pre_commit/{hook}.py", *files], tree)
    return found


def _native(tree: Path, files: list[str]) -> list[str]:
    if not files:
        return []
    lines = run([tool("clang-format"), "--style=file", "--dry-run", "--Werror", *files], tree)
    # Each fault is followed by the line itself and a mark below it.
    return [line for line in lines if ": error: " in line]


def _words(tree: Path, files: list[str]) -> list[str]:
    return run([tool("typos"), "--format=brief", "--force-exclude", *files], tree) if files else []


def _ours_alone(tree: Path) -> list[str]:
    """The same layout and spelling for the part of csrc/ that does not go into vLLM."""
    files = [f"csrc/runtime/{path}" for path in files_below(paths.CSRC / "runtime")]
    native = [file for file in files if file.endswith(CLANG_FORMAT_KINDS)]
    if not native:
        return []
    style = f"--style=file:{tree / '.clang-format'}"
    lines = run([tool("clang-format"), style, "--dry-run", "--Werror", *native], paths.ROOT)
    words = [tool("typos"), "--format=brief", f"--config={tree / 'pyproject.toml'}", *files]
    return [line for line in lines if ": error: " in line] + run(words, paths.ROOT)
