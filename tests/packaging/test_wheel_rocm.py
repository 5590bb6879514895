"""The full build: where ROCm is found, what is missing where it is not, what setup.py is given."""

import json
import sys
from pathlib import Path

import pytest
from packaging.version import Version

from scripts import wheel, wheel_rocm
from scripts.errors import Fault
from scripts.git import Git
from scripts.wheel_changes import Changes, read_changes
from scripts.wheel_rocm import Rocm, environment, find_rocm
from tests.packaging import small_wheels
from tests.packaging.small_wheels import PIN

# vLLM's setup.py as far as the build sees it: a version with the ROCm one in it, and a wheel.
SETUP = """\
import json, os, pathlib, sys
if sys.argv[1] == "--version":
    assert "VLLM_VERSION_OVERRIDE" not in os.environ
    print("a line of setup.py's own")
    print(os.environ["SETUPTOOLS_SCM_PRETEND_VERSION"] + "+rocm722")
else:
    version = os.environ["VLLM_VERSION_OVERRIDE"]
    out = pathlib.Path(sys.argv[sys.argv.index("--dist-dir") + 1])
    out.mkdir()
    told = {"argv": sys.argv[1:], "env": dict(os.environ), "files": os.listdir("vllm")}
    (out / f"vllm-{version}-cp312-cp312-linux_x86_64.whl").write_text(json.dumps(told))
    pathlib.Path("build").mkdir(exist_ok=True)
    pathlib.Path("build/compiled.o").touch()
"""


@pytest.fixture
def rocm_root(tmp_path: Path) -> Path:
    """A ROCm installation by its looks."""
    root = tmp_path / "rocm"
    for tool in "bin/hipcc", "llvm/bin/clang++":
        (root / tool).parent.mkdir(parents=True)
        (root / tool).touch(0o755)
    return root


@pytest.fixture
def with_setup(tmp_path: Path) -> Changes:
    """The made checkout, with a setup.py."""
    folder = tmp_path / "vllm"
    git = small_wheels.checkout(folder).git
    small_wheels.commit(git, {"setup.py": SETUP, ".gitignore": "build/\n"})
    return read_changes(PIN, folder)


def torch_for(monkeypatch: pytest.MonkeyPatch, hip: str | None) -> None:
    monkeypatch.setattr(wheel_rocm, "torch_hip_version", lambda: hip)


@pytest.mark.parametrize("variable", ["ROCM_PATH", "ROCM_HOME"])
def test_rocm_is_found_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, rocm_root: Path, variable: str
) -> None:
    torch_for(monkeypatch, "7.2.2")
    rocm = find_rocm({variable: str(rocm_root)}, Path("/nowhere"))
    assert rocm == Rocm(rocm_root, "7.2.2")
    assert rocm.lacks is None


def test_rocm_is_found_beside_hipcc_and_in_its_usual_place(
    monkeypatch: pytest.MonkeyPatch, rocm_root: Path
) -> None:
    torch_for(monkeypatch, "7.2.2")
    assert find_rocm({"PATH": str(rocm_root / "bin")}, Path("/nowhere")).root == rocm_root
    assert find_rocm({"PATH": "/nowhere"}, rocm_root).root == rocm_root
    assert find_rocm({"PATH": "/nowhere"}, Path("/nowhere")).root is None


def test_clang_may_lie_where_rocms_python_packages_have_it(
    monkeypatch: pytest.MonkeyPatch, rocm_root: Path
) -> None:
    torch_for(monkeypatch, "7.2.2")
    (rocm_root / "lib").mkdir()
    (rocm_root / "llvm").rename(rocm_root / "lib" / "llvm")
    assert find_rocm({"ROCM_PATH": str(rocm_root)}).lacks is None


@pytest.mark.parametrize("missing", ["bin/hipcc", "llvm/bin/clang++"])
def test_a_missing_compiler_is_named(
    monkeypatch: pytest.MonkeyPatch, rocm_root: Path, missing: str
) -> None:
    torch_for(monkeypatch, "7.2.2")
    (rocm_root / missing).unlink()
    lacks = find_rocm({"ROCM_PATH": str(rocm_root)}).lacks
    assert lacks is not None and lacks.startswith(f"the ROCm in {rocm_root} has no {missing};")


def test_a_missing_rocm_or_torch_is_named(rocm_root: Path) -> None:
    lacks = Rocm(None, "7.2.2").lacks
    assert lacks is not None and "no ROCm to build with" in lacks
    lacks = Rocm(rocm_root, None).lacks
    assert lacks is not None and "is not for it; name a Python whose torch is" in lacks


def test_the_hip_version_is_torchs_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "torch"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise AssertionError('torch is not to be imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for line, expected in (("hip = '7.2.53211'", "7.2.53211"), ("hip = None", None)):
        (folder / "version.py").write_text(f"{line}\n")
        assert wheel_rocm.torch_hip_version() == expected


def test_without_rocm_the_build_is_refused(with_setup: Changes, tmp_path: Path) -> None:
    with pytest.raises(Fault, match="no full build: there is no ROCm to build with"):
        wheel_rocm.build(PIN, with_setup, Rocm(None, None), tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_setup_is_told_the_version_device_architectures_and_date(
    with_setup: Changes, rocm_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTORCH_ROCM_ARCH", raising=False)
    monkeypatch.setenv("VLLM_VERSION_OVERRIDE", "9.9")
    monkeypatch.setenv("SETUPTOOLS_SCM_PRETEND_VERSION_FOR_VLLM", "9.9")
    monkeypatch.setenv("MAX_JOBS", "3")
    made = wheel_rocm.build(PIN, with_setup, Rocm(rocm_root, "7.2.2"), tmp_path / "work")
    assert made.name == "vllm-0.33.0+rocm722.gfx1151.7-cp312-cp312-linux_x86_64.whl"
    told = json.loads(made.read_text())
    assert told["argv"][0] == "bdist_wheel"
    env = told["env"]
    assert env["VLLM_TARGET_DEVICE"] == "rocm"
    assert env["VLLM_VERSION_OVERRIDE"] == "0.33.0+rocm722.gfx1151.7"
    assert env["PYTORCH_ROCM_ARCH"] == ";".join(PIN.architectures)
    assert env["ROCM_PATH"] == env["ROCM_HOME"] == str(rocm_root)
    assert env["SOURCE_DATE_EPOCH"] == str(PIN.source_date_epoch)
    assert env["MAX_JOBS"] == "3"
    assert not [name for name in env if name.startswith("SETUPTOOLS_SCM_")]


def test_the_users_architectures_are_kept(rocm_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_ROCM_ARCH", "gfx1151")
    env = environment(PIN, Rocm(rocm_root, "7.2.2"), Version("1"))
    assert env["PYTORCH_ROCM_ARCH"] == "gfx1151"


def test_the_next_build_keeps_what_was_compiled_and_follows_the_checkout(
    with_setup: Changes, rocm_root: Path, tmp_path: Path
) -> None:
    rocm, work = Rocm(rocm_root, "7.2.2"), tmp_path / "work"
    wheel_rocm.build(PIN, with_setup, rocm, work)
    source = work / "source"
    (source / "build" / "compiled.o").write_text("compiled before")
    (source / "vllm" / "stray.py").touch()
    (source / "vllm" / "engine.py").write_text("edited = True\n")
    checkout = Git(with_setup.git.folder, PIN.source_date_epoch)
    (checkout.folder / "vllm/new/__init__.py").unlink()
    small_wheels.commit(checkout, {"vllm/newer.py": "newer = True\n"})
    made = wheel_rocm.build(PIN, read_changes(PIN, checkout.folder), rocm, work)
    files = json.loads(made.read_text())["files"]
    assert "newer.py" in files and "stray.py" not in files and "new" not in files
    assert (source / "vllm" / "engine.py").read_text() == "steps = 1\n"
    assert (source / "build" / "compiled.o").read_text() == "compiled before"


@pytest.mark.parametrize(
    ("setup", "message"),
    [
        ("print('0.33.0')\n", "would build 0.33.0, not a ROCm version"),
        ("print('no version')\n", "gives no version"),
        ("raise SystemExit('no torch')\n", "vLLM's setup.py failed: no torch"),
        (SETUP.replace("out.mkdir()", "raise SystemExit(1)"), "vLLM's build failed"),
        (SETUP.replace("vllm-{version}-cp", "x-{version}-cp").replace(".whl", ".zip"), "0 wheels"),
    ],
)
def test_a_build_that_fails_says_where(
    with_setup: Changes, rocm_root: Path, tmp_path: Path, setup: str, message: str
) -> None:
    small_wheels.commit(with_setup.git, {"setup.py": setup})
    changes = read_changes(PIN, with_setup.git.folder)
    with pytest.raises(Fault, match=message):
        wheel_rocm.build(PIN, changes, Rocm(rocm_root, "7.2.2"), tmp_path / "work")


def choose(monkeypatch: pytest.MonkeyPatch, rocm: Rocm, **env: str) -> wheel.Kind:
    for name in "BASE_WHEEL", "FORCE":
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(wheel_rocm, "find_rocm", lambda: rocm)
    return wheel.choose_kind()


def test_a_rocm_host_makes_the_full_build(monkeypatch: pytest.MonkeyPatch, rocm_root: Path) -> None:
    kind = choose(monkeypatch, Rocm(rocm_root, "7.2.2"))
    assert kind.title == "full build for ROCm"
    assert kind.use == "serves models on Strix Halo"


def test_any_other_host_makes_the_python_only_wheel(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = choose(monkeypatch, Rocm(None, None))
    assert kind.title == "vLLM's Python and the op library"
    assert "does not serve models on Strix Halo" in kind.use
    assert capsys.readouterr().out == ""


def test_half_a_rocm_host_is_told_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, rocm_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = choose(monkeypatch, Rocm(rocm_root, None))
    assert kind.title == "vLLM's Python and the op library"
    assert capsys.readouterr().out.startswith(
        f"wheel: no full build: there is a ROCm in {rocm_root}"
    )


def test_a_base_wheel_goes_before_a_rocm_host(
    monkeypatch: pytest.MonkeyPatch, rocm_root: Path, tmp_path: Path
) -> None:
    version, tags = "0.33.0+rocm722", "cp312-cp312-linux_x86_64"
    for extension, use in (
        ("vllm/_rocm_C.abi3.so", "serves models on Strix Halo"),
        ("vllm/_C.abi3.so", "does not serve models on Strix Halo: no vllm/_rocm_C*.so in it"),
    ):
        members = small_wheels.base_members(version, tags, extension)
        base = small_wheels.base_wheel(tmp_path, members, version, tags)
        kind = choose(monkeypatch, Rocm(rocm_root, "7.2.2"), BASE_WHEEL=str(base))
        assert (kind.title, kind.use) == (f"the series over {base.name}", use)
        assert kind.base == base


def test_force_without_a_base_wheel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Fault, match="FORCE=1 is for BASE_WHEEL="):
        choose(monkeypatch, Rocm(None, None), FORCE="1")
