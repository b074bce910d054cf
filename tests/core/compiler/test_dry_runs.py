"""Functions that mind symbolic numbers, or whose objects have finalizers: nothing of a dry run is seen."""

from __future__ import annotations

import numbers
import sys

import pytest
import tensorbus as tb

pytestmark = pytest.mark.filterwarnings("ignore::tensorbus.compiler.RecompileWarning")


class NotAnIntegerError(Exception):
    """An error of the user's own, of no kind that Python knows."""


def asserts(x, n):
    assert type(n) is int, n
    return x * n


def raises_its_own(x, n):
    if type(n) is not int or type(x.shape[0]) is not int:
        raise NotAnIntegerError(n)
    return x * n


def raises_another(x, n):
    if n.__class__.__name__ != type(n).__name__ or type(n) is not int:
        raise RuntimeError("an integer, please")
    return x[:n]


def leaves(x, n):
    if type(x.shape[0]) is not int or type(n) is not int:
        sys.exit("no integer")
    return x + n


def goes_round(x, n):
    return x * n if type(n) is int else goes_round(x, n)


def imports(x, n):
    if type(n) is not int:
        import nothing_of_this_name  # noqa: F401
    return x * n


def handles(x, n):
    try:
        asserts(x, n)
    except AssertionError:
        return x
    return x * n


def asks_kindly(x, n):
    if not isinstance(n, int) or not isinstance(n, numbers.Number):
        raise NotAnIntegerError(n)
    return x * n


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "fn", [asserts, raises_its_own, raises_another, leaves, goes_round, imports, handles, asks_kindly]
)
def test_what_minds_a_symbolic_number_does_not_meet_one(fn, dynamic) -> None:
    compiled = tb.compile(fn, dynamic=dynamic)
    for n in (2, 3, 5, 4, 7, 3):
        for x in (tb.ones(3), tb.ones(n)):
            assert compiled(x, n).tolist() == fn(x, n).tolist()


def test_an_error_that_the_first_run_raises_too_is_the_users() -> None:
    compiled = tb.compile(asserts)
    for n in (2, 3, 4):
        compiled(tb.ones(3), n)
    for n in (2.5, 3.5):
        with pytest.raises(AssertionError, match=str(n)):
            compiled(tb.ones(3), n)


class Handle:
    """Says when it is let go."""

    def __init__(self, x):
        self.x = x

    def __del__(self):
        print("let go")


def lets_go(x):
    handle = Handle(x * 2)
    y = handle.x.sum().item()
    del handle
    print("after")
    return y


def keeps_to_the_end(x):
    handle = Handle(x * x.shape[0])
    return handle.x.sum()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("fn", [lets_go, keeps_to_the_end])
def test_finalizers_run_once_for_each_call(fn, dynamic, capsys) -> None:
    compiled = tb.compile(fn, dynamic=dynamic)
    for n in (2, 3, 4, 5, 3, 6):
        want = fn(tb.ones(n)), capsys.readouterr().out
        assert (compiled(tb.ones(n)), capsys.readouterr().out) == want
