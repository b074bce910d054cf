"""``with_size``: functions of a size that a run knows are one program, whole, for all sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus.control_flow import with_size
from tensorbus.control_flow.sized_runs import MIN_SIZE
from tensorbus.ops.batching_rules import LoopWarning

MAX_SIZE = 9


def _inner(n: Any, x: Any, w: Any) -> Any:
    """Return what a function of a size of its own makes of the first rows."""
    half = tb.sum(x[:n, 0] > 0) + MIN_SIZE
    return with_size(lambda m, x: (tb.sum(x[:m], axis=0),), tb.minimum(half, MAX_SIZE), (x,), MAX_SIZE)


def _of_half(n: Any, x: Any, w: Any) -> Any:
    shares = tb.softmax(x[:n] @ w.mT, axis=0)
    return tb.sum(shares * shares, axis=0), tb.max(shares)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": lambda n, x, w: (tb.sum(x[:n]),),
    "product": lambda n, x, w: (tb.sum((x[:n] @ w) ** 2, axis=0),),
    "turned weight": _of_half,
    "from the end": lambda n, x, w: (tb.max(x[MAX_SIZE - n :], axis=0),),
    "of others": lambda n, x, w: (x.mT[:, :n] @ w[:1].expand(n, 4), tb.ones((n, 2), device=x.device).sum(0)),
    "an operand": lambda n, x, w: (x, tb.sum(x[:n]), x),
    "by layers": lambda n, x, w: (tb.nn.functional.layer_norm(x[:n], (4,)).sum(0),),
    "of a size inside": _inner,
}


def _operands(device: str, extra: int = 0) -> tuple[Any, Any]:
    tb.manual_seed(5)
    return tb.random.normal((MAX_SIZE + extra, 4), device=device), tb.random.normal((4, 4), device=device)


def _close(ours: Any, right: Any) -> None:
    assert len(ours) == len(right)
    for a, b in zip(ours, right, strict=True):
        assert a.shape == b.shape
        assert a.dtype is b.dtype
        assert tb.max(tb.abs(a - b)) <= 2e-6 * tb.max(tb.abs(b)) + 2e-6


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_program_serves_all_sizes(device: str, name: str) -> None:
    """Its results, gradients and tangents are those of a call with the integer."""
    function, (x, w) = FUNCTIONS[name], _operands(device)

    def run(size: Any, x: Any, w: Any) -> Any:
        return with_size(lambda n, x: function(n, x, w), size, (x,), MAX_SIZE)

    def gradients(size: Any, x: Any, w: Any) -> Any:
        return tb.func.grad(lambda x, w: sum(tb.sum(y * y) for y in run(size, x, w)), argnums=(0, 1))(x, w)

    def tangents(size: Any, x: Any, w: Any) -> Any:
        return tb.func.jvp(lambda x: run(size, x, w), (x,), (x * 2,))[1]

    whole = tb.compile(run, fullgraph=True)
    derived = [(each, tb.compile(each, fullgraph=True)) for each in (gradients, tangents)]
    for n in (MIN_SIZE, 5, MAX_SIZE):
        size = tb.asarray(n, device=device)
        _close(whole(size, x, w), function(n, x, w))
        for each, compiled in derived:
            _close(compiled(size, x, w), each(size, x, w))
    assert whole.recompiles == []


def test_lengths_outside_may_be_open(device: str) -> None:
    def run(size: Any, x: Any) -> Any:
        rows = tb.reshape(x, (-1, 2))
        return with_size(lambda n, x: (tb.exp(x)[:n].sum(0), x * 2), size, (rows,), rows.shape[0])

    compiled = tb.compile(run, fullgraph=True, dynamic=True)
    for extra in (0, 3, 7):
        x, _ = _operands(device, extra)
        for n in (MIN_SIZE, 4, 2 * x.shape[0]):
            size = tb.asarray(n, device=device)
            _close(compiled(size, x), run(size, x))
    assert compiled.recompiles == []


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_examples_have_one_size_or_their_own(device: str, compiled: bool) -> None:
    x, w = _operands(device)
    xs = tb.stack([x, x + 1, x * 2])

    def run(size: Any, x: Any) -> Any:
        return with_size(lambda n, x: ((x[:n] @ w).sum(0),), size, (x,), MAX_SIZE)[0]

    def each(size: Any, xs: Any) -> Any:
        return tb.vmap(run, in_dims=(None, 0))(size, xs)

    call = tb.compile(each, fullgraph=True) if compiled else each
    for n in (MIN_SIZE, 6):
        size = tb.asarray(n, device=device)
        _close([call(size, xs)], [tb.stack([run(size, x) for x in xs])])
    if compiled:
        sizes = tb.asarray([2, 9, 4], device=device)
        with pytest.warns(LoopWarning, match="one by one"):
            out = tb.compile(tb.vmap(run), fullgraph=True)(sizes, xs)
        _close([out], [tb.stack([run(n, x) for n, x in zip(sizes, xs, strict=True)])])


@pytest.mark.parametrize(
    ("function", "size", "error", "match"),
    [
        (lambda n, x: (x[:n],), 4, tb.errors.CaptureError, "a length that depends on the size"),
        (lambda n, x: (x[:n].sum() if n > 3 else x,), 4, tb.errors.CaptureError, "only for sizes of which"),
        (lambda n, x: (x[: int(n)].sum(),), 4, tb.errors.CaptureError, "only for sizes of which n0 == "),
        (lambda n, x: (x[:n].sum() / n,), 4, tb.errors.CaptureError, "only for sizes of which n0 == "),
        (lambda n, x: (x[:n].sum(),), 1, tb.ArgumentError, "between 2 and 9, got 1"),
        (lambda n, x: (x[:n].sum(),), 10, tb.ArgumentError, "between 2 and 9, got 10"),
        (lambda n, x: (x[:n].sum(),), 4.0, tb.DtypeError, "one integer"),
    ],
    ids=["result", "decision", "integer", "number", "too small", "too large", "no integer"],
)  # fmt: skip
def test_what_serves_no_size_is_an_error(
    device: str, function: Any, size: Any, error: Any, match: str
) -> None:
    x, _ = _operands(device)
    compiled = tb.compile(lambda size, x: with_size(function, size, (x,), MAX_SIZE), fullgraph=True)
    with pytest.raises(error, match=match):
        compiled(tb.asarray(size, device=device), x)
