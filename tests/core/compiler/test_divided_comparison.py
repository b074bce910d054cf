"""A divided function is compared with Python's run as a whole, by a scripted clock: the faster way is kept.

Whatever way calls go, each happens once: its effects, results, gradients and errors are those of eager code.
"""

from __future__ import annotations

import gc
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorbus as tb
from tensorbus.compiler import SlowerThanEagerWarning, divided_comparison
from tensorbus.compiler.replay import eager_comparison
from tensorbus.devices.device import Device

MS = 1e-3
FASTER, SLOWER = (2 * MS, 3 * MS), (3 * MS, 2 * MS)
"""Seconds of divided calls, and of Python's."""
LIMIT = 150
"""The number of calls in which all is decided."""


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    gc.collect()
    assert not tb.autograd.engine.pass_watchers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowerThanEagerWarning)
        yield
    assert not eager_comparison.eager_threads


class Clock:
    """A clock that moves, as was scripted, when a measured call of a segment or of a whole function ends."""

    def __init__(self, whole: tuple[float, float], segment: tuple[float, float]) -> None:
        self.whole, self.segment, self.passes = whole, segment, (0.0, 0.0)
        self.now, self.ended = 0.0, 0

    def __call__(self) -> float:
        frame = sys._getframe(1)
        name = frame.f_code.co_name
        if name in ("finish", "end"):
            comparison = frame.f_locals["self"]
            seconds = self.whole if comparison._arguments_vary else self.segment
            self.now += (self.passes if name == "end" else seconds)[comparison._is_eager_turn()]
            self.ended += 1
        return self.now


def scripted(
    monkeypatch: pytest.MonkeyPatch, whole: tuple[float, float], segment: tuple[float, float] = FASTER
) -> Clock:
    clock = Clock(whole, segment)
    monkeypatch.setattr(eager_comparison, "clock", clock)
    return clock


def choice(step: Any) -> Any:
    """Return what a compiled function, or module, has been compared by."""
    return (type(step)._compiled if isinstance(step, tb.nn.Module) else step).choice


def verdict(step: Any, *args: Any, **kwargs: Any) -> bool | None:
    """Return whether Python takes calls like this one; None where that is not known."""
    account = choice(step).account(args, kwargs)
    return None if account is None else account[0]


def branching(seen: list[float]) -> Callable[..., Any]:
    def step(x: tb.Tensor, up: bool = True) -> tb.Tensor:
        y = (x * 2).sum()
        value = y.item()
        seen.append(value)
        if value >= 0:
            y = y + x
        return y.sum() if up else -y.sum()

    return step


def results_of(step: Callable[..., Any], calls: int = LIMIT) -> list[float]:
    return [step(tb.full((2,), float(k % 7 - 2))).item() for k in range(calls)]


@pytest.mark.parametrize(
    ("whole", "segment", "wins"),
    [
        pytest.param(SLOWER, FASTER, True, id="segments-win-and-the-whole-loses"),
        pytest.param(SLOWER, SLOWER, True, id="all-lose"),
        pytest.param(FASTER, FASTER, False, id="all-win"),
        pytest.param(FASTER, SLOWER, False, id="segments-lose-and-the-whole-wins"),
        pytest.param((2 * MS, 1.95 * MS), FASTER, False, id="not-worth-it"),
        pytest.param((1 * MS, 30 * MS), FASTER, False, id="far-faster"),
        pytest.param((20e-6, 10e-6), (10e-6, 20e-6), True, id="short"),
    ],
)
def test_the_faster_way_is_kept_and_explained(
    monkeypatch: pytest.MonkeyPatch, whole: tuple[float, float], segment: tuple[float, float], wins: bool
) -> None:
    clock = scripted(monkeypatch, whole, segment)
    seen: list[float] = []
    step = tb.compile(branching(seen), compare_eager=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SlowerThanEagerWarning)
        got = results_of(step)
    wanted: list[float] = []
    assert got == results_of(branching(wanted))
    assert seen == wanted  # each call happened once
    x = tb.ones((2,))
    assert verdict(step, x) is wins
    messages = [str(w.message) for w in caught]
    assert len(messages) == (max(*whole, *segment) > MS / 2 and (wins or segment is SLOWER))
    if wins and segment is FASTER and messages:
        assert "value = y.item()" in messages[0]
        assert "It is divided at" in messages[0]
        assert "a call takes 3000 us compiled and 2000 us in Python, so Python runs it" in messages[0]
        assert caught[0].filename == __file__
    waits: list[Device] = []
    monkeypatch.setattr(Device, "synchronize", lambda device: waits.append(device))
    ended, entries = clock.ended, [len(s.replays) for s in step.segments]
    results_of(step, 10)
    assert (clock.ended, waits) == (ended, [])  # nothing is measured, and nobody waits, from then on
    assert [len(s.replays) for s in step.segments] == entries
    explanation = tb.compile.explain(step)(x)
    assert (f"it is slower in {len(entries)} segment(s)" in str(explanation)) is wins
    assert (explanation.segments == 0) is wins
    assert any(("its segments are kept" in note) is not wins for note in explanation.notes)


def test_what_lost_is_run_from_the_original_source(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, SLOWER)
    step = tb.compile(branching([]), compare_eager=True)
    results_of(step)
    called: list[Any] = []
    monkeypatch.setattr(type(step._segmentation), "callee", lambda *call: called.append(call))
    assert results_of(step, 7) == results_of(branching([]), 7)
    assert not called


@pytest.mark.parametrize(
    ("change", "others"),
    [
        pytest.param(lambda step, x: step(x, False), 1, id="flag"),
        pytest.param(lambda step, x: step(x, up=False), 1, id="named-flag"),
        pytest.param(lambda step, x: step(tb.ones((5,))), 1, id="length"),
        pytest.param(lambda step, x: step(tb.ones((2,), dtype=tb.int32)), 1, id="dtype"),
        pytest.param(lambda step, x: tb.no_grad()(step)(x), 1, id="no_grad"),
        pytest.param(lambda step, x: step(x.clone().requires_grad_()), 1, id="requires-grad"),
        pytest.param(lambda step, x: step(tb.zeros((2,))), 0, id="other-numbers"),
    ],
)
def test_other_calls_are_measured_for_themselves(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Any, tb.Tensor], Any], others: int
) -> None:
    clock = scripted(monkeypatch, SLOWER)
    step = tb.compile(branching([]), compare_eager=True)
    x = tb.ones((2,))
    for _ in range(LIMIT):
        step(x)
    assert verdict(step, x) is True
    clock.whole = FASTER
    for _ in range(LIMIT):
        change(step, x)
    verdicts = [alike.comparison.eager_wins for alike in choice(step).divided._kinds.values()]
    assert verdicts == [True, False][: 1 + others]


@pytest.mark.parametrize("where", ["global", "closure", "method", "module"])
def test_a_module_that_trains_is_another_case(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    clock = scripted(monkeypatch, SLOWER)

    class Net(tb.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = tb.nn.Dropout(0.5)

        def forward(self, x: tb.Tensor) -> float:
            y = self.drop(x).sum()
            return (y * 2).item() if y.item() > 0 else -1.0

        run = forward

    net = Net()
    namespace: dict[str, Any] = {"net": net}
    source = "def step(x):\n    y = net(x)\n    return y"
    exec(source, namespace)

    def closing(x: tb.Tensor) -> Any:
        return net(x)

    functions = {"global": namespace["step"], "closure": closing, "method": net.run, "module": net}
    comparison = divided_comparison.DividedComparison(functions[where], lambda _: None)
    x = tb.ones((4,))
    kinds = []
    for training in (True, False, True):
        net.train(training)
        kinds.append(comparison._kind((x,), {}))
    assert kinds[0] == kinds[2] != kinds[1]
    if where != "global":  # which has no source to divide
        step = tb.compile(functions[where], compare_eager=True)
        net.eval()
        assert [step(x) for _ in range(LIMIT)] == [8.0] * LIMIT
        assert verdict(step, x) is True
        clock.whole = FASTER
        net.train()
        assert {step(x) for _ in range(LIMIT)} <= {-1.0, 0.0, 4.0, 8.0, 12.0, 16.0}
        assert verdict(step, x) is False


@pytest.mark.parametrize("whole", [FASTER, SLOWER])
def test_of_many_calls_that_go_the_same_way_some_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, whole: tuple[float, float]
) -> None:
    scripted(monkeypatch, whole)
    seen: list[float] = []
    step = tb.compile(branching(seen), compare_eager=True)
    results_of(step, 2 * LIMIT)
    looked: list[Any] = []
    alike = divided_comparison.DividedComparison._alike

    def counted(comparison: Any, *call: Any, **named: Any) -> Any:
        looked.append(call)
        return alike(comparison, *call, **named)

    monkeypatch.setattr(divided_comparison.DividedComparison, "_alike", counted)
    every = divided_comparison.LOOK_EVERY
    seen.clear()
    wanted: list[float] = []
    assert results_of(step, 10 * every) == results_of(branching(wanted), 10 * every)
    assert seen == wanted
    assert len(looked) == 10
    looked.clear()
    for _ in range(3 * every):  # one that is new is found soon, and then all are looked at
        step(tb.ones((5,)))
    assert 2 * every < len(looked) <= 3 * every


def test_lengths_that_vary_are_compared_by_magnitude(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, SLOWER)
    step = tb.compile(branching([]), compare_eager=True)
    for n in range(1, 2 * LIMIT):
        assert step(tb.ones((n % 40 + 1,))).item() == (n % 40 + 1) * (2 * (n % 40 + 1) + 1)
    kinds = choice(step).divided._kinds
    assert len(kinds) == 6  # 1 to 40 have up to six bits
    assert verdict(step, tb.ones((33,))) is True
    assert verdict(step, tb.ones((39,))) is True


def test_too_many_kinds_stay_in_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divided_comparison, "MAX_EXACT", 1)
    monkeypatch.setattr(divided_comparison, "MAX_ALIKE", 2)
    scripted(monkeypatch, SLOWER)
    step = tb.compile(branching([]), compare_eager=True, dynamic=True)
    for n in (1, 2, 4, 8, 16) * 5:
        assert step(tb.ones((n,))).item() == n * (2 * n + 1)
    assert len(choice(step).divided._kinds) == 2
    assert verdict(step, tb.ones((16,))) is None


def test_calls_that_capture_something_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, FASTER)
    step = tb.compile(branching([]), compare_eager=True)
    x = tb.ones((2,))
    for _ in range(LIMIT):
        step(x)
        known = [alike.comparison for alike in choice(step).divided._kinds.values()] if step.segments else []
        if known and known[0] is not None and known[0]._turn == 4:
            break
    (comparison,) = known
    turns = []
    for value in (-1.0, 1.0):  # another branch, whose segment is captured now
        step(tb.full((2,), value))
        turns.append((comparison._turn, comparison.is_steady))
    assert turns[0] in {(4, False), (5, True)}  # Python's turn captures nothing
    for _ in range(LIMIT):
        step(tb.full((2,), -1.0))
    assert comparison.eager_wins is False


def test_what_never_settles_is_compared_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, SLOWER)
    monkeypatch.setattr(divided_comparison, "PATIENCE", 10)
    step = tb.compile(branching([]), compare_eager=True)
    work = divided_comparison.one_time_work
    for _ in range(LIMIT):
        work.note()
        step(tb.ones((2,)))
        monkeypatch.setattr(work, "count", iter(range(1 << 20)).__next__)  # grows whenever it is asked for
    assert verdict(step, tb.ones((2,))) is True


@pytest.mark.parametrize("whole", [FASTER, SLOWER])
def test_divided_functions_within_others_and_recursion(
    monkeypatch: pytest.MonkeyPatch, whole: tuple[float, float]
) -> None:
    scripted(monkeypatch, whole)

    def program(wrap: Callable[[Any], Any]) -> tuple[Callable[..., Any], list[Any]]:
        log: list[Any] = []

        @wrap
        def inner(x: tb.Tensor) -> tb.Tensor:
            value = x.sum().item()
            log.append(("inner", value))
            return x * 2 if value > 0 else x - 1

        @wrap
        def countdown(x: tb.Tensor, n: int) -> tb.Tensor:
            log.append(("left", n, (x + n).sum().item()))
            return countdown(x + 1, n - 1) if n else inner(x)

        return countdown, log

    countdown, log = program(lambda f: tb.compile(f, compare_eager=True))
    plain, wanted = program(lambda f: f)
    for k in range(LIMIT):
        x = tb.full((3,), float(k % 4 - 2))
        assert countdown(x, 2).tolist() == plain(x, 2).tolist()
    assert log == wanted
    assert verdict(countdown, x, 2) is (whole is SLOWER)


def test_in_pythons_turn_calls_of_the_function_itself_are_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, int, str]] = []
    comparison = divided_comparison.DividedComparison(
        lambda n: (seen.append((bool(eager_comparison.eager_threads), n, "python")), nested(n)),
        lambda _: None,
    )

    def divided(n: int) -> Any:
        seen.append((bool(eager_comparison.eager_threads), n, "divided"))
        return nested(n)

    def nested(n: int) -> Any:
        return comparison.run(lambda _: divided, (n - 1,), {}) if n else None

    scripted(monkeypatch, SLOWER)
    for _ in range(LIMIT):
        comparison.run(lambda _: divided, (2,), {})
    assert {way for measured, _, way in seen if measured} == {"python"}
    assert {n for measured, n, _ in seen if measured} == {0, 1, 2}


@pytest.mark.parametrize("whole", [FASTER, SLOWER])
def test_errors_are_those_of_eager_code_in_either_turn(
    monkeypatch: pytest.MonkeyPatch, whole: tuple[float, float]
) -> None:
    scripted(monkeypatch, whole)

    def outcomes(wrap: Callable[[Any], Any]) -> tuple[list[Any], Any]:
        log: list[Any] = []

        @wrap
        def failing(x: tb.Tensor) -> tb.Tensor:
            y = x * 3
            value = y.sum().item()
            log.append(value)
            if value < 0:
                raise ValueError(f"got {value}")
            return y + 1

        for k in range(2 * LIMIT):
            try:
                log.append(failing(tb.full((2,), float(k % 3 - 1))).tolist())
            except ValueError as error:
                frames = traceback.extract_tb(error.__traceback__)
                log.append((str(error), [f.lineno for f in frames if f.filename == __file__][-1]))
        return log, failing

    got, step = outcomes(lambda f: tb.compile(f, compare_eager=True))
    wanted, _ = outcomes(lambda f: f)
    assert got == wanted
    assert verdict(step, tb.ones((2,))) is (whole is SLOWER)


def test_threads_call_it_while_one_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, SLOWER)
    step = tb.compile(branching([]), compare_eager=True)
    results: dict[int, list[float]] = {}

    def work(k: int) -> None:
        results[k] = results_of(step)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    wanted = results_of(branching([]))
    assert results == dict.fromkeys(range(4), wanted)
    results_of(step)
    assert verdict(step, tb.ones((2,))) is True


def test_measured_calls_wait_for_the_devices_of_the_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, SLOWER)
    step = tb.compile(branching([]), compare_eager=True)
    x = tb.ones((2,))
    while choice(step).divided is None or not any(
        alike.comparison for alike in choice(step).divided._kinds.values()
    ):
        step(x)
    waits: list[Device] = []
    monkeypatch.setattr(Device, "synchronize", lambda device: waits.append(device))
    step(x)
    assert waits == [x.device] * 2  # before the call and behind it


@pytest.mark.parametrize(
    ("passes", "wins"),
    [
        pytest.param((0.0, 0.0), True, id="free"),
        pytest.param((2 * MS, 9 * MS), False, id="costlier-in-python"),
        pytest.param(None, True, id="none"),
    ],
)
def test_backward_behind_the_call_counts(
    monkeypatch: pytest.MonkeyPatch, passes: tuple[float, float] | None, wins: bool
) -> None:
    clock = scripted(monkeypatch, SLOWER)
    clock.passes = passes or (0.0, 0.0)
    step = tb.compile(branching([]), compare_eager=True)
    x = tb.ones((2,)).requires_grad_()
    for _ in range(2 * LIMIT):
        x.grad = None
        y = step(x)
        if passes is not None:
            y.backward()
            assert x.grad is not None
            assert x.grad.tolist() == [5.0, 5.0]
    assert verdict(step, x) is wins


def test_it_is_switched_off_and_left_where_python_may_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, SLOWER)
    uncompared = tb.compile(branching([]), compare_eager=False)
    assert results_of(uncompared) == results_of(branching([]))
    assert choice(uncompared).divided is None
    assert len(uncompared.segments) > 1

    @tb.library.custom_op("t_divided::twice")
    def twice(x: tb.Tensor) -> tb.Tensor:
        return x * 2

    @twice.register_fake
    def _(x: tb.Tensor) -> tb.Tensor:
        return tb.empty(x.shape, dtype=x.dtype)

    try:

        def talking(x: tb.Tensor) -> tb.Tensor:
            y = twice(x).sum()
            return y + 1 if y.item() > 0 else y - 1

        step = tb.compile(talking, compare_eager=True)
        for _ in range(LIMIT):
            assert step(tb.ones((2,))).item() == 5.0
        assert choice(step).divided.keeps_segments
        assert verdict(step, tb.ones((2,))) is None
    finally:
        tb.library.unregister("t_divided::twice")


def test_transforms_take_divided_functions_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, SLOWER)

    def branch(x: tb.Tensor, n: tb.Tensor) -> tb.Tensor:
        m = n * 2
        return (x * 2).sum() if m.item() > 0 else x.sum()

    step = tb.compile(branch, compare_eager=True)
    n = tb.ones(())
    for _ in range(5):
        step(tb.ones((3,)), n)
    before = len(choice(step).divided._kinds)
    for _ in range(5):
        assert tb.func.vmap(lambda x: step(x, n))(tb.ones((2, 3))).tolist() == [6.0, 6.0]
    assert len(choice(step).divided._kinds) == before
