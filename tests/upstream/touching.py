"""Which of vLLM's own test files touch what the series changes, read from both trees' sources.

A file touches the series where it imports, patches or reads by attribute a definition that differs
between the trees, hands a changed module on as a whole, or names a setting or a backend whose
meaning the series changes. It need not do so at the top: every import in the file counts.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

# The backend that the series replaces on gfx1151, and its two fusions.
WORDS = frozenset({"ROCM_ATTN", "fuse_rope_kvcache", "fuse_qk_norm_rope_kvcache"})
# Unchanged, but it asks the platform, which chooses otherwise.
SELECTOR = {"vllm.v1.attention.selector": {"get_attn_backend", "_cached_get_attn_backend"}}


def changed_names(patched: Path, pristine: Path) -> dict[str, set[str]]:
    """Module of vLLM -> what the patched tree defines otherwise than the pristine one; SELECTOR.

    Modules that only the patched tree has are not there: no test of vLLM's knows them.
    """
    found = {module: set(names) for module, names in SELECTOR.items()}
    for before in sorted(pristine.joinpath("vllm").rglob("*.py")):
        place = before.relative_to(pristine)
        after = patched / place
        if before.read_bytes() != after.read_bytes():
            old, new = _definitions(before), _definitions(after)
            names = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
            found[".".join(place.with_suffix("").parts)] = names
    return found


def _definitions(file: Path) -> dict[str, str]:
    """Name -> source of what defines it, at the top of the module or under its conditions."""
    found: dict[str, str] = {}
    pending: list[ast.AST] = [ast.parse(file.read_text())]
    while pending:
        for node in ast.iter_child_nodes(pending.pop()):
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    names = [name]
                case ast.Assign(targets=targets):
                    names = [each.id for each in targets if isinstance(each, ast.Name)]
                case ast.AnnAssign(target=ast.Name(id=name)):
                    names = [name]
                case ast.If() | ast.Try() | ast.With():
                    pending.append(node)
                    continue
                case _:
                    continue
            for name in names:
                found[name] = found.get(name, "") + ast.unparse(node)
    return found


def reexported(tree: Path, changed: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same, with the packages that hand such names on under their own."""
    found = dict(changed)
    for module, names in changed.items():
        package = module.rpartition(".")[0]
        start = tree.joinpath(*package.split("."), "__init__.py")
        if not start.exists():
            continue
        for node in ast.walk(ast.parse(start.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == module:
                given = {alias.asname or alias.name for alias in node.names if alias.name in names}
                if given:
                    found[package] = found.get(package, set()) | given
    return found


def touched(file: Path, changed: dict[str, set[str]]) -> set[str]:
    """What a test file touches, as `module.name`, `module` or one of WORDS."""
    text = file.read_text()
    # Most files: parsing them all takes a minute.
    if not any(mark in text for mark in _marks(changed)):
        return set()
    parsed = ast.parse(text)
    found = {word for word in _words(parsed) if word in WORDS}
    modules: dict[str, str] = {}  # name in the file -> changed module
    for name, whole in _imported(parsed):
        module, _, last = whole.rpartition(".")
        if last in changed.get(module, ()):
            found.add(whole)
        if whole in changed:
            modules[name] = whole
    for module, attribute in _uses(parsed, modules):
        if attribute is None or attribute in changed[module]:
            found.add(module if attribute is None else f"{module}.{attribute}")
    for node in ast.walk(parsed):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= _named_in(node.value, changed)
    return found


def _marks(changed: dict[str, set[str]]) -> frozenset[str]:
    """What stands in every file that touches the series, and in others."""
    packages = {f"from {module.rpartition('.')[0]} import" for module in changed}
    return WORDS | changed.keys() | packages


def _words(parsed: ast.AST) -> Iterator[str]:
    for node in ast.walk(parsed):
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.keyword(arg=str(word)):
                yield word
            case ast.alias(name=word) | ast.Constant(value=str(word)):
                yield word


def _imported(parsed: ast.AST) -> Iterator[tuple[str, str]]:
    """(name in the file, what it stands for) of every import."""
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _uses(parsed: ast.AST, modules: dict[str, str]) -> Iterator[tuple[str, str | None]]:
    """(module, attribute) of every use of a module; None for the attribute: the whole of it."""
    taken: set[int] = set()
    for node in ast.walk(parsed):
        match node:
            case ast.Attribute(value=inner, attr=attribute):
                pass
            # setattr and its like: the module, then the attribute's name.
            case ast.Call(args=[inner, ast.Constant(value=str(attribute)), *_]):
                pass
            case _:
                continue
        if (name := _dotted(inner)) in modules:
            taken.update(id(part) for part in ast.walk(inner))
            yield modules[name], attribute
    for node in ast.walk(parsed):
        if isinstance(node, ast.Name) and node.id in modules and id(node) not in taken:
            yield modules[node.id], None


def _dotted(node: ast.AST) -> str:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def _named_in(text: str, changed: dict[str, set[str]]) -> set[str]:
    """What a string names, as mock.patch takes it: `module.name`, or `module.name.attribute`."""
    return {
        f"{module}.{name}"
        for module, names in changed.items()
        if text.startswith(f"{module}.")
        for name in names & {text.removeprefix(f"{module}.").split(".")[0]}
    }
