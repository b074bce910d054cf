"""Calls that raise, and state that is new at each call, are not captured again and again."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus.compiler import CompiledFunction, RecompileWarning
from tensorbus.compiler import compiled_function as module
from tensorbus.compiler.capture import raised_captures


class Clock:
    """A clock on which each look is a second after the last, so that calls of Python's take one."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The first arguments of the calls that were captured."""
    captured: list[Any] = []
    observed: Callable[..., Any] = CompiledFunction._capture_observed

    def noted(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        captured.append(args[0])
        return observed(self, args, kwargs)

    monkeypatch.setattr(CompiledFunction, "_capture_observed", noted)
    monkeypatch.setattr(raised_captures, "perf_counter", Clock())
    monkeypatch.setattr(module, "perf_counter", Clock())
    return captured


def refuse_negative(n: int, x: tb.Tensor) -> tb.Tensor:
    if n < 0:
        raise ValueError(f"{n} is negative")
    return x * n


def refused(function: Callable[..., Any], *args: Any) -> None:
    with pytest.raises(ValueError, match="is negative"):
        function(*args)


def test_calls_that_raise_are_left_to_python_until_one_returns(captures: list[Any]) -> None:
    x = tb.ones(3)
    compiled = tb.compile(refuse_negative, compare_eager=False)
    for _ in range(10):
        refused(compiled, -1, x)
    assert captures == [-1, -1]
    assert compiled(2, x).tolist() == [2, 2, 2]  # Python's
    assert compiled(2, x).tolist() == [2, 2, 2]  # captured
    assert compiled(2, x).tolist() == [2, 2, 2]
    assert captures == [-1, -1, 2]
    assert len(compiled.replays) == 1


def test_calls_that_raise_among_others_are_captured_ever_more_seldom(captures: list[Any]) -> None:
    x = tb.ones(3)
    compiled = tb.compile(refuse_negative, compare_eager=False)
    compiled(3, x)
    for k in range(1000):
        refused(compiled, -1 - k, x)
        assert compiled(3, x).tolist() == [3, 3, 3]
    raised = [n for n in captures if n < 0]
    assert (
        raised_captures.IN_A_ROW
        <= len(raised)
        <= raised_captures.IN_ALL + 1000 / raised_captures.PYTHON_TIMES
    )
    assert len(compiled.replays) == 1


def test_fullgraph_captures_every_call(captures: list[Any]) -> None:
    x = tb.ones(3)
    compiled = tb.compile(refuse_negative, fullgraph=True)
    for _ in range(4):
        refused(compiled, -1, x)
    assert captures == [-1] * 4


def test_a_function_is_captured_so_often_at_most(captures: list[Any]) -> None:
    def counted(k: int, counts: dict[int, int], x: tb.Tensor) -> tuple[dict[int, int], tb.Tensor]:
        counts[k] = counts.get(k, 0) + 1
        return counts, x + 1

    compiled = tb.compile(counted, compare_eager=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecompileWarning)
        for k in range(3 * module.MAX_CAPTURES):
            counts, x = compiled(k, {-k - 1: k}, tb.ones(2))
            assert counts == {-k - 1: k, k: 1}
            assert x.tolist() == [2, 2]
    assert len(captures) <= module.MAX_CAPTURES
