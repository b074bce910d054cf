"""Guards on attributes of functions and containers, on names, bounds and contexts."""

from __future__ import annotations

import copy
import decimal
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any

import pytest
import tensorbus as tb


def double(x: Any) -> Any:
    return x * 2


@pytest.mark.parametrize("make", [lru_cache, partial, tb.compile], ids=["cache", "partial", "compiled"])
def test_attributes_of_functions(make: Callable[..., Any]) -> None:
    held = make(double)
    held.calls, held.scale = 0, 1.0

    @tb.compile
    def f(x: tb.Tensor) -> tb.Tensor:
        held.calls += 1
        return x * held(3) * held.scale + held.calls

    assert [f(tb.ones(())).item() for _ in range(4)] == [7.0, 8.0, 9.0, 10.0]
    held.scale, held.calls = 2.0, 50
    assert [f(tb.ones(())).item() for _ in range(3)] == [63.0, 64.0, 65.0]
    assert held.calls == 53
    assert make is lru_cache or not f.reasons


def test_attributes_of_the_compiled_function_itself() -> None:
    @tb.compile
    def f(x: tb.Tensor) -> tb.Tensor:
        f.calls += 1
        return x * f.calls

    f.calls = 0
    assert [f(tb.ones(())).item() for _ in range(4)] == [1.0, 2.0, 3.0, 4.0]
    f.calls = 40
    assert f(tb.ones(())).item() == 41.0
    assert (f.calls, f.reasons) == (41, [])
    assert copy.deepcopy({"step": f})["step"].calls == 41


def test_an_attribute_that_appears() -> None:
    held = partial(double, 3)
    f = tb.compile(lambda x: x * getattr(held, "scale", 1.0))
    for _ in range(3):
        assert f(tb.ones(())).item() == 1.0
    held.scale = 4.0
    assert f(tb.ones(())).item() == 4.0


def test_attributes_of_sets() -> None:
    class Names(set):
        weight = 1.0

    names = Names({"a"})
    f = tb.compile(lambda x: x * names.weight + len(names))
    for _ in range(3):
        assert f(tb.ones(())).item() == 2.0
    names.weight = 5.0
    assert f(tb.ones(())).item() == 6.0
    names.add("b")
    assert f(tb.ones(())).item() == 7.0


def test_the_maxlen_of_a_deque() -> None:
    def fn(x: tb.Tensor, recent: deque[tb.Tensor]) -> tuple[float, int | None]:
        recent.append(x)
        return sum(recent), recent.maxlen

    f, x = tb.compile(fn), tb.ones(())
    for most in (2, 2, 2, 3, None, 2):
        assert f(x, deque([x, x], most)) == fn(x, deque([x, x], most))


@pytest.mark.parametrize("module", [True, False], ids=["module", "class"])
def test_the_context_of_decimals(module: bool) -> None:
    def named(x: tb.Tensor) -> tb.Tensor:
        return x * float(decimal.Decimal(1) / 3)

    def imported(x: tb.Tensor) -> tb.Tensor:
        return x * float(Decimal(1) / 3)

    f = tb.compile(named if module else imported)
    for digits in (28, 28, 28, 3, 2):
        with decimal.localcontext(prec=digits):
            assert f(tb.ones((), dtype=tb.float64)).item() == float(Decimal(1) / 3)


def test_names_of_functions() -> None:
    def named(name: str) -> Callable[[Any], Any]:
        def act(x: Any) -> Any:
            return x * 2

        act.__name__, act.__doc__ = name, name.upper()
        return act

    f = tb.compile(lambda x, act: {act.__name__: act(x), "told": act.__doc__})
    for name in ("relu", "relu", "gelu", "gelu", "relu"):
        assert f(tb.ones(()), named(name)) == {name: 2.0, "told": name.upper()}
    act = named("one")
    f = tb.compile(lambda x: (act.__name__, x * 2))
    assert [f(tb.ones(()))[0] for _ in range(3)] == ["one"] * 3
    act.__name__ = "other"
    assert f(tb.ones(()))[0] == "other"


def test_names_of_classes() -> None:
    class Layer:
        pass

    layer = Layer()
    f = tb.compile(lambda x: (type(layer).__name__, Layer.__qualname__, x * 2))
    for _ in range(3):
        assert f(tb.ones(()))[0] == "Layer"
    Layer.__name__, Layer.__qualname__ = "Other", "Outer.Other"
    assert f(tb.ones(()))[:2] == ("Other", "Outer.Other")
