"""Checks form and style: vLLM's own settings for what goes into vLLM, ours for the rest.

    python -m scripts.lint

Every fault is one line, `file:line: what is wrong`, in the file here that is to be edited. The
checkout must be up to date: vLLM's settings and tools are read and run there.
"""

from scripts import errors, lint_vllm, patch_form, paths
from scripts.errors import Fault
from scripts.linters import layout_faults, run, tool, type_faults
from scripts.pin import load_pin
from scripts.refresh import stale
from scripts.series import Series, files_below, load_series
from scripts.stage.commits import UPSTREAM

OURS = ("scripts", "tests")
DOCS = ("README.md", "CONTRIBUTING.md", "Makefile", "CMakeLists.txt", "pin.toml", "upstream")
LICENSE_MARK = "SPDX-License-Identifier: Apache-2.0"
UPSTREAM_MARK = "SPDX-FileCopyrightText: Copyright contributors to the vLLM project"
SOURCES = (".py", ".h", ".cpp", ".cu", ".cuh", ".S")


def lint_ours() -> list[str]:
    """ruff, its format, mypy and typos over scripts/ and tests/, with pyproject.toml's settings.

    mypy reads torch, numpy and pytest in .venv, which these modules run with.
    """
    found = run([tool("ruff"), "check", "--quiet", "--output-format=concise", *OURS])
    found += layout_faults(run([tool("ruff"), "format", "--diff", "--quiet", *OURS]))
    found += type_faults(run([tool("mypy"), f"--python-executable={paths.VENV_PYTHON}"]))
    return found + run([tool("typos"), "--format=brief", *OURS, *DOCS])


def lint_series(series: Series) -> list[str]:
    """Form of the mails, claims, and that `make refresh` would write just these files."""
    found = patch_form.series_faults(series, paths.PATCHES, paths.ROOT)
    for path in stale(load_pin()):
        found.append(f"{path}:1: not as `make refresh` writes it; run it")
    return found


def lint_headers() -> list[str]:
    """The licence lines that vLLM's sources have, on every source of csrc/ and vllm_overlay/."""
    found = []
    for folder in (paths.CSRC, paths.OVERLAY):
        for path in files_below(folder):
            if not path.endswith(SOURCES):
                continue
            head = (folder / path).read_text(encoding="utf-8").split("\n")[:3]
            for mark in (LICENSE_MARK, UPSTREAM_MARK):
                if not any(mark in line for line in head):
                    found.append(f"{folder.name}/{path}:1: no line with {mark}")
    return found


def main() -> None:
    """Runs every check, prints the faults, and fails where there are any."""
    series = load_series()
    checks = {
        "patch form": lambda: lint_series(series),
        "upstream's mails": lambda: patch_form.series_faults(
            load_series(UPSTREAM), UPSTREAM.patches, paths.ROOT
        ),
        "licence lines": lint_headers,
        "scripts and tests": lint_ours,
        "vLLM's settings": lint_vllm.lint,
    }
    count = 0
    for name, check in checks.items():
        print(f"lint: {name}", flush=True)
        for fault in check():
            print(fault, flush=True)
            count += 1
    if count:
        raise Fault(f"{count} line{'s' if count > 1 else ''} to put right, see above")


if __name__ == "__main__":
    errors.run("lint", main)
