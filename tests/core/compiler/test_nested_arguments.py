"""Arguments deep inside of others: guards and effects reach them, and grow with the depth alone."""

from __future__ import annotations

import random
from typing import Any

import pytest
import tensorbus as tb


def nested(x: Any, depth: int, draw: random.Random) -> Any:
    """Return ``x`` inside of ``depth`` containers of all kinds."""
    for _ in range(depth):
        match draw.randrange(5):
            case 0:
                x = [x]
            case 1:
                x = (x,)
            case 2:
                x = {"a": x}
            case 3:
                x = [7, x]
            case _:
                x = {3: x}
    return x


def inner(x: Any) -> Any:
    while isinstance(x, (list, tuple, dict)):
        x = [*x.values()][-1] if isinstance(x, dict) else x[-1]
    return x


@pytest.mark.parametrize("seed", range(3))
def test_what_lies_deep_is_guarded(seed: int) -> None:
    draw = random.Random(seed)
    kinds = random.Random(seed + 100)
    compiled = tb.compile(lambda tree, other: inner(tree) * inner(other))
    depths = [kinds.randint(1, 120) for _ in range(2)]
    for _ in range(4):
        shape = draw.choice([(2,), (3,), (2, 2)])
        x = tb.full(shape, draw.random(), dtype=draw.choice([tb.float32, tb.float64]))
        y = draw.choice([x, 2.0, draw.random(), tb.full((1,), 3.0)])
        state = kinds.getstate()
        trees = [nested(leaf, depth, kinds) for leaf, depth in zip((x, y), depths, strict=True)]
        kinds.setstate(state)
        out = compiled(*trees)
        assert out.dtype is (x * y).dtype
        assert out.tolist() == (x * y).tolist()
    assert compiled.replays, compiled.reasons


def test_guards_grow_with_the_depth() -> None:
    def size(depth: int) -> int:
        compiled = tb.compile(lambda tree: inner(tree) + 1)
        x: Any = tb.ones(2)
        for _ in range(depth):
            x = [x]
        compiled(x)
        [entry] = compiled.replays
        return len(entry.source)

    assert size(400) < 2.1 * size(200)


def test_what_lies_deep_is_changed_and_may_have_open_lengths() -> None:
    def function(tree: Any) -> tb.Tensor:
        at = tree
        while isinstance(at[0], list):
            at = at[0]
        at[0] = at[0] * 2
        at.append(at[0].sum())
        return at[0] + 1

    def tree(n: int) -> tuple[Any, Any]:
        x = tb.ones(n)
        tb.mark_dynamic(x, 0)
        leaf = [x]
        whole = leaf
        for _ in range(60):
            whole = [whole]
        return whole, leaf

    compiled = tb.compile(function)
    for n in (3, 3, 5, 4, 9):
        whole, leaf = tree(n)
        assert compiled(whole).tolist() == [3.0] * n
        assert leaf[0].tolist() == [2.0] * n
        assert leaf[1].item() == 2.0 * n
    assert len(compiled.recompiles) <= 1, compiled.recompiles
