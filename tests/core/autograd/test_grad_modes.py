"""The ways to say whether history is recorded, in blocks, from now on, and as decorators."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tensorbus as tb
from tensorbus import Tensor


@pytest.fixture(autouse=True)
def _recording() -> Iterator[None]:
    with tb.enable_grad():
        yield


@pytest.mark.parametrize(
    ("decorate", "on"),
    [
        (tb.no_grad, False),
        (tb.no_grad(), False),
        (tb.enable_grad, True),
        (tb.inference_mode, False),
        (tb.inference_mode(), False),
        (tb.inference_mode(False), True),
    ],
)
def test_decorators_with_and_without_a_call(decorate, on: bool) -> None:
    def asks() -> bool:
        """Ask."""
        return tb.is_grad_enabled()

    asked = decorate(asks)
    assert asked.__doc__ == "Ask."
    for outer in (True, False):
        with tb.set_grad_enabled(outer):
            assert asked() is on
            assert tb.is_grad_enabled() is outer


def test_from_now_on() -> None:
    tb.set_grad_enabled(False)
    assert not tb.is_grad_enabled()
    with tb.set_grad_enabled(True):
        assert tb.is_grad_enabled()
    assert not tb.is_grad_enabled()
    asked = tb.set_grad_enabled(True)(tb.is_grad_enabled)
    assert not tb.is_grad_enabled()
    assert asked()


def test_within_compiled_functions() -> None:
    def double(x: Tensor, on: bool) -> Tensor:
        with tb.set_grad_enabled(on):
            return x * 2

    run, x = tb.compile(double), tb.ones(2).requires_grad_()
    for on in (True, False, True, False, True):
        assert run(x, on).requires_grad is on
        assert tb.is_grad_enabled()


def test_compiled_functions_that_leave_it_off() -> None:
    def leaves(x: Tensor) -> Tensor:
        tb.set_grad_enabled(False)
        return x * 2

    run, x = tb.compile(leaves), tb.ones(2).requires_grad_()
    for _ in range(4):
        tb.set_grad_enabled(True)
        assert not run(x).requires_grad
        assert not tb.is_grad_enabled()
