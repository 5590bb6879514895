# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a functionalized op may overwrite, and where its results go back to."""

import operator
from collections.abc import Collection
from typing import TypeGuard

import torch
from torch import fx

from ..fx_utils import is_func


def read_after_overwrite(
    node: fx.Node, *overwritten: fx.Node | None, ignored: Collection[fx.Node] = ()
) -> bool:
    """Whether something after an op still reads what the op would overwrite.

    Args:
        node: A functionalized op. Its results are read in place of the arguments,
            which is what overwriting them is for, so they do not count.
        overwritten: The arguments that the op would write into.
        ignored: Readers that do not count either, because they go away.

    Returns:
        True if a later node, or the graph's output, reads one of the arguments or
        memory that may be the same through another view.

    """
    order = {n: i for i, n in enumerate(node.graph.nodes)}

    def is_read(value: fx.Node, parts: dict[fx.Node, int]) -> bool:
        for user in value.users:
            if is_func(user, operator.getitem) and _is_view(value):
                # Another part of the same split is other memory.
                other = parts.get(value, user.args[1]) != user.args[1]
                if not other and is_read(user, parts):
                    return True
            elif _is_view(user):
                if is_read(user, parts):
                    return True
            elif (
                user is not node
                and user not in ignored
                and order[user] > order[node]
                and not _reads_sizes_only(user)
            ):
                return True
        return False

    return any(is_read(*_root(arg)) for arg in overwritten if arg is not None)


def copy_arguments(node: fx.Node, names: Collection[str]) -> None:
    """Let an op overwrite contiguous copies instead of its arguments.

    Inductor's own copy of an argument that is a view keeps its strides, which goes
    wrong where the tensor behind the view is not in memory by itself.

    Args:
        node: A functionalized op.
        names: The arguments that it overwrites; those that are None stay so.

    """
    for name in names:
        argument = node.kwargs[name]
        if argument is None:
            continue
        with node.graph.inserting_before(node):
            copy = node.graph.call_function(
                torch.ops.aten.clone.default,
                (argument,),
                {"memory_format": torch.contiguous_format},
            )
        val = argument.meta["val"]
        copy.meta["val"] = val.new_empty(val.shape)
        node.update_kwarg(name, copy)


def find_put_back(
    node: fx.Node, query: fx.Node | None, key: fx.Node | None
) -> set[fx.Node]:
    """Nodes that only put the op's results back where its arguments came from.

    Args:
        node: A functionalized op with results 1 and 2 for query and key.
        query: Part of a split, or anything else (then nothing is found).
        key: As query.

    """
    found: set[fx.Node] = set()
    results = {user.args[1]: user for user in node.users if is_getitem(user)}
    current = None
    for index, part in ((1, query), (2, key)):
        if not is_getitem(part) or not _is_view(part.args[0]) or index not in results:
            continue
        split = part.args[0]
        for user in results[index].users:
            base = split.args[0] if current is None else current
            if puts_back(user, results[index], split, part.args[1], base):
                found.add(user)
                current = user
    return found


def puts_back(
    scatter: fx.Node, value: fx.Node, split: fx.Node, part: int, base: fx.Node
) -> bool:
    """Whether a node is `base` with exactly one part of a split of it replaced.

    Args:
        scatter: The node asked about.
        value: What must be written.
        split: The split, along the last dimension.
        part: The part's index.
        base: The split tensor, or that tensor with other parts already replaced.

    """
    if not is_func(split, torch.ops.aten.split_with_sizes.default):
        return False
    start = sum(split.args[1][:part])
    return (
        is_func(scatter, torch.ops.aten.slice_scatter.default)
        and scatter.args[0] is base
        and scatter.args[1] is value
        and _columns(scatter) == (start, start + split.args[1][part])
    )


def _columns(scatter: fx.Node) -> tuple[int, int] | None:
    """The columns of the last dimension that a slice_scatter writes.

    None if it writes along another dimension, with gaps or in a dynamic range.
    """
    val = scatter.meta["val"]
    given = dict(zip(("dim", "start", "end", "step"), scatter.args[2:]))
    given.update(scatter.kwargs)
    start, end = given.get("start"), given.get("end")
    start = 0 if start is None else start
    end = val.shape[-1] if end is None else end
    if given.get("dim", 0) % val.dim() != val.dim() - 1 or given.get("step", 1) != 1:
        return None
    if not all(isinstance(x, int) and x >= 0 for x in (start, end, val.shape[-1])):
        return None
    return start, min(end, val.shape[-1])


def is_getitem(node: object) -> TypeGuard[fx.Node]:
    """Whether this is a node that takes one of another's results."""
    return isinstance(node, fx.Node) and is_func(node, operator.getitem)


def _reads_sizes_only(node: fx.Node) -> bool:
    """Whether a node asks a tensor for its shape, which overwriting leaves as it is."""
    return getattr(node.target, "overloadpacket", None) in (
        torch.ops.aten.sym_size,
        torch.ops.aten.sym_stride,
        torch.ops.aten.sym_numel,
    )


def _is_view(node: fx.Node) -> bool:
    return (
        node.op == "call_function"
        and isinstance(node.target, torch._ops.OpOverload)
        and node.target.is_view
    )


def _root(node: fx.Node) -> tuple[fx.Node, dict[fx.Node, int]]:
    """The tensor that a value is a view of, and its part of each split between."""
    parts: dict[fx.Node, int] = {}
    while True:
        if is_getitem(node) and _is_view(node.args[0]):
            parts[node.args[0]] = node.args[1]
        elif not _is_view(node):
            return node, parts
        node = node.args[0]
