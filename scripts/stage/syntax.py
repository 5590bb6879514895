"""Whether each commit's Python compiles, commit by commit."""

from scripts.git import Git
from scripts.stage.commits import Staged


def python_faults(git: Git, parent: str, staged: list[Staged]) -> list[str]:
    """`file:line: what is wrong` of each changed Python file that does not compile."""
    found = []
    for each in staged:
        changed = ("diff", "--name-only", "-z", "--no-renames", "--diff-filter=d")
        for path in git.lines(*changed, parent, each.commit):
            if not path.endswith(".py"):
                continue
            try:
                compile(git.bytes("show", f"{each.commit}:{path}"), path, "exec", dont_inherit=True)
            except SyntaxError as error:
                found.append(f"{path}:{error.lineno}: {error.msg} (in {each.name})")
        parent = each.commit
    return found
