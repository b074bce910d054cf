"""Trees of more levels than Python has calls: walked in a time that grows with their size alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import func

DEPTH = 5000


def nested(x: Any, depth: int = DEPTH) -> Any:
    for k in range(depth):
        x = ([x], (x,), {"a": x})[k % 3]
    return x


def inner(tree: Any) -> Any:
    while isinstance(tree, (list, tuple, dict)):
        (tree,) = tree.values() if isinstance(tree, dict) else tree
    return tree


def doubled(tree: Any) -> tb.Tensor:
    return inner(tree) * 2


def total(tree: Any) -> tb.Tensor:
    return doubled(tree).sum()


def checkpointed(tree: Any) -> Any:
    x = inner(tree).requires_grad_()
    tb.checkpoint(doubled, tree).sum().backward()
    return x.grad


WALKS = {
    "vmap": (lambda tree: func.vmap(doubled)(tree), [2.0, 4.0]),
    "vmap of a tree": (lambda tree: inner(func.vmap(lambda x: nested(x * 2))(inner(tree))), [2.0, 4.0]),
    "grad": (lambda tree: inner(func.grad(total)(tree)), [2.0, 2.0]),
    "vjp": (lambda tree: inner(func.vjp(doubled, tree)[1](tb.ones(2))), [2.0, 2.0]),
    "jvp": (lambda tree: inner(func.jvp(doubled, (tree,), (tree,))[1]), [2.0, 4.0]),
    "jacrev": (lambda tree: inner(func.jacrev(doubled)(tree)), [[2.0, 0.0], [0.0, 2.0]]),
    "checkpoint": (checkpointed, [2.0, 2.0]),
    "while_loop": (
        lambda tree: inner(
            tb.while_loop(lambda i, t: i < 2, lambda i, t: (i + 1, t), (tb.asarray(0), tree))[1]
        ),
        [1.0, 2.0],
    ),
    "compile": (tb.compile(lambda tree: doubled(tree)), [2.0, 4.0]),
    "compile to a tree": (lambda tree: inner(tb.compile(lambda x: nested(x * 2))(inner(tree))), [2.0, 4.0]),
}  # fmt: skip


@pytest.mark.parametrize("name", WALKS)
def test_what_lies_deeper_than_calls_go(name: str) -> None:
    walk, wanted = WALKS[name]
    assert walk(nested(tb.asarray([1.0, 2.0]))).tolist() == wanted


@pytest.mark.parametrize("walk", [func.vmap(doubled), func.grad(total)])
def test_a_container_that_holds_itself_has_no_leaves(walk: Any) -> None:
    tree: list[Any] = [tb.ones(2)]
    tree.append((tree,))
    with pytest.raises(tb.ArgumentError, match="a list holds itself"):
        walk(tree)
    with pytest.raises(tb.ArgumentError, match="holds itself"):
        tb.while_loop(lambda t: False, lambda t: (t,), (tree,))
    twice = [tb.ones(2)]
    assert func.vmap(lambda pair: pair[0][0] + pair[1][0])([twice, twice]).tolist() == [2.0, 2.0]


def test_what_is_nested_too_deeply_for_json_is_not_saved(tmp_path: Path) -> None:
    path = tmp_path / "nested.safetensors"
    tb.save({"a": nested(tb.ones(2), 199)}, path)
    assert inner(tb.load(path)).tolist() == [1.0, 1.0]
    before = path.read_bytes()
    for depth in (200, DEPTH):
        with pytest.raises(tb.StateError, match="more than 200 containers lie in each other"):
            tb.save({"a": nested(tb.ones(2), depth)}, path)
    assert path.read_bytes() == before


def test_tangents_are_matched_by_their_keys() -> None:
    primals = {"a": tb.asarray([1.0]), "b": tb.asarray([2.0])}
    tangents = {"b": tb.asarray([5.0]), "a": tb.asarray([3.0])}
    _, tangent = func.jvp(lambda tree: tree["a"] * 10 + tree["b"], (primals,), (tangents,))
    assert tangent.tolist() == [35.0]
    with pytest.raises(tb.ArgumentError, match="must have the structure"):
        func.jvp(lambda tree: inner(tree), (nested(tb.ones(2)),), (nested(tb.ones(2), DEPTH + 1),))
