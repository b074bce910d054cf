"""Functions that break are divided: lines that break run as Python, the rest in segments, captured once.

Each case is called several times as it is and compiled: results with their types, effects in their order,
errors and their lines are the same.
"""

from __future__ import annotations

import functools
import json
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import tensorbus as tb

from error_bounds import assert_alike

Log = list[Any]


class Meter:
    """An average, as training loops keep one."""

    count = 0

    def __init__(self) -> None:
        self.total, self.steps = 0.0, 0

    def update(self, value: float, n: int = 1) -> None:
        type(self).count += n
        self.total += value * n
        self.steps += n

    @property
    def average(self) -> float:
        return self.total / self.steps


class Bar:
    """A progress bar: iterated over, and told values to show."""

    def __init__(self, items: Any, log: Log) -> None:
        self.items, self.log, self.shown = items, log, ""

    def __iter__(self) -> Iterator[Any]:
        for k, item in enumerate(self.items):
            self.log.append(f"{k} {self.shown}")
            yield item

    def set_postfix(self, **values: float) -> None:
        self.shown = ", ".join(f"{k}={v:.4f}" for k, v in values.items())


def training(log: Log, read: Callable[..., Any]) -> Callable[..., Any]:
    """Return a step that calls ``read(log, loss)`` before it walks back."""
    tb.manual_seed(0)
    model = tb.nn.Sequential(tb.nn.Linear(3, 4), tb.nn.GELU(), tb.nn.Linear(4, 2))
    optimizer = tb.optim.SGD(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        read(log, loss)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def reads_in_the_middle(log):
    return training(log, lambda log, loss: log.append(loss.item()))


def logs_lazily(log):
    logger = logging.getLogger("segments")

    def read(log, loss):
        logger.warning("loss %.2f %s", loss.item(), type(float(loss)).__name__)
        log.append(f"{loss.item():.2f}")

    return training(log, read)


def returns_values(log):
    def fn(x):
        y = (x * 2).sum()
        return y.item(), float(y), int(y), x.tolist(), f"{(y * 2).item():.2f}", y

    return fn


def meter(log):
    meter = Meter()

    def fn(x):
        loss = (x * x).mean()
        meter.update(loss.item(), len(x))
        log.append((meter.average, meter.steps, Meter.count > 0))
        return loss

    return fn


def progress(log):
    def fn(x):
        total = 0.0
        bar = Bar([1, 2, 3], log)
        for k in bar:
            y = (x * k).sum()
            total += y.item()
            bar.set_postfix(loss=y.item(), total=total)
        return total

    return fn


def branches_on_a_value(log):
    def fn(x):
        best = 4.0
        y = (x * x).sum()
        if y.item() < best:
            best = y.item()
            z = y * 2
        elif y > 20:
            return "large"
        else:
            z = y / 3
        return z + best

    return fn


def goes_on_until(log):
    def fn(x):
        error, rounds = (x * x).sum(), 0
        while error > 0.5:
            x = x * 0.5
            error = (x * x).sum()
            rounds += 1
            if rounds == 40:
                break
        else:
            log.append("done")
        return x, rounds

    return fn


def every_other_step(log):
    state = {"step": 0}

    def fn(x):
        y = (x + 1).sum()
        if state["step"] % 2 == 0:
            print("step", state["step"], y.item())
            log.append(y.item())
        state["step"] += 1
        return y * 2

    return fn


def fails_in_the_middle(log):
    def fn(x):
        y = x * 2
        log.append("before")
        if y.sum().item() > 2:
            raise ValueError(f"too large: {y.sum().item()}")
        log.append("after")
        return y + 1

    return fn


def handles_errors(log):
    def fn(x):
        retained = x * 0
        try:
            retained = x + 1
            log.append(retained.sum().item())
            other = retained * 2
            if other.sum().item() > 5:
                raise KeyError("x")
            retained = other + 1
        except KeyError as error:
            log.append(repr(error))
            retained = retained * 10
        finally:
            log.append("finally")
        return retained

    return fn


def recovers_from_an_error(log):
    def fn(x):
        y = x * 2
        log.append(y.sum().item())
        try:
            z = y.reshape((3,))
        except tb.errors.ShapeError as error:
            log.append(type(error).__name__)
            z = y + 1
        log.append(z.sum().item())
        return z

    return fn


def suppresses_errors(log):
    def fn(x):
        y = x
        with suppress(ValueError):
            y = y + 1
            log.append(y.sum().item())
            y = y * 2
            int("no number")
            y = y * 100
        return y

    return fn


class Layer(tb.nn.Module):
    """A module whose forward breaks."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.weight = tb.nn.Parameter(tb.ones(2))
        self.__log = log

    def forward(self, x, scale=2.0, *, flag=True):
        y = x * self.weight * scale
        self.__log.append(round(y.sum().item(), 3))
        return y[y > 0] if flag else y


class Derived(Layer):
    """One that calls it by ``super``."""

    def forward(self, x, scale=3.0, *, flag=True):
        return super().forward(x + 1, scale).sum() * 2


def modules_inside(log):
    layers = [Layer(log), Derived(log)]

    def fn(x):
        h = tb.relu(x) + 1
        for layer in layers:
            log.append(layer(h).sum().item())
        return layers[0](h, flag=False).sum()

    return fn


def closures(log):
    total = 0.0

    def fn(x):
        nonlocal total
        scale = (x * 2).max().item()
        total += scale

        def inner(v):
            return v * scale

        return [inner(x) for _ in range(2)], total

    return fn


def without_gradients(log):
    weight = tb.ones(2).requires_grad_()

    def fn(x):
        y = (x * weight).sum()
        with tb.no_grad():
            z = y * 3
            log.append((z.item(), z.requires_grad, y.requires_grad))
            w = z + y
        y.backward()
        grad, weight.grad = weight.grad, None
        return w, w.requires_grad, grad

    return fn


def order_of_evaluation(log):
    def note(v):
        log.append(v)
        return v

    def fn(x):
        log.append("begin")
        results = {note("a"): x.sum().item(), note("b"): [note((x * 2).sum().item()), note("c")]}
        text = f"{note(1)} {(x + 1).sum().item():>8.2f} {note(2)}" + str((x * 3).mean().item())
        x[0] += (x * 2).sum().item()
        return results, text, x * 1

    return fn


CASES = [
    reads_in_the_middle, logs_lazily, returns_values, meter, progress, branches_on_a_value, goes_on_until,
    every_other_step, fails_in_the_middle, handles_errors, recovers_from_an_error, suppresses_errors,
    modules_inside, closures, without_gradients, order_of_evaluation,
]  # fmt: skip
INPUTS = [[1.0, 0.5], [0.25, 0.125], [3.0, 4.0], [-1.0, 5.0], [0.5, 0.25], [0.1, 0.2]]

ROUNDINGS = 16
"""Of sums of a few, and the ops around them."""


def plain(x: Any) -> Any:
    """Return what is compared: values with their types, of tensors the elements."""
    if isinstance(x, tb.Tensor):
        return "tensor", x.dtype, x.requires_grad, x.tolist()
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [type(x), *map(plain, x)]
    if isinstance(x, float):
        assert pickle.loads(pickle.dumps(x)) == json.loads(json.dumps(x)) == x
    return type(x), x


def outcome(fn: Callable[..., Any], values: list[float], log: Log, *, device: str) -> Any:
    x = tb.asarray([*values], device=device)
    try:
        return plain(fn(x if fn.__name__ != "step" else tb.asarray([[*values, 1.0]], device=device)))
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f.lineno for f in frames if f.filename == __file__]
        return type(error), str(error), [lines[-1]]


@pytest.mark.parametrize("case", CASES)
def test_a_divided_function_does_what_it_did(case, capsys, caplog) -> None:
    runs = []
    for compiled in (False, True):
        log: Log = []
        fn = case(log)
        fn = tb.compile(fn) if compiled else fn
        actual = [outcome(fn, values, log, device="cpu") for values in INPUTS * 2]
        printed = capsys.readouterr().out
        runs.append((actual, plain(log), printed, [r.getMessage() for r in caplog.records]))
        caplog.clear()
    wanted, got = runs
    assert_alike(got, wanted, ROUNDINGS, message=f"{wanted}\n{got}")
    assert fn.segments, fn.reasons


@pytest.mark.parametrize("device", ["cpu", "refdev"])
def test_a_module_is_divided_where_it_is_and_as_another(device) -> None:
    log: Log = []
    plainly, compiled, in_place = (Layer(log).to(device) for _ in range(3))
    compiled = tb.compile(compiled)
    in_place.compile()
    for values in INPUTS:
        x = tb.asarray([values], device=device)
        results = [[layer(x).tolist(), log[-1]] for layer in (plainly, compiled, in_place)]
        assert_alike(results[1], results[0], ROUNDINGS)
        assert_alike(results[2], results[0], ROUNDINGS)
    assert type(compiled)._compiled.segments


def test_breaks_that_are_met_later_are_divided_too() -> None:
    """A branch that no capture has seen breaks: the function is divided anew, and goes on as it would."""
    seen = []

    @tb.compile
    def fn(x, loud):
        y = tb.sin(x) * 2
        if y.sum().item() > 100:
            return y
        z = y + x
        if loud:
            seen.append((z * 2).sum().item())
        return tb.cos(z)

    x = tb.asarray([0.5, 1.0])
    for loud in (False, False, False, True, True, False, True, True):
        assert_alike(fn(x, loud), tb.cos(tb.sin(x) * 2 + x), ROUNDINGS)
    assert_alike(seen, [((tb.sin(x) * 2 + x) * 2).sum().item()] * 4, ROUNDINGS)
    assert all(s.replays and not s.reasons for s in fn.segments if s.graphs)


@pytest.mark.parametrize(
    ("ask", "first"),
    [
        (lambda f: f.cache_info(), 0),
        (lambda f: f.cache_info(), 4),
        (lambda f: getattr(f, "_".join(["cache", "info"]))(), 0),
    ],
    ids=["always", "later", "by a computed name"],
)
def test_a_function_that_asks_for_the_hits_of_a_cache_is_left_whole(ask, first) -> None:
    """Segments count no hits; the branch that asks may be one that no capture has seen."""
    runs = []
    for compiled in (False, True):

        @functools.lru_cache
        def double(n):
            return n * 2

        def fn(x, asks, double=double):
            y = x * double(3)
            if y.sum().item() < 0:
                return y
            return y * ask(double).hits if asks else y + 1

        fn = tb.compile(fn) if compiled else fn
        x = tb.asarray([1.0, 2.0])
        runs.append([fn(x, k >= first).tolist() for k in range(8)])
    assert runs[0] == runs[1]
    assert not fn.segments


def test_division_ends_where_a_segment_is_found_to_ask_a_cache() -> None:
    """From then on hits are counted, by the function as a whole."""

    @functools.lru_cache
    def double(n):
        return n * 2

    name = "_".join(["cache", "info"])

    @tb.compile
    def fn(x, asks):
        y = x * double(3)
        if y.sum().item() < 0:
            return y
        return y * getattr(double, name)().hits if asks else y + 1

    x = tb.asarray([1.0])
    for _ in range(3):
        assert fn(x, False).tolist() == [7.0]
    assert fn.segments
    fn(x, True)
    hits = [fn(x, True).item() / 6 for _ in range(5)]
    assert_alike(hits, [hits[0] + k for k in range(5)], roundings=2)


def test_a_result_that_keeps_its_gradient_passes_between_segments() -> None:
    def step(x: tb.Tensor) -> Any:
        h = x.detach().requires_grad_() * 2
        h.retain_grad()
        loss = (h * h).sum()
        if loss.item() < 0:
            return None
        loss.backward()
        return h.grad.tolist()

    run = tb.compile(step)
    for n in (1.0, 2.0, 3.0, 4.0, 5.0):
        assert run(tb.asarray([n], device="cpu")) == [4 * n]
