"""`make stage`: the series in upstream's form, checked, and the text of the pull request."""

import subprocess
from pathlib import Path

import pytest

from scripts import lint_vllm
from scripts.checkout import checkout as make_checkout
from scripts.errors import Fault
from scripts.pin import load_pin
from scripts.series import Folders, load_series
from scripts.stage import __main__ as module
from scripts.stage import hooks, ours, pull_request, tree
from scripts.stage.commits import UPSTREAM, Home, Staged, sign_off_faults, stage
from scripts.stage.messages import Person, configured_person, upstream_message
from scripts.stage.strip import kept_lines, strip
from scripts.stage.syntax import python_faults
from tests.packaging.small_project import VLLM, SmallProject

PERSON = Person("A. Person", "person@example.com")
MARKED = (
    b"a\n# series only: begin\nb\n# series only: end\n"
    b"c\n  // series only: begin\nd\n  // series only: end\n"
)


def test_marked_parts_go_with_their_marks() -> None:
    assert strip(MARKED, "f.py") == b"a\nc\n"
    assert kept_lines(MARKED, "f.py") == [1, 5, 9]
    assert strip(b"plain\r\n\xff", "f.py") == b"plain\r\n\xff"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("# series only: begin\n", r"f\.py:1: .* has no end"),
        ("a\n# series only: end\n", r"f\.py:2: .* nothing has begun"),
        ("# series only: begin\n# series only: begin\n", r"f\.py:2: .* line 1 is not ended"),
    ],
)
def test_marks_that_do_not_pair_are_told_with_their_line(text: str, where: str) -> None:
    with pytest.raises(Fault, match=where):
        strip(text.encode(), "f.py")


def test_message_keeps_what_upstream_reads_and_is_signed_off() -> None:
    message = (
        "Name a line\n\nIt had a number.\nOn two lines.\n\nNote: a word and more.\n\n"
        "Why here: upstream has the fault, and this\nsentence goes on; goes away.\n"
        "Test: tests/a.py\nCo-authored-by: B <b@example.com>\nOverlay: vllm/x.py\n"
    )
    assert upstream_message(message, PERSON) == (
        "[ROCm] Name a line\n\nIt had a number.\nOn two lines.\n\nNote: a word and more.\n\n"
        "Co-authored-by: B <b@example.com>\n\n"
        "Assisted-by: AI coding agents, named in the pull request\n"
        "Signed-off-by: A. Person <person@example.com>\n"
    )
    assert upstream_message("[Doc] Say it\n\nWhy here: x.\n", PERSON).startswith(
        "[Doc] Say it\n\nA"
    )


def test_git_without_a_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    with pytest.raises(Fault, match=r"git has no user\.name"):
        configured_person(tmp_path)
    (tmp_path / ".gitconfig").write_text("[user]\nname = A. Person\nemail = person@example.com\n")
    assert configured_person(tmp_path) == PERSON


class Upstream:
    """A project's upstream/: one mail that claims a test, and one that changes a document."""

    def __init__(self, project: SmallProject):
        self.folders = Folders(*(project.root / "upstream" / f for f in ("patches", "files", "c")))
        self.folders.patches.mkdir(parents=True)
        test = self.folders.overlay / "tests/kernels/test_second.py"
        test.parent.mkdir(parents=True)
        test.write_text("# series only: begin\nx = 1\n# series only: end\ndef test(): ...\n")
        project.commit("[Doc] Say it\n\nWhy here: a test.\n", {"vllm/short.py": "first = 'doc'\n"})
        project.git.bytes(
            "format-patch", "-1", "--quiet", "--no-signature", "--full-index", "--start-number=2",
            f"--output-directory={self.folders.patches}",
        )  # fmt: skip
        project.developer_git("reset", "--quiet", "--hard", "HEAD~1")
        head = (self.folders.patches / "0002-Doc-Say-it.patch").read_text().split("Subject: ")[0]
        (self.folders.patches / "0001-Test.patch").write_text(
            f"{head}Subject: [PATCH] Test it\n\nWhy here: a test.\n\n"
            "Overlay: tests/kernels/test_second.py\n\n"
        )


@pytest.fixture
def upstream(project: SmallProject) -> Upstream:
    project.with_series()
    return Upstream(project)


def staged(project: SmallProject, upstream: Upstream) -> tuple[list[Staged], dict[str, Home]]:
    base = project.git.text("rev-parse", "base^{commit}")
    return stage(project.git, base, load_series(project.folders), upstream.folders, PERSON)


def test_series_and_upstreams_files_become_signed_commits_on_the_base(
    project: SmallProject, upstream: Upstream
) -> None:
    overlay = project.folders.overlay / "vllm/new/mod.py"
    overlay.write_text("# series only: begin\nours = 1\n# series only: end\nnew = 1\n")
    before = project.git.text("rev-parse", "HEAD")
    done, homes = staged(project, upstream)
    git, tip = project.git, done[-1].commit
    subjects = git.text("log", "--reverse", "--format=%s", f"base..{tip}").splitlines()
    assert subjects == [
        "[ROCm] Name two lines",
        "[ROCm] Declare the second op",
        "[ROCm] Test it",
        "[Doc] Say it",
    ]
    # Author and committer are who signs off; nothing of the mails' trailers is left.
    who = "A. Person <person@example.com>"
    assert set(git.text("log", "--format=%an <%ae>%n%cn <%ce>", f"base..{tip}").split("\n")) == {
        who
    }
    bodies = git.text("log", "--format=%B", f"base..{tip}")
    assert bodies.count(f"Signed-off-by: {who}") == 4
    assert "Why here" not in bodies and "Overlay" not in bodies
    assert git.text("show", f"{tip}:vllm/new/mod.py") == "new = 1"
    assert git.text("show", f"{tip}:tests/kernels/test_second.py") == "def test(): ..."
    assert git.text("show", f"{tip}:vllm/short.py") == "first = 'doc'"
    assert "line five of" in git.text("show", f"{done[0].commit}:vllm/long.txt")
    # Nothing but these files, and the checkout is as it was.
    assert git.files(tip).keys() - VLLM.keys() == homes.keys()
    assert homes["vllm/new/mod.py"].lines == (4, 5)
    assert git.text("rev-parse", "HEAD") == before
    assert git.text("status", "--porcelain") == ""
    assert sign_off_faults(git, done, PERSON) == []
    assert len(sign_off_faults(git, done, Person("Other", "o@example.com"))) == 4
    assert staged(project, upstream)[0][-1].commit == tip


def test_file_of_upstreams_that_no_mail_claims_is_told(
    project: SmallProject, upstream: Upstream
) -> None:
    (upstream.folders.overlay / "left.py").write_text("")
    with pytest.raises(Fault, match=r"no mail claims .*left\.py"):
        staged(project, upstream)


def test_what_is_ours_alone_is_found_in_lines_and_messages(
    project: SmallProject, upstream: Upstream
) -> None:
    base = project.git.text("rev-parse", "base^{commit}")
    assert ours.faults(project.git, base, staged(project, upstream)[0]) == []
    mail = project.folders.patches / "0001-Name-two-lines.patch"
    mail.write_text(
        mail.read_text()
        .replace("They had numbers.", "They had numbers in the op library.")
        .replace("+line fifty ", "+line of librdna35.so ")
    )
    message, line = ours.faults(project.git, base, staged(project, upstream)[0])
    assert "0001-Name-two-lines.patch: its message names 'op library'" in message
    assert line.startswith("vllm/long.txt:51: names 'librdna35'")


def test_python_that_does_not_compile_is_told_with_its_commit(
    project: SmallProject, upstream: Upstream
) -> None:
    base = project.git.text("rev-parse", "base^{commit}")
    assert python_faults(project.git, base, staged(project, upstream)[0]) == []
    (project.folders.overlay / "vllm/new/mod.py").write_text("new = 1\ndef f(:\n")
    (fault,) = python_faults(project.git, base, staged(project, upstream)[0])
    assert fault.startswith("vllm/new/mod.py:2: ") and "0001-Name-two-lines.patch" in fault


def test_faults_are_named_where_one_edits_them() -> None:
    homes = {"vllm/x.py": Home("vllm_overlay/vllm/x.py", (1, 5, 6))}
    for line, named in {
        "vllm/x.py:2:7: E501 long": "vllm_overlay/vllm/x.py:5:7: E501 long",
        f"{tree.FOLDER}/vllm/x.py:3:1: error": "vllm_overlay/vllm/x.py:6:1: error",
        "vllm/x.py: no SPDX header": "vllm_overlay/vllm/x.py: no SPDX header",
        "patches/0001-a.patch: its message": "patches/0001-a.patch: its message",
    }.items():
        assert tree.at_home(line, homes) == named


def test_tree_is_placed_again_with_another_commit(project: SmallProject, tmp_path: Path) -> None:
    project.with_series()
    folder = tmp_path / "tree"
    tree.place(project.git, project.git.text("rev-parse", "base"), folder)
    assert not (folder / "vllm/new/mod.py").exists()
    (folder / "vllm/short.py").write_text("changed by a hook\n")
    (folder / "stray.py").write_text("")
    tree.place(project.git, project.git.text("rev-parse", "HEAD"), folder)
    assert (folder / "vllm/new/mod.py").exists() and not (folder / "stray.py").exists()
    assert (folder / "vllm/short.py").read_text() == VLLM["vllm/short.py"]
    assert project.git.text("rev-parse", "--symbolic-full-name", "HEAD") == "refs/heads/series"


# vLLM's hooks.

CONFIG = """\
exclude: 'third_party/.*'
repos:
- repo: https://example.com/ruff
  hooks: [{id: ruff-check}]
- repo: https://example.com/lint
  hooks: [{id: not-installed-anywhere, types: [markdown]}]
- repo: local
  hooks:
  - {id: finds, language: python, entry: python tools/finds.py, types: [python], files: ^vllm/}
  - {id: script, language: script, entry: tools/script.sh, args: [one]}
  - {id: whole, language: system, entry: bash -c 'git ls-files | grep " " && exit 1 || exit 0',
     pass_filenames: false, always_run: true}
  - {id: rust, language: script, entry: tools/rust.sh, files: '[.]rs$'}
  - {id: message, language: system, entry: bash, stages: [commit-msg]}
"""


@pytest.fixture
def hooked(tmp_path: Path) -> Path:
    """A tree with those hooks, two of which find something in every file named `bad`."""
    files = {
        lint_vllm.HOOKS: CONFIG,
        "tools/finds.py": "import sys\nbad = [f for f in sys.argv[1:] if 'bad' in f]\n"
        "print(*(f'{f}:3: found' for f in bad), sep='\\n')\nsys.exit(len(bad))\n",
        "tools/script.sh": '#!/bin/sh\n[ "$1" = one ] && [ $# -ge 2 ]\n',
        "vllm/bad.py": "import os\n",
        "vllm/third_party/bad.py": "import os\n",
        "tests/bad.py": "x = 1\n",
        "docs/a.md": "# A\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "tools/script.sh").chmod(0o755)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


needs_linters = pytest.mark.skipif(
    not Path(hooks.tool("ruff")).exists(), reason="the linters are there after `make lint`"
)


@needs_linters
def test_hooks_get_the_files_that_pre_commit_gives_them(hooked: Path) -> None:
    said: list[str] = []
    names = ["vllm/bad.py", "vllm/third_party/bad.py", "tests/bad.py", "docs/a.md"]
    results = {r.id: r for r in hooks.run_all(hooked, names, said.append)}
    assert said == ["ruff-check", "finds", "script", "whole"]
    assert results["ruff-check"].faults[0].startswith("vllm/bad.py:1:8: F401")
    assert results["finds"].faults == ("vllm/bad.py:3: found",)
    assert results["script"].faults == () == results["whole"].faults
    assert results["not-installed-anywhere"].not_run.startswith("it is not installed")
    assert results["rust"].not_run == "no changed file is of its kind"
    assert "sign-off" in results["message"].not_run


@needs_linters
def test_hooks_of_the_real_configuration_are_run_or_say_why_not(checkout: Path) -> None:
    found, _ = hooks.load((checkout / lint_vllm.HOOKS).read_text())
    ids = {hook.id for hook in found}
    assert ids >= {*hooks.LINTERS, "mypy", "check-spdx-header", "check-forbidden-imports"}
    python = [hook.id for hook in found if hook.chosen(["vllm/a.py"], "")]
    assert {"ruff-check", "typos", "mypy", "check-spdx-header", "validate-config"} <= set(python)
    assert not {"clang-format", "markdownlint-cli2", "actionlint", "shellcheck"} & set(python)
    native = [hook.id for hook in found if hook.chosen(["csrc/rocm/a.cu"], "")]
    assert "clang-format" in native and "ruff-format" not in native


# The text of the pull request.

TABLE = """\
# NVIDIA

2026-11-30; torch 2.11. Made by `make bench`.

## Warm

28 of 60 cells.

| shape | T | unfused | ours | over unfused | spread |
| --- | --- | --- | --- | --- | --- |
| 32/8/128 | 1 | 3.00 | 1.50 | 2.00 | 0 % |
| 32/8/128 | 32 | 4.50 | 1.50 | 3.00 | 0 % |
| 32/8/128 | 2048 | 9.00 | 1.00 | 9.00 | 0 % |

## Cold

| shape | T | over unfused |
| --- | --- | --- |
| 32/8/128 | 1 | 99 |
"""


def test_speed_is_of_decode_steps_as_the_table_has_them() -> None:
    assert pull_request.speed(TABLE, "a GPU").startswith("2.0 to 3.0 times faster")
    text = pull_request.bench(TABLE)
    assert text.startswith("2026-11-30; torch 2.11.") and text.count("| 32/8/128 |") == 2
    assert "99" not in text and "2048" not in text


def test_newest_dated_table_is_taken(tmp_path: Path) -> None:
    for name in ("2026-11-30/z.md", "2027-01-02/a.md", "2026-12-31/b.md"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("")
    assert pull_request.newest(tmp_path, "*/*.md").name == "a.md"
    with pytest.raises(Fault, match="has no dated"):
        pull_request.newest(tmp_path, "*/*.json")


def test_fields_are_filled_and_what_a_person_must_say_is_left_marked() -> None:
    text, left = pull_request.fill("a {{x}} b {{person: look\nat it}} c", {"x": "{{person: no}}"})
    assert text == "a {{person: no}} b **[TO BE FILLED BY A PERSON: look\nat it]** c"
    assert left == ["look\nat it"]
    with pytest.raises(Fault, match="nothing fills"):
        pull_request.fill("{{y}}", {"x": ""})


def test_text_has_all_that_vllms_template_asks_for(checkout: Path) -> None:
    template = pull_request.TEMPLATE.read_text()
    upstream = (checkout / pull_request.UPSTREAM_TEMPLATE).read_text()
    assert upstream.count("\n## ") >= 4
    assert pull_request.lacking(template, upstream) == []
    assert pull_request.lacking(template.replace("## Claims", ""), upstream) == ["## Claims"]


def test_real_series_is_staged_without_what_is_ours_alone(checkout: Path) -> None:
    pin = load_pin()
    make_checkout(pin)
    git = module.Git(checkout, pin.source_date_epoch)
    base = git.text("rev-parse", "base^{commit}")
    done, homes = stage(git, base, load_series(), UPSTREAM, PERSON)
    assert ours.faults(git, base, done) == []
    assert python_faults(git, base, done) == []
    assert sign_off_faults(git, done, PERSON) == []
    tip = git.files(done[-1].commit)
    assert "csrc/rocm/rdna35_rope_cache/kernel.h" in tip
    assert not any(name.startswith("csrc/rocm/runtime") for name in tip)
    assert {name for name in homes if homes[name].path.startswith("upstream/")} >= {
        "tests/kernels/attention/test_rdna35_rope_cache.py",
        "benchmarks/kernels/benchmark_rdna35_rope_cache.py",
    }


def test_branch_with_commits_of_a_person_is_not_replaced(project: SmallProject) -> None:
    project.with_series()
    module._place_branch(project.git, "base")
    module._refuse_others_work(project.git)
    project.git.bytes("update-ref", module.BRANCH, "HEAD")
    with pytest.raises(Fault, match="has commits of yours"):
        module._refuse_others_work(project.git)


def test_mails_apply_to_upstreams_commit(project: SmallProject, upstream: Upstream) -> None:
    """With plain `git am`, by anyone."""
    base = project.git.text("rev-parse", "base^{commit}")
    done, _ = staged(project, upstream)
    mails = project.root / "mails"
    project.git.bytes(
        "format-patch",
        *module.MAIL_FORMAT,
        f"--output-directory={mails}",
        f"{base}..{done[-1].commit}",
    )
    project.developer_git("switch", "--quiet", "--detach", "base")
    project.developer_git("am", "--quiet", *map(str, sorted(mails.iterdir())))
    assert project.git.text("diff", done[-1].commit, "HEAD") == ""
