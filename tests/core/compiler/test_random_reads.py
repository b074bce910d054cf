"""Random steps that read numbers, show them, bind them, in branches and not: compiled as eager.

A step is source, written to a file, as a compiled function that breaks is divided by its source.
"""

from __future__ import annotations

import copy
import importlib.util
import random
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tensorbus as tb

from error_bounds import assert_alike

ROUNDINGS = 1024
SEEDS = 6
INPUTS = [[1.0, 0.5], [0.25, 0.125], [3.0, 4.0], [-1.0, 5.0], [0.5, 0.25], [0.125, 2.0]] * 2
"""Some are indices out of range for a table of four."""
HEAD = """
import io, logging
import tensorbus as tb

def make():
    p = tb.nn.Parameter(tb.ones((2,)))
    optimizer = tb.optim.SGD([p], lr=0.125)
    table, turn = tb.asarray([5.0, 6.0, 7.0, 8.0]), [0]
    losses, log, sink, out = [], [], io.StringIO(), io.StringIO()
    logger = logging.getLogger("tensorbus.tests.random_reads")
    logger.handlers, logger.propagate = [logging.StreamHandler(out)], False
    logger.setLevel(logging.INFO)

    class Meter:
        sum, count = 0.0, 0
        def update(self, val, n=1):
            self.sum += val * n
            self.count += n

    class State:
        step, verbose = 0, True

    meter, state, quiet, nothing = Meter(), State(), False, None

    def check(k):
        if k in (5, 8):
            raise ValueError(f"call {k}")

    def report(value):
        if value > 2:
            print("large", value, file=sink)

    def fn(x, k):
        total = 0.0
        optimizer.zero_grad()
        loss = (p * x).sum()
"""
TAIL = """
    def seen():
        shown = sink.closed or sink.getvalue()
        return losses, log, shown, out.getvalue(), vars(meter), state.step, p.tolist()

    return fn, seen
"""
TESTS = (
    "k % 3 == 0", "k % 2 == 0 and k > 0", "not quiet", "state.step % 4 == 0", "state.verbose",
    "meter.count > 3", "logger is not None", "nothing is not None and nothing.x", "k > 4", "nothing",
    "k % 2", "x.shape[0] > 1",
)  # fmt: skip
READS = ("{}.item()", "float({})", "int(({} > 0).sum())", "({} > 0).all().item()", "({} * 2).item()")
SHOWN = (
    "print({0}, k, file=sink)", "print(f'{{{0}:.3f}} of {{k:2d}}', file=sink)", "losses.append({0} * 2 + 1)",
    "losses.append([{0}, {1}])", "meter.update({0}, 2)", "logger.info('%.3f %s', {0}, k)",
    "print('%.1f' % {0}, state.step, file=sink)", "losses.append(-({0}))",
)  # fmt: skip
BOUND = (
    "{2} = {0}", "{2}: float = {0}", "{2} = {0} * 2 + {1}", "{2} = f'{{{0}:.2f}} {{k}}'",
    "{2} = loss.tolist()", "{2} = loss.numpy()", "total += {0}", "{2}, total = {0}, total",
)  # fmt: skip
OTHERS = (
    "state.step += 1", "log.append(k)", "print('plain', k, file=sink)", "check(k)", "report(total)",
    "extra = extra + tb.take(table, tb.astype(x[1:], tb.int64)).sum()", "loss = loss + 0 * extra",
    "if k == 6: sink.close()", "if k == 7: state.verbose = False",
)  # fmt: skip


class Program:
    """The source of a step: the same for the same ``seed``."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers: list[str] = []
        self.names = 0
        self.lines: list[str] = ["        extra = tb.zeros(())"]

    def number(self) -> str:
        if self.numbers and self.random.random() < 0.5:
            return self.random.choice(self.numbers)
        return self.random.choice(READS).format("loss")

    def show(self) -> str:
        return self.random.choice(SHOWN).format(self.number(), self.number())

    def bind(self, indent: str) -> str:
        self.names += 1
        name, form = f"v{self.names}", self.random.choice(BOUND)
        self.lines.append(indent + form.format(self.number(), self.number(), name))
        if "loss" in form or "f'" in form or name not in self.lines[-1]:
            return ""
        return name

    def branches(self, indent: str, depth: int) -> None:
        for word in (
            "if",
            *["elif"] * (self.random.random() < 0.3),
            *["else"] * (self.random.random() < 0.4),
        ):
            test = "" if word == "else" else f" {self.random.choice(TESTS)}"
            self.lines.append(f"{indent}{word}{test}:")
            known, inner = [*self.numbers], indent + "    "
            for _ in range(self.random.randint(1, 2)):
                way = self.random.random()
                if way < 0.2 and depth:
                    self.branches(inner, depth - 1)
                elif way < 0.4 and (name := self.bind(inner)):
                    self.lines.append(f"{inner}losses.append({name})")
                else:
                    self.lines.append(inner + self.random.choice([self.show(), self.show(), "log.append(k)"]))
            self.numbers = known

    def statements(self, count: int) -> None:
        indent = "        "
        for _ in range(count):
            way = self.random.random()
            if way < 0.35:
                self.lines.append(indent + self.show())
            elif way < 0.65:
                name = self.bind(indent)
                self.numbers += [name] * bool(name)
            elif way < 0.85:
                self.branches(indent, 1)
            else:
                self.lines.append(indent + self.random.choice(OTHERS))

    def source(self) -> str:
        self.statements(self.random.randint(2, 5))
        self.lines.append("        loss.backward()")
        self.statements(self.random.randint(0, 2))
        self.lines.append("        optimizer.step()")
        self.statements(self.random.randint(0, 2))
        self.lines.append(
            f"        return {''.join(f'{n}, ' for n in self.numbers)}total, extra, loss.detach()"
        )
        return HEAD + "\n".join(self.lines) + TAIL


def _check(seed: int, device: str, folder: Path) -> None:
    path = folder / f"step{seed}.py"
    path.write_text(Program(seed).source())
    runs = []
    with tb.device(device):
        for is_compiled in (False, True):
            spec: Any = importlib.util.spec_from_file_location(path.stem, path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            fn, seen = module.make()
            called = tb.compile(fn, compare_eager=False) if is_compiled else fn
            runs.append(
                [(_outcome(called, x, k, path), _outcome(_seen, seen, path)) for k, x in enumerate(INPUTS)]
            )
            with suppress(tb.IndexingError):  # of what nobody read
                tb.device(device).synchronize()
    wanted, got = runs
    for k, (a, b) in enumerate(zip(wanted, got, strict=True)):
        assert_alike(b, a, ROUNDINGS, message=f"seed {seed}, call {k} on {device}")


def _seen(seen: Callable[[], Any]) -> Any:
    return copy.deepcopy(seen())


def _outcome(fn: Callable[..., Any], *arguments: Any) -> Any:
    *values, path = arguments
    try:
        return _plain(fn(*[tb.asarray(x) if isinstance(x, list) else x for x in values]))
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        return type(error), str(error), [f.lineno for f in frames if f.filename == str(path)][-1:]


def _plain(x: Any) -> Any:
    if isinstance(x, (tuple, list)):
        return [_plain(part) for part in x]
    if isinstance(x, tb.Tensor):
        return x.tolist()
    return (type(x).__name__, x.tolist()) if type(x).__module__ == "numpy" else x


@pytest.mark.parametrize("device", ["cpu", "opencl", "refdev"])
def test_random_steps_show_and_raise_what_eager_code_does(device: str, tmp_path: Path) -> None:
    for seed in range(SEEDS):
        _check(seed, device, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("device", ["cpu", "opencl", "refdev"])
@pytest.mark.parametrize("first", range(SEEDS, 94, 22))
def test_more_random_steps(first: int, device: str, tmp_path: Path) -> None:
    for seed in range(first, first + 22):
        _check(seed, device, tmp_path)
