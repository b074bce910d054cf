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
NAN, INF = float("nan"), float("inf")
NOT_FINITE = [[1.0, 0.5], [2.0, 3.0], [NAN, 1.0], [0.25, 0.125], [INF, 1.0], [4.0, 5.0], [1.0, -INF]]
NOT_FINITE_FIRST = [*reversed(NOT_FINITE)]
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
        turned = (x * 3j).sum().item()
        whole = int((x > 0).sum())
        sure = int((x > 0).all())
        count = (x > 0).sum().item()
        truth = (x > 0).all().item()
        y = x * 2 + 1
        log.append((wide, whole, sure, count, truth))
        return y, wide, turned.imag, whole, sure, count, truth

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


def may_be_no_whole_number(log: Log) -> Callable[[Any], Any]:
    parameter = tb.nn.Parameter(tb.ones((2,)))
    optimizer = tb.optim.SGD([parameter], lr=0.125)

    def fn(x):
        optimizer.zero_grad()
        loss = (parameter * x).sum()
        whole: int = int(loss)
        log.append("behind")
        loss.backward()
        optimizer.step()
        log.append(whole)
        return whole, parameter.detach()

    return fn


def varies_in_dtype(log: Log) -> Callable[[Any], Any]:
    def fn(x):
        if x.shape[0] == 2:
            x = tb.astype(x, tb.int32)
        whole = int(x.sum())
        log.append("behind")
        y = x * 2
        y = y + 1
        log.append(whole)
        return y

    return fn


def is_complex_at_times(log: Log) -> Callable[[Any], Any]:
    def fn(x):
        if x.shape[0] == 2:
            x = tb.astype(x, tb.complex64)
        wide = float(x.sum())
        log.append("behind")
        y = x * 2
        y = y + 1
        log.append(wide)
        return y

    return fn


def is_out_of_range_before(log: Log) -> Callable[[Any], Any]:
    table = tb.asarray([5.0, 6.0, 7.0])

    def fn(x):
        value = tb.take(table, tb.astype(x, tb.int64)).sum().item()
        log.append("behind")
        y = x * 2
        y = y + 1
        log.append(value)
        return y

    return fn


def is_out_of_range_behind(log: Log) -> Callable[[Any], Any]:
    table = tb.asarray([5.0, 6.0, 7.0])

    def fn(x):
        value = x.sum().item()
        log.append("behind")
        y = tb.take(table, tb.astype(x, tb.int64)) * 2
        log.append(value)
        return y

    return fn


@pytest.mark.parametrize(
    ("case", "segments", "inputs"),
    [
        (training, 1, INPUTS), (kinds_of_numbers, 1, INPUTS), (is_overwritten, 1, INPUTS),
        (is_carried_on, None, INPUTS), (is_bound_again, None, INPUTS), (is_closed_over, None, INPUTS),
        (leaves_before, None, INPUTS), (fails_behind, None, INPUTS), (is_handled, None, INPUTS),
        (is_no_number, None, FEW_ELEMENTS), (is_of_something_else, None, INPUTS),
        (may_be_no_whole_number, 2, NOT_FINITE), (may_be_no_whole_number, 2, NOT_FINITE_FIRST),
        (varies_in_dtype, None, FEW_ELEMENTS), (varies_in_dtype, None, [*FEW_ELEMENTS, [NAN]]),
        (is_complex_at_times, None, FEW_ELEMENTS), (is_complex_at_times, None, [*reversed(FEW_ELEMENTS)]),
        (is_out_of_range_before, None, [[1.0, 2.0], [2.0, 1.0], [0.0, 1.0], [1.0, 9.0]]),
        (is_out_of_range_behind, None, [[1.0, 2.0], [2.0, 1.0], [0.0, 1.0], [1.0, 9.0]]),
    ],
)  # fmt: skip
def test_numbers_are_those_that_were_there(
    case: Any, segments: int | None, inputs: list[list[float]]
) -> None:
    runs = []
    for is_compiled in (False, True):
        log: Log = []
        fn = case(log)
        fn = tb.compile(fn) if is_compiled else fn
        results = [_outcome(fn, values) for values in inputs * 2]
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
