"""Aliased tensors: the same one as an argument and at a location that others assign."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import tensorbus as tb

PLACE = SimpleNamespace(held=None)
TABLE: dict[str, tb.Tensor] = {}
held = None


class Buffered(tb.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("held", tb.zeros(2))


MODULE = Buffered()


def by_attribute(x):
    PLACE.held += x
    return x * 2


def by_entry(x):
    TABLE["held"] += x
    return x * 2


def by_name(x):
    held.add_(x)
    return x * 2


def by_buffer(x):
    MODULE.held.add_(x)
    return x * 2


PUT = {
    by_attribute: lambda x: setattr(PLACE, "held", x), by_entry: lambda x: TABLE.update(held=x),
    by_name: lambda x: globals().update(held=x), by_buffer: lambda x: setattr(MODULE, "held", x),
}  # fmt: skip


@pytest.mark.parametrize("fn", PUT)
@pytest.mark.parametrize("runs", ["aabb", "abab", "babba", "abbaab"])
def test_an_argument_that_was_the_state_is_another_later(fn, runs) -> None:
    def outcomes(f):
        operand = tb.asarray([1.0, 2.0])
        results = []
        for kind in runs:
            state = operand if kind == "a" else tb.asarray([5.0, 7.0])
            PUT[fn](state)
            results += [f(operand).tolist(), operand.tolist(), state.tolist()]
        return results

    compiled = tb.compile(fn)
    assert outcomes(compiled) == outcomes(fn)
    assert outcomes(compiled) == outcomes(fn)
