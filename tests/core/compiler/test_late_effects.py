"""Statements that show numbers before a step is through: one segment, and all is shown as by eager code."""

from __future__ import annotations

import copy
import io
import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import tensorbus as tb
from tensorbus.compiler.replay.late_errors import LateErrors

import late_effect_cases
from error_bounds import assert_alike
from late_effect_cases import (
    INPUTS,
    ROUNDINGS,
    ROUNDINGS_OF_ADAM,
    Case,
    Model,
    Step,
    cannot_be_shown,
    divides_by_nothing,
    fails_before_or_behind,
    file_is_closed,
    handled_by_the_function,
    looks_between,
    loops_and_arguments,
    others_add_between,
    others_show_behind,
    plain,
    raises_in_python_behind,
    shown_elsewhere_later,
    shown_in_all_ways,
    shown_on_something_else,
)

FILES = (__file__, late_effect_cases.__file__)


def fails_before_with_much_state() -> Case:
    step, losses, sink = Model(), [], io.StringIO()

    def fn(x, k):
        loss = step.loss_of(x)
        print(f"loss {loss.item():.1f}", file=sink)
        losses.append(loss.item())
        step.update(loss)
        return loss.detach()

    return fn, lambda: (losses, sink.getvalue(), step.values())


def fails_in_the_caller() -> Case:
    step, losses, looked_up = Model(), [], []

    def fn(x, k):
        loss = (step.loss_of(x * 0 + 1) * x).sum()
        losses.append(loss.item())
        step.update(loss)
        return loss.detach()

    def around(f: Any) -> Any:
        def call(x: Any, k: int) -> Any:
            if k % 3 == 2:
                looked_up.append(tb.take(step.table, tb.astype(x[:1] + 9, tb.int64)))
            return f(x, k)

        return call

    fn.around = around  # type: ignore[attr-defined]
    return fn, lambda: (losses, step.values())


def shows_now_and_then() -> Case:
    step, losses = Step(), []

    def fn(x, k):
        loss = step.loss_of(x)
        if k % 2 == 0:
            losses.append(loss.item())
        step.update(loss)
        return loss.detach()

    return fn, lambda: (losses, step.values())


def binds_numbers() -> Case:
    step, losses, sink = Step(), [], io.StringIO()

    def fn(x, k):
        total = 0.5
        loss = step.loss_of(x)
        value: float = loss.item()
        losses.append(value)
        double, count = value * 2 + float(loss), int((x > 0).sum())
        text = f"{value:.2f} of {k}"
        total += value
        total -= (loss * 2).item()
        parts, array = x.tolist(), (loss * 3).numpy()
        print(text, -value, file=sink)
        step.update(loss)
        return tb.asarray([value, double, count, total, *parts, float(array)]), text

    return fn, lambda: (losses, sink.getvalue(), step.values())


def binds_what_is_no_number() -> Case:
    step, reading = Step(), [tb.ones(()) * 1j, tb.ones(())]

    class Text:
        def item(self) -> str:
            return "text"

    def fn(x, k):
        total = 0
        loss = step.loss_of(x)
        wanted = Text() if k % 4 == 3 else reading[k % 2]
        total += wanted.item()
        text = f"{wanted.item():.1f}"
        step.update(loss)
        return tb.asarray(total), text

    return fn, lambda: step.values()


def shows_in_branches() -> Case:
    step, losses, sink = Step(), [], io.StringIO()
    logger, nothing = logging.getLogger("tensorbus.tests.branches"), None
    logger.handlers, logger.propagate = [logging.StreamHandler(sink)], False
    logger.setLevel(logging.INFO)
    step.count = 0  # type: ignore[attr-defined]

    def fn(x, k):
        step.count += 1
        loss = step.loss_of(x)
        if step.count % 3 == 0 and k > 0:
            value = loss.item()
            losses.append(value)
            print("three", step.count, f"{value:.1f} {k:03d}", file=sink)
            if logger is not None and nothing is None:
                logger.info("%.2f", value)
        elif k % 2:
            print("odd", (loss * 2).item(), file=sink)
        else:
            losses.append(k)
        step.update(loss)
        return loss.detach()

    return fn, lambda: (losses, sink.getvalue(), step.values(), step.count)  # type: ignore[attr-defined]


def shows_in_a_loop() -> Case:
    step, sink = Step(), io.StringIO()
    turn = [0]

    class Options:
        every, name = 2, "run"

    def advance() -> None:
        turn[0] += 1

    def fn(x, k):
        total = 0.0
        for number, part in enumerate([x, x + 1, x * 2]):
            loss = step.loss_of(part)
            total += loss.item()
            if number % Options.every == 0:
                print(f"{Options.name} {number + k} {loss.item():.2f}", file=sink)
            step.update(loss)
            advance()
        return tb.asarray(total)

    return fn, lambda: (sink.getvalue(), step.values(), turn)


def file_is_closed_before() -> Case:
    step, sink = Step(), io.StringIO()

    def fn(x, k):
        value = step.loss_of(x).item()
        if k == 6 or value > 100:
            sink.close()
        loss = step.loss_of(x)
        print(loss.item(), file=sink)
        step.update(loss)
        return loss.detach()

    return fn, lambda: (sink.closed, step.values())


shown_number = 0


def shows_a_global() -> Case:
    global shown_number
    step, sink = Step(), io.StringIO()
    shown_number = 0

    def advance() -> None:
        global shown_number
        shown_number += 1

    def fn(x, k):
        loss = step.loss_of(x)
        print(shown_number, loss.item(), file=sink)
        step.update(loss)
        advance()
        return loss.detach()

    return fn, lambda: (sink.getvalue(), step.values())


def is_interrupted() -> Case:
    step, losses = Step(), []

    def fn(x, k):
        loss = step.loss_of(x)
        value = loss.item()
        losses.append(value)
        step.update(loss)
        return loss.detach()

    def around(f: Any) -> Any:
        def call(x: Any, k: int) -> Any:
            if k != 7:
                return f(x, k)
            with interrupted_reads():
                return f(x, k)

        return call

    fn.around = around  # type: ignore[attr-defined]
    return fn, lambda: (losses, step.values())


@contextmanager
def interrupted_reads() -> Iterator[None]:
    """Ctrl-C comes as numbers of a device are waited for."""
    runtime = type(tb.ones(()).device.runtime)
    to_host = runtime.to_host

    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    runtime.to_host = interrupt
    try:
        yield
    finally:
        runtime.to_host = to_host


def moves_a_schedule() -> Case:
    step, losses = Step(), []
    schedule = tb.optim.lr_scheduler.StepLR(step.optimizer, 2)

    def fn(x, k):
        loss = step.loss_of(x)
        losses.append(loss.item())
        step.update(loss)
        schedule.step()
        return loss.detach()

    return fn, lambda: (losses, schedule.get_last_lr(), step.values())


@pytest.mark.parametrize("device", ["opencl", "refdev"])
@pytest.mark.parametrize(
    ("case", "segments"),
    [
        (shown_on_something_else, 2), (fails_before_or_behind, 1), (fails_before_with_much_state, 1),
        (fails_in_the_caller, 1), (shows_now_and_then, 1), (moves_a_schedule, 2), (others_show_behind, None),
        (shown_in_all_ways, 1), (raises_in_python_behind, None), (loops_and_arguments, None),
        (binds_numbers, 1), (shows_in_branches, 1), (shows_in_a_loop, 2), (binds_what_is_no_number, None),
        (file_is_closed_before, None), (shows_a_global, 1), (is_interrupted, 1),
    ],
)  # fmt: skip
def test_errors_that_come_late_are_those_of_eager_code(case: Any, segments: int | None, device: str) -> None:
    """Of a step that fails before its number is shown nothing is left; one that fails behind it is taken."""
    with tb.device(device):
        wanted, got, called = _runs(case, False)
    with suppress(tb.IndexingError):  # of what a caller queued and nobody read
        tb.device(device).synchronize()
    assert_alike(got, wanted, ROUNDINGS_OF_ADAM)
    assert segments is None or len(called.segments) == segments, called.reasons
    assert segments is None or all(len(s.recompiles) < 5 for s in called.segments), called.segments


@pytest.mark.parametrize("device", ["opencl", "refdev"])
def test_a_step_that_shows_nothing_does_not_wait(device: str) -> None:
    """A number is shown in each third call; the others are a program that writes over what it is given."""
    step, losses = Step(), []

    def fn(x, k):
        loss = step.loss_of(x)
        if k % 3 == 0:
            losses.append(loss.item())
        step.update(loss)

    with tb.device(device):
        called = tb.compile(fn, compare_eager=False)
        step.__init__()  # type: ignore[misc]
        for k in range(12):
            called(tb.ones((2,)), k)
        (segment,) = called.segments
        late = [entry.scope["late"] is not None for entry in segment.replays]
        assert sorted(late) == [False, True]
        assert len(losses) == 4
        assert [entry.prepared.in_place for entry in segment.replays] == [not is_late for is_late in late]


def test_an_error_that_python_does_not_meet_again_is_not_lost() -> None:
    """It was of another thread, say, whose work was queued meanwhile."""
    late, x = LateErrors(tb.Device("opencl"), []), tb.ones((2,), device="opencl")
    late.note(tb.IndexingError("of another thread"))
    assert late.run_in_python(lambda: "done") == "done"
    with pytest.raises(tb.IndexingError, match="of another thread"):
        x.tolist()
    late.note(MemoryError())
    assert late.run_in_python(x.tolist) == x.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("compare_eager", [True, False])
@pytest.mark.parametrize(
    ("case", "segments"),
    [
        (shown_in_all_ways, 1), (shown_on_something_else, 2), (shown_elsewhere_later, None),
        (fails_before_or_behind, 1), (raises_in_python_behind, None), (others_show_behind, None),
        (cannot_be_shown, None), (divides_by_nothing, None), (file_is_closed, None), (looks_between, None),
        (others_add_between, None), (loops_and_arguments, None), (handled_by_the_function, None),
        (binds_numbers, None), (shows_in_branches, 1), (shows_in_a_loop, 2), (binds_what_is_no_number, None),
        (file_is_closed_before, None), (shows_a_global, 1),
    ],
)  # fmt: skip
def test_what_is_shown_is_that_of_eager_code(case: Any, segments: int | None, compare_eager: bool) -> None:
    wanted, got, called = _runs(case, compare_eager)
    assert [repr(shown) for _, shown in got] == [repr(shown) for _, shown in wanted]
    assert_alike([x for x, _ in got], [x for x, _ in wanted], ROUNDINGS)
    assert segments is None or len(called.segments) == segments, called.reasons


def _runs(case: Any, compare_eager: bool) -> Any:
    runs: list[Any] = []
    for is_compiled in (False, True):
        fn, state = case()
        called = tb.compile(fn, compare_eager=compare_eager) if is_compiled else fn
        call = getattr(fn, "around", lambda f: f)(called)
        runs.append([(_outcome(call, values, k), copy.deepcopy(state())) for k, values in enumerate(INPUTS)])
    return *runs, called


def _outcome(fn: Callable[..., Any], values: list[float], k: int) -> Any:
    try:
        return plain(fn(tb.asarray([*values]), k))
    except (Exception, KeyboardInterrupt) as error:
        frames = traceback.extract_tb(error.__traceback__)
        return type(error), str(error), [f.lineno for f in frames if f.filename in FILES][-1]
