"""Loops that repeat beyond a limit are captured once and run round by round; results are those of Python.

Each case is called a few times as it is and compiled, with a limit of a few ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import pytest
import tensorbus as tb

from error_bounds import assert_alike

ROUNDS = 30
ROUNDINGS = 16 * ROUNDS
"""Of sums of a few in each round."""


def grows(x, w):
    for _ in range(ROUNDS):
        x = tb.concat([x, tb.tanh(x[-1:] * w + x.mean())])
    return x


def while_with_a_count(x, w):
    k, seen = 0, []
    while k < ROUNDS:
        k += 1
        if k % 10 == 0:
            seen.append(k)
            continue
        x = tb.tanh(x * w + 0.1)
    return x, k, seen


def stops_early(x, w):
    for k in range(1000):
        x = tb.tanh(x * w) + 0.01 * k
        if x.shape[0] == 2 and k == ROUNDS:
            break
    else:
        return "never"
    return x, k


def stops_on_a_value(x, w):
    steps = 0
    while (x * x).sum() > 1e-3:
        x = x * 0.8 * w
        steps += 1
        if steps == ROUNDS:
            break
    return x, steps


def ends(x, w):
    for k in range(ROUNDS):
        x = x * w + k
    else:
        x = x - 1
    return x, k


def nested(x, w):
    total = x * 0
    for i in range(ROUNDS):
        for j in range(3):
            total = total + tb.sin(x * i + j) * w
        if i == 20:
            continue
        total = total * 0.9
    return total


def reads_rows(x, w):
    rows = tb.arange(ROUNDS * 2, dtype=x.dtype).reshape((ROUNDS, 2))
    h, out = x, []
    for k, row in enumerate(rows):
        h = tb.tanh(h * w + row + rows[k])
        out.append(h.sum())
    return tb.stack(out), h


def handles_errors(x, w):
    failed = []
    for k in range(ROUNDS):
        try:
            x = tb.tanh(x * w) + 0.1
            if k % 7 == 3:
                raise KeyError(k)
            x = x * 1.1
        except KeyError as error:
            failed.append(error.args[0])
            x = x + 1
        finally:
            x = x * 0.5
    return x, failed


def without_gradients(x, w):
    for _ in range(ROUNDS):
        with tb.no_grad():
            shift = x.mean() * 0.1
        x = tb.tanh(x * w) + shift
    return x


def comprehension(x, w):
    return tb.stack([tb.tanh(x * k * w) + 1 for k in range(ROUNDS)])


def _stream(x, w) -> Iterator[Any]:
    while True:
        x = tb.tanh(x * w) + 0.1
        yield x


def generator(x, w):
    total = x
    for k, y in enumerate(_stream(x, w)):
        total = total + y * 0.5
        if k == ROUNDS:
            break
    return total


def reduced(x, w):
    return reduce(lambda h, k: tb.tanh(h * w) + k * 0.01, range(ROUNDS), x)


def recursive(x, w, depth=ROUNDS):
    return x if depth == 0 else recursive(tb.tanh(x * w) + 0.1, w, depth - 1)


def _advance(x, w, rounds):
    for _ in range(rounds):
        x = tb.tanh(x * w) + 0.1
    return x


def inside_a_function(x, w):
    return _advance(x + 1, w, ROUNDS) * 2


def writes_in_place(x, w):
    buffer = tb.zeros(ROUNDS, 2)
    for k in range(ROUNDS):
        buffer[k] = x
        x = tb.tanh(x * w.detach()) + 0.1
        buffer[k] += 1
    return buffer, x


def trains(x, w):
    w, losses = tb.nn.Parameter(w.detach()), []
    optimizer = tb.optim.AdamW([w], lr=0.1)
    for k in range(ROUNDS):
        optimizer.zero_grad()
        loss = ((x * w - tb.full((2,), 0.1 * k)) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return tb.stack(losses), w.detach()


def draws(x, w):
    tb.manual_seed(3)
    for _ in range(ROUNDS):
        x = tb.tanh(x * w) + tb.randn(2, dtype=x.dtype) * 0.1
    return tb.nn.functional.dropout(x, 0.5)


def reads_its_arguments_first(x, w):
    a, b = x, x * w
    for _ in range(ROUNDS):
        a, b = b, tb.tanh(a + b * 0.5)
    return a, b


DIVIDED = [
    grows, while_with_a_count, stops_early, stops_on_a_value, ends, nested, reads_rows, handles_errors,
    without_gradients, inside_a_function, writes_in_place, reads_its_arguments_first,
]  # fmt: skip
UNDIVIDED = [comprehension, generator, reduced, recursive, trains, draws]


def _plain(x: Any) -> Any:
    if isinstance(x, tb.Tensor):
        return "tensor", x.shape, x.requires_grad, x.tolist()
    return [type(x), *map(_plain, x)] if isinstance(x, (list, tuple)) else x


def _outcomes(fn: Callable[..., Any], case: Callable[..., Any], device: str) -> list[Any]:
    """Return results and gradients of some calls, of other lengths too where rows may be added."""
    outcomes = []
    for values in ([0.5, -0.25], [1.0, 2.0], [0.125, 3.0]):
        x = tb.asarray(values, device=device) if case is not writes_in_place else tb.asarray(values)
        w = tb.asarray(0.9, device=x.device).requires_grad_()
        out = fn(x, w)
        first = out[0] if isinstance(out, tuple) else out
        if first.requires_grad:
            first.sum().backward()
        outcomes.append((_plain(out), None if w.grad is None else w.grad.tolist()))
    return outcomes


@pytest.mark.parametrize("case", DIVIDED + UNDIVIDED)
def test_a_long_loop_does_what_it_did(case, monkeypatch) -> None:
    monkeypatch.setenv("TENSORBUS_UNROLL_LIMIT", "30")
    wanted = _outcomes(case, case, "cpu")
    compiled = tb.compile(case)
    assert_alike(_outcomes(compiled, case, "cpu"), wanted, ROUNDINGS)
    if case in DIVIDED:
        assert compiled.segments, compiled.reasons
        # a round is captured once, and once more where what differs between rounds is left open
        assert all(len(segment.replays) <= 3 for segment in compiled.segments)


def test_a_loop_over_layers_stays_whole(monkeypatch) -> None:
    monkeypatch.setenv("TENSORBUS_UNROLL_LIMIT", "30")
    layers = [tb.nn.Linear(2, 2) for _ in range(ROUNDS)]

    @tb.compile
    def run(x):
        for layer in layers:
            x = tb.tanh(layer(x)) * 0.5
        return x

    x = tb.ones(3, 2)
    for _ in range(2):
        run(x)
    assert not run.segments
    assert len(run.replays) == 1


def test_explain_says_which_loop_is_not_unrolled(monkeypatch) -> None:
    monkeypatch.setenv("TENSORBUS_UNROLL_LIMIT", "30")
    run = tb.compile(nested)
    message = str(tb.compile.explain(run)(tb.ones(2), tb.ones(())))
    assert "for i in range(ROUNDS)" in message
    assert "captured once" in message


def test_one_graph_is_unrolled_whatever_its_length(monkeypatch) -> None:
    monkeypatch.setenv("TENSORBUS_UNROLL_LIMIT", "30")
    run = tb.compile(inside_a_function, fullgraph=True)
    run(tb.ones(2), tb.ones(()))
    assert len(run.replays) == 1
    assert not run.segments
