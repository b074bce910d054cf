"""Convolution by fewer multiplications against its definition, and what must not spread over its tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.backend_api import Call, dtypes
from tensorbus_conformance.references.models import REFERENCES
from tensorbus_cpu.compiler import NATIVE
from tensorbus_cpu.convolution import kernels_convolution as convolution
from tensorbus_cpu.convolution import winograd

pytestmark = pytest.mark.skipif(NATIVE.compiler() is None, reason="there is no C compiler")

_CASES: dict[str, tuple[Any, Any, int, int]] = {
    "even planes": ((2, 40, 20, 28), 44, 1, 1),
    "odd planes": ((2, 33, 17, 19), 37, 1, 1),
    "no padding": ((3, 32, 12, 15), 50, 0, 1),
    "more padding than window": ((2, 32, 9, 16), 40, 3, 1),
    "groups": ((2, 80, 14, 14), 96, 1, 2),
    "many channels": ((2, 230, 14, 14), 30, 1, 1),
    "rows in parts": ((1, 64, 12, 12), 160, 1, 1),
    "lines longer than a block": ((1, 100, 6, 301), 40, 1, 1),
    "thin planes": ((12, 48, 40, 3), 48, 1, 1),
}


def _attrs(padding: int, groups: int) -> dict[str, Any]:
    return {"stride": (1, 1), "padding": (padding,) * 2, "dilation": (1, 1), "groups": groups}


def _run(op: str, operands: tuple[Any, Any], out: Any, attrs: dict[str, Any]) -> Any:
    kind = dtypes.float32
    call = Call(
        op=op, dtypes=(kind, kind), shapes=tuple(v.shape for v in operands), attrs=attrs, out_dtype=kind,
        out_shape=out, index=0,
    )  # fmt: skip
    return convolution.PREPARE[op](call)(*operands)


def _close(actual: Any, op: str, operands: tuple[Any, Any], attrs: dict[str, Any]) -> None:
    wide = tuple(v.astype(np.float64) for v in operands)
    right = REFERENCES[op].function(*wide, **attrs)
    size = REFERENCES[op].function(*(np.abs(v) for v in wide), **attrs)
    assert actual.shape == right.shape
    assert (np.abs(actual - right) <= 16 * np.finfo(np.float32).eps * size).all()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note which calls are served this way."""
    calls: list[bool] = []
    asked = winograd.is_quicker

    def noting(*args: Any) -> bool:
        calls.append(asked(*args))
        return calls[-1]

    asked_weights = winograd.weights_are_quicker

    def noting_weights(*args: Any) -> bool:
        calls.append(asked_weights(*args))
        return calls[-1]

    monkeypatch.setattr(convolution, "is_quicker", noting)
    monkeypatch.setattr(convolution, "weights_are_quicker", noting_weights)
    return calls


@pytest.mark.parametrize("case", _CASES)
def test_it_is_the_convolution_and_its_gradient(case: str, served: list[bool]) -> None:
    shape, rows, padding, groups = _CASES[case]
    rng, attrs = np.random.default_rng(0), _attrs(padding, groups)
    x = rng.standard_normal(shape, dtype=np.float32)
    weight = rng.standard_normal((rows, shape[1] // groups, 3, 3), dtype=np.float32)
    out = (shape[0], rows, *(n + 2 * padding - 2 for n in shape[2:]))
    _close(_run("conv", (x, weight), out, attrs), "conv", (x, weight), attrs)
    grad, turned = rng.standard_normal(out, dtype=np.float32), {"output_padding": (0, 0), **attrs}
    _close(_run("conv_transpose", (grad, weight), shape, turned), "conv_transpose", (grad, weight), turned)
    assert served[0]


@pytest.mark.parametrize("case", _CASES)
def test_it_is_the_gradient_of_the_weights(case: str, served: list[bool]) -> None:
    shape, rows, padding, groups = _CASES[case]
    rng, attrs = np.random.default_rng(5), {"kernel": (3, 3), **_attrs(padding, groups)}
    x = rng.standard_normal((4 * shape[0], *shape[1:]), dtype=np.float32)
    grad = rng.standard_normal((len(x), rows, *(n + 2 * padding - 2 for n in shape[2:])), dtype=np.float32)
    out = (rows, shape[1] // groups, 3, 3)
    _close(_run("conv_weight", (x, grad), out, attrs), "conv_weight", (x, grad), attrs)
    assert served == [True]


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
def test_what_is_not_finite_stays_in_the_weights_that_meet_it(value: float, served: list[bool]) -> None:
    x, grad = np.ones((8, 32, 14, 14), np.float32), np.full((8, 32, 14, 14), 2, np.float32)
    x[1, 5, 0, 7] = value  # in the first row, which the windows' last row does not meet
    actual = _run("conv_weight", (x, grad), (32, 32, 3, 3), _attrs(1, 1))
    assert served == [True]
    near = np.zeros(actual.shape, bool)
    near[:, 5, :2] = True
    right = value * 2 if not value > 1e38 else np.inf
    assert (np.isnan(actual[near]) if np.isnan(right) else actual[near] == right).all()
    assert np.isfinite(actual[~near]).all()
    assert (actual[:, 4, 1, 1] == 8 * 14 * 14 * 2).all()
    assert (actual[:, 5, 2, 1] == 8 * 14 * 13 * 2).all()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
def test_what_is_not_finite_stays_where_windows_meet_it(value: float, served: list[bool]) -> None:
    x = np.ones((2, 32, 14, 14), np.float32)
    weight = np.full((32, 32, 3, 3), 2, np.float32)
    x[1, 5, 7, 7] = value
    actual = _run("conv", (x, weight), (2, 32, 14, 14), _attrs(1, 1))
    assert served == [True]
    near = np.zeros(actual.shape, bool)
    near[1, :, 6:9, 6:9] = True
    right = value * 2 if not value > 1e38 else np.inf
    assert (np.isnan(actual[near]) if np.isnan(right) else actual[near] == right).all()
    assert np.isfinite(actual[~near]).all()
    assert actual[0, 0, 5, 5] == 32 * 9 * 2


def test_what_is_computed_between_may_overflow(served: list[bool]) -> None:
    x = np.zeros((2, 32, 14, 14), np.float32)
    x[0, 0, ::2] = 3e38
    x[0, 0, 1::2] = -3e38
    weight = np.zeros((32, 32, 3, 3), np.float32)
    weight[:, 0, 1, 1] = 1
    result = _run("conv", (x, weight), (2, 32, 14, 14), _attrs(1, 1))
    assert served == [True]
    np.testing.assert_array_equal(result[:, 7], x[:, 0])


@pytest.mark.parametrize("threads", [1, 3])
def test_results_do_not_depend_on_threads(threads: int, served: list[bool]) -> None:
    rng = np.random.default_rng(2)
    x = tb.asarray(rng.standard_normal((4, 36, 20, 22), dtype=np.float32), device="cpu")
    weight = tb.asarray(rng.standard_normal((48, 36, 3, 3), dtype=np.float32), device="cpu")
    right, before = tb.conv2d(x, weight, padding=1).numpy(), tb.get_num_threads()
    try:
        tb.set_num_threads(threads)
        actual = tb.conv2d(x, weight, padding=1).numpy()
    finally:
        tb.set_num_threads(before)
    np.testing.assert_array_equal(actual, right)


@pytest.mark.parametrize("threads", [1, 3])
def test_gradients_of_weights_do_not_depend_on_threads(threads: int, served: list[bool]) -> None:
    rng, attrs, out = np.random.default_rng(6), _attrs(1, 1), (48, 36, 3, 3)
    x = rng.standard_normal((4, 36, 20, 22), dtype=np.float32)
    grad = rng.standard_normal((4, 48, 20, 22), dtype=np.float32)
    right, before = _run("conv_weight", (x, grad), out, attrs), tb.get_num_threads()
    try:
        tb.set_num_threads(threads)
        actual = _run("conv_weight", (x, grad), out, attrs)
    finally:
        tb.set_num_threads(before)
    np.testing.assert_array_equal(actual, right)
    assert served == [True, True]


def test_it_serves_float32_windows_of_three_by_three_with_channels_enough(served: list[bool]) -> None:
    rng = np.random.default_rng(3)
    for channels, window, dtype in ((4, 3, "float32"), (40, 5, "float32"), (40, 3, "float64")):
        x, weight = (
            tb.asarray(rng.standard_normal(shape).astype(dtype), device="cpu")
            for shape in ((3, channels, 16, 16), (channels, channels, window, window))
        )
        tb.conv2d(x, weight, padding=1)
    assert served == [False] * 3


def test_what_was_computed_before_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    weight = rng.standard_normal((48, 36, 3, 3), dtype=np.float32)
    spoilt = np.full((4, 36, 30, 30), np.nan, np.float32)
    _run("conv", (spoilt, weight), (4, 48, 30, 30), _attrs(1, 1))
    exact: list[Any] = []
    windows = convolution.windows
    monkeypatch.setattr(convolution, "windows", lambda *args: exact.append(args) or windows(*args))
    for length in (10, 14, 20, 22, 27):
        x = rng.standard_normal((4, 36, length, length + 1), dtype=np.float32)
        _run("conv", (x, weight), (4, 48, length, length + 1), _attrs(1, 1))
    assert not exact
