"""Steps that show numbers in their middle, or cannot: each with what it has shown, and its state."""

from __future__ import annotations

import io
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import tensorbus as tb

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
        moments = [[plain(x) for x in s.values()] for s in states]
        return state, grads, moments, tb.rand((1,)).tolist()


def plain(x: Any) -> Any:
    if isinstance(x, tuple):
        return [plain(part) for part in x]
    return x.tolist() if isinstance(x, tb.Tensor) else x
