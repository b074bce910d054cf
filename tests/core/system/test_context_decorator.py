"""Contexts as decorators of generators: each step runs inside, and the code that takes the values outside."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
import tensorbus as tb


@tb.no_grad()
def steps() -> Generator[Any, Any, str]:
    """Say what is recorded."""
    got = yield tb.is_grad_enabled()
    while got is not None:
        try:
            got = yield got, tb.is_grad_enabled()
        except ValueError as error:
            got = yield str(error), tb.is_grad_enabled()
    return "end"


def test_values_are_taken_outside() -> None:
    assert list(steps()) == [False]
    assert steps.__doc__ == "Say what is recorded."
    assert [tb.is_grad_enabled() for _ in steps()] == [True]


def test_values_and_errors_are_sent_inside() -> None:
    running = steps()
    assert next(running) is False
    assert running.send(1) == (1, False)
    assert tb.is_grad_enabled()
    assert running.throw(ValueError("no")) == ("no", False)
    with pytest.raises(StopIteration) as end:
        running.send(None)
    assert end.value.value == "end"
    with pytest.raises(KeyError):
        steps().throw(KeyError())


def test_closing_runs_inside() -> None:
    seen = []

    @tb.no_grad()
    def endless() -> Generator[int, None, None]:
        try:
            while True:
                yield 1
        finally:
            seen.append(tb.is_grad_enabled())

    running = endless()
    next(running)
    running.close()
    assert seen == [False]


def test_modes_within() -> None:
    @tb.enable_grad()
    def inner() -> Generator[bool, None, None]:
        yield tb.is_grad_enabled()

    with tb.no_grad():
        assert list(inner()) == [True]
        assert not tb.is_grad_enabled()


def test_preferred_kernels() -> None:
    @tb.prefer_kernel(add="no such kernel")
    def sums() -> Generator[tb.Tensor, None, None]:
        yield tb.ones(2) + tb.ones(2)

    with pytest.raises(tb.UnsupportedOpError, match="no such kernel"):
        next(sums())
