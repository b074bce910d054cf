"""Statements that show numbers before a step is through: one segment, and all is shown as by eager code."""

from __future__ import annotations

import copy
import io
import logging
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import tensorbus as tb
from tensorbus.compiler.replay.late_errors import LateErrors

from error_bounds import assert_alike

Case = tuple[Callable[..., Any], Callable[[], Any]]
INPUTS = [[1.0, 0.5], [0.25, 0.125], [3.0, 4.0], [-1.0, 5.0], [0.5, 0.25], [0.125, 2.0]] * 2
ROUNDINGS = 16
ROUNDINGS_OF_ADAM = 1024


class Meter:
    """An average, as training scripts have it."""

    def __init__(self) -> None:
        self.val = self.sum = self.avg = 0.0
        self.count = 0

    def update(self, val: float, n: int = 1) -> None:
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


class Keeper(list[Any]):
    """A list that does more than a list."""

    def append(self, x: Any) -> None:
        super().append(("kept", x))


class Step:
    """A step of SGD: ``loss_of``, then ``update``, which changes ``p``."""

    def __init__(self) -> None:
        self.p = tb.nn.Parameter(tb.ones((2,)))
        self.optimizer = tb.optim.SGD([self.p], lr=0.125)

    def loss_of(self, x: Any) -> Any:
        self.optimizer.zero_grad()
        return (self.p * x).sum()

    def update(self, loss: Any) -> None:
        loss.backward()
        self.optimizer.step()

    def values(self) -> Any:
        return self.p.tolist()


def shown_in_all_ways() -> Case:
    step, losses, last, sink, meter = Step(), [], deque(maxlen=3), io.StringIO(), Meter()
    logger = logging.getLogger("tensorbus.tests.late_effects")
    logger.handlers, logger.propagate = [logging.StreamHandler(sink)], False
    logger.setLevel(logging.INFO)

    def fn(x, k):
        loss = step.loss_of(x)
        if k % 2 == 0:
            print(k, f"{loss.item():.2f} of {k}", float(loss), file=sink, sep="; ")
        losses.append(loss.item() * 2)
        last.append([loss.item(), (loss * 2).item()])
        meter.update(loss.item(), x.shape[0])
        logger.info("loss %.3f %s", loss.item(), k)
        print("%.1f" % loss.item(), "{:.2e}".format(loss.item()), x.tolist(), file=sink)  # noqa: UP031, UP032
        loss.backward()
        step.optimizer.step()
        return loss.detach()

    return fn, lambda: (losses, [*last], sink.getvalue(), vars(meter), step.values())


def shown_on_something_else() -> Case:
    step, log = Step(), Keeper()

    def fn(x, k):
        loss = step.loss_of(x)
        log.append(loss.item())
        step.update(loss)
        log.append(k)
        return loss.detach()

    return fn, lambda: (log, step.values())


def shown_elsewhere_later() -> Case:
    step, sink = Step(), io.StringIO()

    class Stream:
        text = ""

        def write(self, text: str) -> None:
            self.text += text + repr(step.values())

    stream = Stream()
    target: Any = sink

    def fn(x, k):
        loss = step.loss_of(x)
        print(loss.item(), file=target)
        step.update(loss)
        return loss.detach()

    def call(x, k):
        nonlocal target
        target = stream if k > 4 else sink
        return compiled(x, k)

    compiled = fn

    def with_compiled(f: Any) -> Any:
        nonlocal compiled
        compiled = f
        return call

    fn.around = with_compiled  # type: ignore[attr-defined]
    return fn, lambda: (sink.getvalue(), stream.text, step.values())


def fails_before_or_behind() -> Case:
    step, losses, table = Step(), [], tb.asarray([5.0, 6.0, 7.0, 8.0])

    def fn(x, k):
        step.optimizer.zero_grad()
        loss = (step.p * x).sum() + tb.take(table, tb.astype(x[:1], tb.int64)).sum()
        losses.append(loss.item())
        loss.backward()
        y = tb.take(table, tb.astype(x[1:], tb.int64))
        step.optimizer.step()
        return y * 2

    return fn, lambda: (losses, step.values())


def raises_in_python_behind() -> Case:
    step, losses, log = Step(), [], []

    def check(k: int) -> None:
        if k in (5, 7):
            raise ValueError(f"call {k}")

    def fn(x, k):
        loss = step.loss_of(x)
        losses.append(loss.item())
        log.append(k)
        loss.backward()
        check(k)
        step.optimizer.step()
        return loss.detach()

    return fn, lambda: (losses, log, step.values())


def others_show_behind() -> Case:
    step, sink, calls = Step(), io.StringIO(), []

    def show(x: Any) -> Any:
        calls.append(1)
        if len(calls) in (4, 5, 9):
            print("inside", x.item() + 1, file=sink)
        return x * 2

    def fn(x, k):
        loss = step.loss_of(x)
        print("first", loss.item(), file=sink)
        y = show(loss.detach())
        print("then", y.item(), file=sink)
        step.update(loss)
        return y

    return fn, lambda: (sink.getvalue(), step.values())


def cannot_be_shown() -> Case:
    step, sink, meter = Step(), io.StringIO(), Meter()

    def fn(x, k):
        loss = step.loss_of(x)
        if k == 6:
            meter.count = -2
        meter.update(loss.item(), 2 if k != 8 else 0)
        print(f"{loss.item():d}" if k == 9 else loss.item(), file=sink)
        step.update(loss)
        return loss.detach()

    return fn, lambda: (sink.getvalue(), vars(meter), step.values())


def divides_by_nothing() -> Case:
    step, meter = Step(), Meter()

    def fn(x, k):
        loss = step.loss_of(x)
        meter.update(loss.item(), k - 3)
        step.update(loss)
        return loss.detach()

    return fn, lambda: (vars(meter), step.values())


def file_is_closed() -> Case:
    step, sinks = Step(), [io.StringIO(), io.StringIO()]
    sink = sinks[0]

    def fn(x, k):
        loss = step.loss_of(x)
        print(loss.item(), file=sink)
        step.update(loss)
        if k == 6:
            sink.close()
        return loss.detach()

    return fn, lambda: (sink.closed, step.values())


def looks_between() -> Case:
    step, losses = Step(), []
    same = losses

    def fn(x, k):
        loss = step.loss_of(x)
        losses.append(loss.item())
        scale = len(losses) + len(same)
        (loss * scale).backward()
        same.append(k)
        step.optimizer.step()
        return loss.detach()

    return fn, lambda: ([losses.pop() for _ in losses[2:]], step.values())


def others_add_between() -> Case:
    step, losses, meter = Step(), [], Meter()

    def update(loss: Any) -> None:
        losses.append("updated")
        step.update(loss * (1.0 + meter.count % 2))

    def fn(x, k):
        loss = step.loss_of(x)
        losses.append(loss.item())
        meter.update(loss.item())
        update(loss)
        return loss.detach()

    return fn, lambda: ([losses.pop() for _ in losses[3:]], vars(meter), step.values())


def loops_and_arguments() -> Case:
    step, losses = Step(), []

    def inner(x, *rest, k, scale=2.0, **more):
        total = x * scale
        for part in rest:
            loss = step.loss_of(part * total)
            losses.append(loss.item())
            print(k, more, len(losses) > 0, file=None if k < 0 else sink)
            step.update(loss)
            total = total + loss.detach()
        return total

    sink = io.StringIO()

    def fn(x, k):
        return inner(x, x, x + 1, k=k, word="more")

    return fn, lambda: (losses, sink.getvalue(), step.values())


def handled_by_the_function() -> Case:
    step, losses = Step(), []

    def fn(x, k):
        loss = step.loss_of(x)
        try:
            losses.append(loss.item())
            step.update(loss)
            if k % 3 == 0:
                raise KeyError(k)
        except KeyError:
            losses.append("handled")
        return loss.detach()

    return fn, lambda: (losses, step.values())


class Model(Step):
    """A step with all kinds of state: of the generator, of a buffer, of Adam; gradients stay until the next.

    ``bad`` is of the caller, who looks up what is not there.
    """

    def __init__(self) -> None:
        tb.manual_seed(0)
        self.table = tb.asarray([5.0, 6.0, 7.0, 8.0])
        self.norm, self.dropout = tb.nn.BatchNorm1d(2), tb.nn.Dropout(0.5)
        self.embedding = tb.nn.Embedding(4, 2)
        self.model = tb.nn.ModuleList([self.norm, self.embedding])
        self.optimizer = tb.optim.Adam(self.model.parameters(), lr=0.125)

    def loss_of(self, x: Any) -> Any:
        rows = self.embedding(tb.astype(tb.stack([x[0], x[0] * 0, x[0] * 0 + 1]), tb.int64))
        seen = self.dropout(self.norm(tb.stack([x, x * 2, x + 1])))
        return (seen * x).sum() + (rows * seen).sum()

    def update(self, loss: Any) -> None:
        self.optimizer.zero_grad()
        super().update(loss)

    def values(self) -> Any:
        state = [p.tolist() for p in self.model.state_dict().values()]
        grads = [None if p.grad is None else p.grad.tolist() for p in self.model.parameters()]
        states = self.optimizer.state_dict()["state"].values()
        moments = [[_plain(x) for x in s.values()] for s in states]
        return state, grads, moments, tb.rand((1,)).tolist()


def _plain(x: Any) -> Any:
    if isinstance(x, tuple):
        return [_plain(part) for part in x]
    return x.tolist() if isinstance(x, tb.Tensor) else x


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
        return _plain(fn(tb.asarray([*values]), k))
    except (Exception, KeyboardInterrupt) as error:
        frames = traceback.extract_tb(error.__traceback__)
        return type(error), str(error), [f.lineno for f in frames if f.filename == __file__][-1]
