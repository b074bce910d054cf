"""Numbers that are read before they are needed: one segment, and what the function does is the same."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import tensorbus as tb

from error_bounds import assert_alike

Log = list[Any]
INPUTS = [[1.0, 0.5], [0.25, 0.125], [3.0, 4.0], [-1.0, 5.0], [0.5, 0.25], [0.1, 0.2]]
FEW_ELEMENTS = [[1.0], [3.0], [0.5, 0.25], [2.0], [-1.0], [4.0, 5.0]]
ROUNDINGS = 16


class Reading:
    """Something of the caller's that has ``item`` and is no tensor."""

    def item(self) -> str:
        return "read"

    def sum(self) -> Reading:
        return self


def training(log: Log) -> Callable[[Any], Any]:
    tb.manual_seed(0)
    model = tb.nn.Linear(2, 1)
    optimizer = tb.optim.Adam(model.parameters(), lr=0.1)

    def fn(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        value: float = loss.item()
        loss.backward()
        optimizer.step()
        log.append(f"loss {value:.6f}")
        return value, loss.detach()

    return fn


def kinds_of_numbers(log: Log) -> Callable[[Any], Any]:
    def fn(x):
        wide = float(x.sum())
        whole = int((x * 3).sum())
        count = (x > 0).sum().item()
        truth = (x > 0).all().item()
        y = x * 2 + 1
        log.append((wide, whole, count, truth))
        return y, wide, whole, count, truth

    return fn


def is_overwritten(log: Log) -> Callable[[Any], Any]:
    def fn(x):
        y = x.sum()
        value = y.item()
        y += 1
        y.mul_(10)
        return value, y

    return fn


def is_carried_on(log: Log) -> Callable[[Any], Any]:
    def fn(x):
        total, last = 0.0, 0.0
        for _ in range(3):
            loss = (x * x).sum()
            value = loss.item()
            x = x * 0.5 - last
            x = x + 1
            total += value
            last = value
        return x, total

    return fn


def is_bound_again(log: Log) -> Callable[[Any], Any]:
    def fn(x):
        value = x.sum().item()
        y = x * 2
        value = y.sum().item()
        z = y + 1
        return z, value

    return fn


def is_closed_over(log: Log) -> Callable[[Any], Any]:
    def fn(x):
        value = x.sum().item()
        show = lambda: log.append(value)  # noqa: E731
        y = x * 2
        show()
        return y

    return fn


def leaves_before(log: Log) -> Callable[[Any], Any]:
    def fn(x):
        value = x.sum().item()
        y = x * 2
        for _ in range(2):
            if len(log) > 2:
                break
            y = y + 1
        if len(log) > 4:
            return y
        log.append(value)
        return y * value

    return fn


def fails_behind(log: Log) -> Callable[[Any], Any]:
    def fn(x):
        value = x.sum().item()
        log.append("before")
        y = x * 2
        if len(log) % 3 == 0:
            raise ValueError("fails")
        y = y @ tb.ones((3,)) if len(log) % 4 == 0 else y + 1
        log.append(value)
        return y

    return fn


def is_handled(log: Log) -> Callable[[Any], Any]:
    def fn(x):
        value = None
        try:
            value = x.sum().item()
            y = x * 2
            if len(log) % 2 == 0:
                raise ValueError("handled")
            log.append(value)
        except ValueError:
            y = x
            log.append(value)
        with suppress(KeyError):
            value = (x * 3).sum().item()
            y = y + 1
            raise KeyError(1)
        return y, value

    return fn


def is_no_number(log: Log) -> Callable[[Any], Any]:
    def fn(x):
        value = x[x.shape[0] // 4 :].abs().item()  # of two elements there is none
        y = x * 2
        log.append(value)
        return y

    return fn


def is_of_something_else(log: Log) -> Callable[[Any], Any]:
    def fn(x):
        for source in (x, Reading(), x):
            value = source.sum().item()
            x = x * 2
            x = x + 1
            log.append(value)
        return x

    return fn


@pytest.mark.parametrize(
    ("case", "segments"),
    [
        (training, 1), (kinds_of_numbers, 1), (is_overwritten, 1), (is_carried_on, None),
        (is_bound_again, None), (is_closed_over, None), (leaves_before, None), (fails_behind, None),
        (is_handled, None), (is_no_number, None), (is_of_something_else, None),
    ],
)  # fmt: skip
def test_numbers_are_those_that_were_there(case: Any, segments: int | None) -> None:
    runs = []
    for is_compiled in (False, True):
        log: Log = []
        fn = case(log)
        fn = tb.compile(fn) if is_compiled else fn
        results = [_outcome(fn, values) for values in (FEW_ELEMENTS if case is is_no_number else INPUTS) * 2]
        runs.append((results, [*log]))
    (wanted, shown), (got, noted) = runs
    assert_alike(got, wanted, ROUNDINGS)
    assert_alike(noted, shown, ROUNDINGS)
    assert fn.segments, fn.reasons
    assert segments is None or len(fn.segments) == segments


def _outcome(fn: Callable[..., Any], values: list[float]) -> Any:
    try:
        result = fn(tb.asarray([*values]))
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        return type(error), str(error), [f.lineno for f in frames if f.filename == __file__][-1]
    return _plain(result)


def _plain(x: Any) -> Any:
    if isinstance(x, tb.Tensor):
        return x.dtype, x.tolist()
    return [*map(_plain, x)] if isinstance(x, tuple) else (type(x), x)
