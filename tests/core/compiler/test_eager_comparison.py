"""A compiled function that loses to Python notices, says so once, and is left to it: by a scripted clock."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus.compiler import CompiledFunction, SlowerThanEagerWarning
from tensorbus.compiler.replay import eager_comparison
from tensorbus.compiler.replay.cache_entry import GUARD_MISS, CacheEntry
from tensorbus.compiler.replay.eager_comparison import IN_DOUBT, PAIRS
from tensorbus.devices.device import Device

MS = 1e-3


@pytest.fixture(autouse=True)
def _alone() -> None:
    """Let no comparison of an earlier test wait for a backward pass: it would look at the clock."""
    gc.collect()
    assert not tb.autograd.engine.pass_watchers


class Clock:
    """A clock that moves while a call is measured, by ``seconds(is_eager)``, and while a backward pass is."""

    def __init__(
        self, seconds: Callable[[bool], float], passes: Callable[[bool], float] | None = None
    ) -> None:
        self._spans = {"finish": seconds, "end": passes or seconds}
        self._now, self.calls = 0.0, 0

    def __call__(self) -> float:
        asking = sys._getframe(1)
        if span := self._spans.get(asking.f_code.co_name):
            self._now += span(asking.f_locals["self"]._is_eager_turn())
            self.calls += 1
        return self._now


def clock(monkeypatch: pytest.MonkeyPatch, *spans: Callable[[bool], float]) -> Clock:
    clock = Clock(*spans)
    monkeypatch.setattr(eager_comparison, "clock", clock)
    return clock


def called_until_decided(step: Any, *args: Any, limit: int = 60) -> tuple[int, list[warnings.WarningMessage]]:
    """Call a compiled function until its first entry knows who wins; return how often, and what it said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for count in range(limit):
            step(*args)
            entry = step.replays[-1]
            if entry.comparison is not None and entry.comparison.eager_wins is not None:
                return count, caught
    raise AssertionError("nothing was decided")


@pytest.mark.parametrize(
    ("compiled", "eager", "wins", "measured"),
    [
        pytest.param(10 * MS, 300 * MS, False, 3, id="far-faster"),
        pytest.param(1 * MS, 30 * MS, False, 5, id="far-faster-and-short"),
        pytest.param(2 * MS, 5 * MS, False, 5, id="clearly-faster"),
        pytest.param(2 * MS, 2.2 * MS, False, 9, id="a-little-faster"),
        pytest.param(2 * MS, 1.95 * MS, False, 3 + 2 * PAIRS, id="not-worth-it"),
        pytest.param(2 * MS, 1.5 * MS, True, 3 + 2 * PAIRS, id="slower"),
        pytest.param(20e-6, 10e-6, True, 33, id="slower-and-short"),
    ],
)
def test_the_faster_way_is_kept(
    monkeypatch: pytest.MonkeyPatch, compiled: float, eager: float, wins: bool, measured: int
) -> None:
    times = clock(monkeypatch, lambda is_eager: eager if is_eager else compiled)
    ran = []

    @tb.compile(compare_eager=True)
    def step(x: tb.Tensor) -> tb.Tensor:
        ran.append(x)
        return (x * 2).sum()

    x = tb.ones((3,))
    _, message = called_until_decided(step, x)
    (entry,) = step.replays
    assert entry.comparison.eager_wins is wins
    assert times.calls == measured
    messages = [w for w in message if w.category is SlowerThanEagerWarning]
    assert len(messages) == (wins and compiled >= MS)
    if messages:
        assert "return (x * 2).sum()" in str(messages[0].message)
        assert messages[0].filename == __file__
    waits: list[Device] = []
    monkeypatch.setattr(Device, "synchronize", waits.append)
    before = len(ran)
    assert step(x).item() == 6.0
    assert times.calls == measured  # nothing is measured, and nobody waits, from then on
    assert not waits
    assert len(ran) == before + 1  # the effect of either way
    assert (entry.run is entry.scope["replay"]) is not wins
    text = str(tb.compile.explain(step)(x))
    assert ("it is slower as a program" in text) is wins
    assert ("us in Python: Python runs it" in text) is wins


@pytest.mark.parametrize("interrupted", [{0}, {1}, {2, 3}, {1, 2, 3}])
def test_calls_that_waited_for_the_processor_do_not_decide(
    monkeypatch: pytest.MonkeyPatch, interrupted: set[int]
) -> None:
    calls = iter(range(100))

    def seconds(is_eager: bool) -> float:
        return (40 * MS if next(calls) in interrupted else 1 * MS) if is_eager else 2 * MS

    clock(monkeypatch, seconds)
    step = tb.compile(lambda x: (x * 2).sum(), compare_eager=True)
    called_until_decided(step, tb.ones((3,)))
    (entry,) = step.replays
    assert entry.comparison.eager_wins is True


def test_another_guard_set_is_measured_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, lambda is_eager: 1 * MS if is_eager else 2 * MS)
    model = tb.nn.Sequential(tb.nn.Linear(3, 3), tb.nn.Dropout(0.5))
    model.requires_grad_(False)
    step = tb.compile(lambda x: model(x) + 1, compare_eager=True, dynamic=False)
    short, long = tb.ones((2, 3)), tb.ones((5, 3))
    called_until_decided(step, short)
    for x, change, count in ((long, None, 2), (short, model.eval, 3), (short, model.train, 3)):
        if change is not None:
            change()
        step(x)
        assert len(step.replays) == count  # another shape, another flag; and back
    verdicts = [entry.comparison.eager_wins for entry in step.replays]
    assert verdicts == [None, None, True]


def test_calls_of_another_guard_set_are_told_by_generated_code(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, lambda is_eager: 1 * MS)
    step = tb.compile(lambda x: x + 1, compare_eager=True, dynamic=False)
    x, other = tb.ones((2,)), tb.ones((3,))
    asked = []
    first_failing_guard = CacheEntry.first_failing_guard

    def counted(entry: CacheEntry, *call: Any) -> Any:
        asked.append(call)
        return first_failing_guard(entry, *call)

    monkeypatch.setattr(CacheEntry, "first_failing_guard", counted)
    for turn in range(12):  # turns of the program and of Python, before and after the warm-up
        step(x)
        (entry,) = step.replays
        asked.clear()
        assert entry.run((other,), {}) is GUARD_MISS, turn
        assert not asked, turn


def test_training_that_is_left_to_python_checks_its_guards_by_generated_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each step moves the mutation counter, so that all guards are checked at the next."""
    clock(monkeypatch, lambda is_eager: (1 if is_eager else 2) * MS)
    model = tb.nn.Sequential(tb.nn.Linear(3, 3), tb.nn.Dropout(0.0))
    optimizer = tb.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @tb.compile(compare_eager=True)
    def step(x: tb.Tensor) -> tb.Tensor:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    asked: list[Any] = []
    monkeypatch.setattr(CacheEntry, "first_failing_guard", lambda *call: asked.append(call))
    called_until_decided(step, tb.ones((2, 3)))
    for _ in range(3):
        step(tb.ones((2, 3)))
    assert step.replays[0].comparison.eager_wins
    assert not asked
    model.eval()
    monkeypatch.undo()
    step(tb.ones((2, 3)))
    assert [entry.comparison.eager_wins for entry in step.replays] == [None, True]


@pytest.mark.parametrize(("back", "wins"), [(1 * MS, True), (9 * MS, False)])
def test_backward_counts_with_the_call_before(
    monkeypatch: pytest.MonkeyPatch, back: float, wins: bool
) -> None:
    clock(
        monkeypatch,
        lambda is_eager: (1 if is_eager else 2) * MS,
        lambda is_eager: back if is_eager else 2 * MS,
    )
    step = tb.compile(lambda x, y: (x * y).sum(), compare_eager=True)
    x, y = tb.ones((3,)).requires_grad_(), tb.asarray([1.0, 2.0, 3.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowerThanEagerWarning)
        for _ in range(40):
            x.grad = None
            step(x, y).backward()
            assert x.grad is not None
            assert x.grad.tolist() == [1.0, 2.0, 3.0]
    assert step.replays[0].comparison.eager_wins is wins
    assert not tb.autograd.engine.pass_watchers


def test_a_backward_pass_that_is_captured_is_not_measured() -> None:
    """Its device would be waited for amid the capture, which takes all that runs for the function's."""
    forward = tb.compile(lambda x: (x * 2).sum(), compare_eager=True)
    x = tb.ones((8,)).requires_grad_()
    while not tb.autograd.engine.pass_watchers:
        forward(x).backward()

    @tb.compile(compare_eager=False)
    def step(x):
        (x * x).sum().backward()
        return x.grad

    y = tb.ones((8,)).requires_grad_()
    for expected in (2.0, 4.0):
        assert step(y).tolist() == [expected] * 8
    assert (step.reasons, step.breaks) == ([], [])
    assert len(step.replays) == 2  # one without a gradient before it
    assert tb.autograd.engine.pass_watchers


def test_a_device_that_is_gone_is_not_the_concern_of_other_backward_passes() -> None:
    comparison = eager_comparison.EagerComparison([Device("gone")], True, lambda _: None)
    watch = comparison._watch_pass
    tb.autograd.engine.pass_watchers.append(lambda: watch)
    try:
        x = tb.ones(3, requires_grad=True)
        (x * 2).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [2, 2, 2]
    finally:
        tb.autograd.engine.pass_watchers.pop()


def test_segments_are_compared_each(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, lambda is_eager: 1 * MS if is_eager else 2 * MS)
    seen = []

    @tb.compile(compare_eager=True)
    def step(x: tb.Tensor) -> tb.Tensor:
        y = (x * 2).sum()
        value = y.item()
        seen.append(value)
        if value >= 0:
            y = y + x
        return y

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SlowerThanEagerWarning)
        for k in range(60):
            assert step(tb.full((2,), float(k))).tolist() == [5.0 * k] * 2
    assert seen == [4.0 * k for k in range(60)]
    assert len(caught) == 1
    assert [s.replays[0].comparison.eager_wins for s in step.segments if s.replays] == [True, True]


@pytest.mark.parametrize(("arguments_vary", "wins"), [(True, True), (False, False)])
def test_calls_that_differ_are_compared_by_all_pairs(
    monkeypatch: pytest.MonkeyPatch, arguments_vary: bool, wins: bool
) -> None:
    """Three pairs in a row may have favoured one way because the other had more to do."""
    turns: list[bool] = []

    def seconds(is_eager: bool) -> float:
        turns.append(is_eager)
        return (2 if not is_eager else 3 if len(turns) <= 9 else 1) * MS

    clock(monkeypatch, seconds)
    decisions: list[bool] = []
    comparison = eager_comparison.EagerComparison([], False, decisions.append, arguments_vary=arguments_vary)
    for _ in range(3 + 2 * PAIRS):
        comparison.run(lambda: None, lambda: None)
    assert decisions == [wins]


@pytest.mark.parametrize(
    ("stalled", "wins", "pairs"),
    [
        pytest.param(set(), True, PAIRS, id="quiet"),
        pytest.param({2, 3, 5, 6}, True, PAIRS + 2, id="python-stalled-at-first"),
        pytest.param({2, 3, *range(5, 1000)}, False, PAIRS, id="python-is-slower"),
        pytest.param({*range(2, 1000, 2)}, False, IN_DOUBT * PAIRS, id="doubt-to-the-end"),
    ],
)
def test_calls_that_vary_are_measured_until_there_is_no_doubt(
    monkeypatch: pytest.MonkeyPatch, stalled: set[int], wins: bool, pairs: int
) -> None:
    """Most of the first calls of Python's wait for the processor: their median says otherwise."""
    turns = {True: 0, False: 0}

    def seconds(is_eager: bool) -> float:
        turns[is_eager] += 1
        return (2 if not is_eager else 3 if turns[True] in stalled else 1) * MS

    clock(monkeypatch, seconds)
    decisions: list[bool] = []
    comparison = eager_comparison.EagerComparison([], False, decisions.append, arguments_vary=True)
    while not decisions:
        comparison.run(lambda: None, lambda: None)
    assert decisions == [wins]
    assert sum(turns.values()) == 3 + 2 * pairs


def test_what_python_runs_on_a_tracer_is_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, lambda is_eager: 1 * MS if is_eager else 2 * MS)
    namespace: dict[str, Any] = {}
    exec("def step(x):\n    return x + 1 if x.sum() > 0 else x - 1", namespace)  # without a source to divide
    step = tb.compile(namespace["step"], compare_eager=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SlowerThanEagerWarning)
        for _ in range(80):
            assert step(tb.ones((2,))).tolist() == [2.0, 2.0]
    assert len(caught) == 1
    assert "us in Python: Python runs it" in str(tb.compile.explain(step)(tb.ones((2,))))


EVERY_THIRD = {*range(0, 1000, 3)}


@pytest.mark.parametrize("shorter", [{3}, {6}, {3, 8, 14}, {14}, EVERY_THIRD])
def test_calls_that_have_less_to_do_do_not_decide(monkeypatch: pytest.MonkeyPatch, shorter: set[int]) -> None:
    calls = iter(range(1000))

    def seconds(is_eager: bool) -> float:
        return (1 * MS if is_eager else 2 * MS) * (0.2 if next(calls) in shorter else 1)

    clock(monkeypatch, seconds)
    namespace: dict[str, Any] = {}
    exec("def step(x):\n    return x + 1 if x.sum() > 0 else x - 1", namespace)  # without a source to divide
    step = tb.compile(namespace["step"], compare_eager=True)
    x = tb.ones((2,))
    with pytest.warns(SlowerThanEagerWarning):
        assert [step(x).tolist() for _ in range(80)] == [[2.0, 2.0]] * 80


def test_nothing_is_captured_in_the_turn_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, lambda is_eager: 2 * MS)
    inner = tb.compile(lambda x: x * 3, compare_eager=True)
    step = tb.compile(lambda x: inner(x) + 1, compare_eager=True)
    for _ in range(20):
        assert step(tb.ones((2,))).tolist() == [4.0, 4.0]
    assert step.replays[0].comparison.eager_wins is False
    assert not inner.replays


@pytest.mark.parametrize(
    ("option", "variable", "compared"),
    [(None, "1", True), (None, "0", False), (True, "0", True), (False, "1", False)],
)
def test_it_is_switched_by_an_option_and_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, option: bool | None, variable: str, compared: bool
) -> None:
    monkeypatch.setenv("TENSORBUS_COMPARE_EAGER", variable)
    step: CompiledFunction[..., Any] = tb.compile(lambda x: x + 1, compare_eager=option)
    step(tb.ones((2,)))
    assert (step.replays[0].comparison is not None) is compared
    with pytest.raises(tb.errors.ArgumentError, match="compare_eager is True, False or None, got 'no'"):
        tb.compile(step, compare_eager="no")
