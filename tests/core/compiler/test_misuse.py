"""Misuse raises errors that say what to do; errors inside of a function are explained."""

from __future__ import annotations

import pytest
import tensorbus as tb
from tensorbus.errors import ArgumentError, CaptureError, ShapeError

from error_bounds import assert_alike


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "fast"}, "default, reduce-overhead, max-autotune"),
        ({"mode": 3}, "got 3"),
        ({"options": 3}, "a dict or None"),
        ({"dynamic": "yes"}, "True, False or None"),
        ({"fullgraph": 1}, "True or False"),
    ],
)
def test_bad_options_are_refused(options, message) -> None:
    with pytest.raises(ArgumentError, match=message):
        tb.compile(lambda x: x, **options)


@pytest.mark.parametrize("fn", [3, tb.ones(2), "f"])
def test_what_cannot_be_called_is_refused(fn) -> None:
    with pytest.raises(ArgumentError, match="a function, a method or a module"):
        tb.compile(fn)


def test_limits_are_whole_numbers() -> None:
    with pytest.raises(ShapeError, match="integers"):
        tb.mark_dynamic(tb.ones(3), 0, max="8")


def test_fullgraph_names_the_line() -> None:
    def fn(x):
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(CaptureError, match=r"test_misuse.py:\d+: if x.sum\(\) > 0"):
        tb.compile(fn, fullgraph=True)(tb.ones(2))


def test_options_asked_of_what_is_compiled_already_count() -> None:
    def fn(x):
        return x if x.sum() > 0 else -x

    compiled, x = tb.compile(fn), tb.ones(2)
    assert tb.compile(compiled) is compiled
    with pytest.raises(CaptureError, match=r"x if x\.sum"):
        tb.compile(compiled, fullgraph=True)(x)
    model = tb.compile(tb.nn.Linear(2, 2))
    strict = tb.compile(model, fullgraph=True)
    assert strict.weight is model.weight
    assert tb.compile(strict, fullgraph=True) is tb.compile(strict) is strict
    model.register_forward_hook(lambda module, args, out: fn(out))
    model(x)
    with pytest.raises(CaptureError):
        strict(x)


def test_a_call_that_raises_is_explained() -> None:
    def fn(x):
        y = x * 2
        raise ValueError(f"no {y.shape}")

    report = tb.compile.explain(fn)(tb.ones(2))
    assert isinstance(report.error, ValueError)
    assert report.result is None
    assert "raised ValueError: no (2,)" in str(report)


def test_a_data_dependent_error_leaves_the_state_of_eager() -> None:
    log, count = [], tb.zeros(1)

    def fn(x):
        nonlocal count
        count += 1
        try:
            y = tb.linalg.inv(x)
        except tb.LinAlgError:
            log.append("singular")
            return None
        count += 10
        return y

    compiled = tb.compile(fn)
    good, bad = tb.eye(2), tb.zeros((2, 2))
    for x in (good, bad, good, bad, good):
        assert (compiled(x) is None) == (x is bad)
    assert count.tolist() == [35.0]
    assert log == ["singular"] * 2


def test_a_capture_survives_an_error() -> None:
    compiled = tb.compile(lambda x: tb.linalg.cholesky(x) * 2)
    good, bad = tb.eye(2), -tb.eye(2)
    for x in (good, bad, good, bad, good):
        if x is bad:
            with pytest.raises(tb.LinAlgError, match="positive definite"):
                compiled(x)
        else:
            assert compiled(x).tolist() == [[2.0, 0.0], [0.0, 2.0]]
    assert len(compiled.replays) == 1
    assert not compiled.recompiles


def test_vmap_needs_no_graph_break() -> None:
    w = tb.ones(3)
    compiled = tb.compile(lambda rows: tb.vmap(lambda row: row / row.sum() @ w)(rows), fullgraph=True)
    x = tb.reshape(tb.arange(1.0, 7.0), (2, 3))
    for k in (1, 2):
        assert_alike(compiled(x * k).tolist(), [1.0, 1.0], roundings=4)  # a sum of three, a quotient
    assert len(compiled.replays) == 1


def test_a_contradicted_mark_is_reported() -> None:
    x = tb.ones((4, 3))
    tb.mark_dynamic(x, 0)
    compiled = tb.compile(lambda x: x + 1 if x.shape[0] == 4 else x)
    with pytest.warns(tb.RecompileWarning, match="axis 0 of argument x to have length 4"):
        compiled(x)
    assert compiled(tb.ones((5, 3))).tolist()[0] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    "asks",
    [
        lambda n: int(n * 0.75),
        lambda n: float(n),
        lambda n: len(range(n)),
        lambda n: len(f"{n}"),
        lambda n: 2 if n != 4 else 3,
        lambda n: 2 if n - 4 else 3,
    ],
)
def test_a_contradicted_mark_is_reported_however_the_code_reads_the_size(asks) -> None:
    x = tb.ones((4, 3))
    tb.mark_dynamic(x, 0)
    compiled = tb.compile(lambda x: x * asks(x.shape[0]))
    with pytest.warns(tb.RecompileWarning, match="axis 0 of argument x to have length 4"):
        compiled(x)
    assert compiled(tb.ones((7, 3))).tolist()[0] == [float(asks(7))] * 3
    assert "s0" in compiled.recompiles[0]


@pytest.mark.parametrize(
    "asks",
    [
        lambda n: n % 4,
        lambda n: 2 if n % 128 == 0 else 3,
        lambda n: 2 if n & (n - 1) == 0 else 3,
        lambda n: 2 if n * 0.5 > 3 else 3,
        lambda n: 2 if 512 // (n + 1) > 1 else 3,
    ],
)
@pytest.mark.parametrize("n", [128, 200, 512])
def test_a_guard_that_other_sizes_meet_is_not_mentioned(asks, n: int, recwarn) -> None:
    x = tb.ones((n, 3))
    tb.mark_dynamic(x, 0)
    assert tb.compile(lambda x: x * asks(x.shape[0]))(x).tolist()[0] == [float(asks(n))] * 3
    assert not recwarn.list


def test_a_mark_that_holds_is_not_mentioned(recwarn) -> None:
    x = tb.ones((4, 3))
    tb.mark_dynamic(x, 0)
    compiled = tb.compile(lambda x: x + 1 if x.shape[0] > 2 else x)
    assert compiled(x).shape == (4, 3)
    assert compiled(tb.ones((7, 3))).shape == (7, 3)
    assert not compiled.recompiles
    assert not recwarn.list
