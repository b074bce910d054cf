"""Data-dependent errors in functions that draw random numbers: Python draws the same ones again."""

from __future__ import annotations

import pytest
import tensorbus as tb

TABLE = tb.arange(5.0)
PLACES = ([0, 1], [1, 2], [1, 9], [3, 9], [2, 2])


def handled(x, at):
    noise = tb.rand(2)
    try:
        result = TABLE[at]
    except IndexError:
        result = tb.rand(1) - 10
    return noise + result * x


def unhandled(x, at):
    return tb.rand(2) + TABLE[at] * x


def outcomes(fn, arguments):
    """Return what the calls give, errors among it, and what is drawn afterwards."""
    tb.manual_seed(3)
    results = []
    for args in arguments:
        try:
            results.append(fn(*args).tolist())
        except tb.TensorbusError as error:
            results.append((type(error), str(error)))
    return [*results, tb.rand(2).tolist()]


@pytest.mark.parametrize("fn", [handled, unhandled])
def test_indices_out_of_range(fn) -> None:
    arguments = [(tb.ones(1), tb.asarray([at])) for at in (1, 2, 7, 3, 9, 2)]
    compiled = tb.compile(fn, fullgraph=True)
    assert outcomes(compiled, arguments) == outcomes(fn, arguments)
    assert len(compiled.replays) == 1


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("first", [1, -1])
def test_weights_that_are_refused(replacement, first) -> None:
    def fn(weights):
        return tb.multinomial(weights, 2, replacement) * 1

    rows = [[0.1, 0.2], [3.0, 1.0], [0.0, 0.0], [0.1, -1.0], [1.0, 2.0], [tb.nan, 1.0], [2.0, 1.0]]
    arguments = [(tb.asarray([[1.0, 1.0], row]),) for row in rows[::first]]
    compiled = tb.compile(fn, fullgraph=True)
    actual = outcomes(compiled, arguments)
    assert actual == outcomes(fn, arguments)
    assert (tb.ArgumentError, "multinomial") in [(f[0], str(f[1]).partition(":")[0]) for f in actual]
    assert len(compiled.replays) == 1
    assert not compiled.recompiles


def calls(fn):
    """Return what calls come to: the result or the error, the argument afterwards, the next number drawn."""
    results = []
    for k, places in enumerate(PLACES):
        tb.manual_seed(k)
        x = tb.ones(8)
        try:
            out = fn(x, tb.asarray(places)).tolist()
        except tb.IndexingError:
            out = None
        results.append((out, x.tolist(), tb.rand(1).tolist()))
    return results


def test_mutations_before_an_error_persist() -> None:
    def fn(x, places):
        x += tb.nn.functional.dropout(x, 0.5)
        picked = tb.take(x, places, axis=0)
        x *= 2
        return picked

    compiled = tb.compile(fn)
    assert calls(compiled) == calls(fn)
    assert compiled.replays, compiled.reasons


def test_an_error_is_caught_where_it_stands() -> None:
    own = tb.Generator(3)

    def fn(x, places):
        retained = tb.nn.functional.dropout(x, 0.5) + tb.uniform((8,), generator=own)
        try:
            return retained + tb.take(x, places, axis=0).sum()
        except tb.IndexingError:
            return retained * 100

    compiled = tb.compile(fn)
    result = calls(compiled)
    own.manual_seed(3)
    assert result == calls(fn)
    assert compiled.replays, compiled.reasons
