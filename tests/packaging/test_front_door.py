"""The Makefile, the environment it makes, and the interpreter that a user gives in its place."""

import dataclasses
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from scripts import paths
from scripts.errors import Fault
from scripts.pin import load_pin
from scripts.requirements import unmet
from scripts.venv import STEPS, lacking

MAKEFILE = (paths.ROOT / "Makefile").read_text()
# What other tools call: these names do not change.
KEPT_STABLE = {"wheel", "test", "test-fast", "op", "checkout", "test-gpu", "refresh"}


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "PYTHON"))}
    return subprocess.run(
        ["make", *arguments], cwd=paths.ROOT, env=env, capture_output=True, text=True
    )


def test_help_is_the_default_and_lists_every_target_that_there_is() -> None:
    phony = set(re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[0].split())
    rules = set(re.findall(r"^([a-z0-9-]+):", MAKEFILE, re.MULTILINE))
    listed = {line.split()[0] for line in make().stdout.splitlines()}
    assert make().stdout == make("help").stdout
    assert phony == rules == listed | {"help"}
    assert listed >= KEPT_STABLE


def test_every_step_that_make_asks_for_is_known() -> None:
    asked = re.findall(r"^\t\$\(call need,([a-z-]+)\)", MAKEFILE, re.MULTILINE)
    assert asked and set(asked) <= set(STEPS)
    assert {group for groups in STEPS.values() for group in groups} < set(load_pin().groups)


def test_given_interpreter_without_torch_is_refused_by_what_it_lacks(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    before = sorted((tmp_path / "bare").rglob("*"))
    done = make("op", f"PYTHON={tmp_path / 'bare' / 'bin' / 'python'}")
    assert done.returncode != 0
    assert re.search(r"^venv: .*/bare/bin/python lacks torch", done.stderr, re.MULTILINE)
    assert "ziglang" not in done.stderr
    # Nothing was installed there.
    assert [p for p in sorted((tmp_path / "bare").rglob("*")) if "__pycache__" not in str(p)] == [
        p for p in before if "__pycache__" not in str(p)
    ]


def test_given_interpreter_needs_nothing_for_a_checkout(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    python = tmp_path / "bare" / "bin" / "python"
    done = subprocess.run(
        [python, "-m", "scripts.venv", "checkout"],
        cwd=paths.ROOT, env=os.environ | {"PYTHON": str(python)}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("found", "missing"),
    [
        ({"torch": "2.13.0", "types-pyyaml": "6.0"}, []),
        ({"torch": "2.13.0+cpu", "types-pyyaml": "6.0"}, []),
        ({"torch": "2.13.1", "types-pyyaml": "6.0"}, ["torch==2.13.0"]),
        ({"types-pyyaml": "6.0"}, ["torch==2.13.0"]),
        ({"torch": "2.13.0", "types-pyyaml": "6.0.1"}, ["types-PyYAML==6.0"]),
    ],
)
def test_what_is_lacking_is_seen_by_version(found: dict[str, str], missing: list[str]) -> None:
    assert lacking({"torch": "2.13.0", "types-PyYAML": "6.0"}, found) == missing


def test_requirements_are_met_by_version_and_platform() -> None:
    lines = (
        "# a comment\n"
        "pytest >= 1  # met\n"
        "pytest < 1\n"
        "no-such-package-anywhere\n"
        "no-such-package-either; sys_platform == 'win32'\n"
        "-r other.txt\n"
        "\n"
    )
    assert unmet(lines) == ["pytest < 1", "no-such-package-anywhere"]


def test_environment_has_what_the_pin_says() -> None:
    if not sys.prefix.endswith(".venv"):
        pytest.skip("the interpreter is the user's own (PYTHON=), of other versions")
    import importlib.metadata

    for group in STEPS["test"]:
        for name, version in load_pin().groups[group].items():
            assert importlib.metadata.version(name).split("+")[0] == version


@pytest.mark.parametrize("key", ["sha256", "number", "architectures"])
def test_pin_without_a_fact_is_told(tmp_path: Path, key: str) -> None:
    text = paths.PIN.read_text()
    (tmp_path / "pin.toml").write_text(re.sub(rf"^{key} = .*$", "", text, flags=re.MULTILINE))
    with pytest.raises(Fault, match=f"no '{key}'"):
        load_pin(tmp_path / "pin.toml")


def test_pin_is_the_release_that_the_series_is_for() -> None:
    pin = load_pin()
    assert (pin.version, pin.commit) == ("0.33.0", "4ba787ec9")
    assert pin.sdist_name == "vllm-0.33.0.tar.gz"
    assert pin.sha256 == "f4c33c2503d52bb411146afa9618a4f48bed68912f617e6803ac8d76e4c74112"
    assert "gfx1151" in pin.architectures
    assert dataclasses.replace(pin, number=2).tools["ziglang"] == "0.17.1"
