"""Complex numbers: their parts, special values, and gradients (the conjugate Wirtinger derivative)."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor

from error_bounds import assert_within, gamma, of_difference

INF, NAN = math.inf, math.nan
PLACES = np.array([0.3 - 0.4j, -1.2 + 0.7j, 2.0 + 1.5j, -0.6 - 2.1j, 0.9 + 0.1j])
OTHERS = np.array([1.1 + 0.2j, 0.4 - 0.9j, -0.3 + 0.8j, 1.7 + 1.1j, -0.5 - 0.6j])


def test_parts(device: str) -> None:
    z = tb.asarray([1 + 2j, -3.5j, complex(-INF, NAN)], device=device)
    np.testing.assert_array_equal(tb.real(z).numpy(), np.array([1, 0, -INF], np.float32))
    np.testing.assert_array_equal(tb.imag(z).numpy(), np.array([2, -3.5, NAN], np.float32))
    assert tb.real(z).dtype is tb.float32
    assert tb.conj(z[:2]).tolist() == [1 - 2j, 3.5j]
    x = tb.asarray([1.0, -INF], device=device)
    assert tb.real(x).tolist() == tb.conj(x).tolist() == [1.0, -INF]
    assert tb.imag(x).tolist() == [0.0, 0.0]


def test_made_of_parts(device: str) -> None:
    x, y = tb.asarray([1.0, 0.0], device=device), tb.asarray([-2.0, INF], device=device)
    assert tb.complex(x, y).tolist() == [1 - 2j, complex(0, INF)]
    assert tb.complex(x, 3.0).tolist() == [1 + 3j, 3j]
    assert tb.complex(x, y).dtype is tb.complex64
    pairs = tb.view_as_real(tb.complex(x, y))
    assert pairs.tolist() == [[1.0, -2.0], [0.0, INF]]
    assert tb.view_as_complex(pairs).tolist() == [1 - 2j, complex(0, INF)]
    with pytest.raises(tb.DtypeError, match="float16"):
        tb.complex(x.to("float16"), y.to("float16"))
    with pytest.raises(tb.ShapeError, match="length 2"):
        tb.view_as_complex(tb.zeros((2, 3), device=device))
    with pytest.raises(tb.DtypeError, match="complex tensor"):
        tb.view_as_real(x)


def test_angles(device: str) -> None:
    z = tb.asarray([1 + 0j, 1j, -1 + 0j, -1j, 0j], device=device)
    angles = np.array([0, math.pi / 2, math.pi, -math.pi / 2, 0])
    assert_within(tb.angle(z).numpy(), angles, gamma(1, "float32") * abs(angles))
    angles = np.array([math.pi, 0, 0, NAN])
    actual = tb.angle(tb.asarray([-2.0, 0.0, 3.0, NAN], device=device)).numpy()
    assert_within(actual, angles, gamma(1, "float32") * angles)
    actual = tb.polar(tb.abs(z), tb.angle(z)).numpy()
    assert_within(actual, z.numpy(), gamma(2, "float32"))


def test_signs_and_sizes(device: str) -> None:
    z = tb.asarray([3 + 4j, 0j, -2j], device=device)
    assert tb.abs(z).tolist() == [5.0, 0.0, 2.0]
    signs = np.array([0.6 + 0.8j, 0, -1j])
    assert_within(tb.sign(z).numpy(), signs, gamma(4, "complex64") * abs(signs))
    assert tb.round(tb.asarray([1.5 - 2.5j], device=device)).tolist() == [2 - 2j]


def test_logarithms_of_zero_have_no_nan(device: str) -> None:
    for name in ("log", "log2", "log10"):
        (before,) = getattr(tb, name)(tb.asarray([0j], device=device)).tolist()
        assert (before.real, before.imag) == (-INF, 0.0), name


SPECIAL: dict[str, list[tuple[complex, complex]]] = {
    "expm1": [
        (complex(INF, 0), complex(INF, 0)), (complex(-INF, INF), complex(-1, 0)),
        (complex(-INF, NAN), complex(-1, 0)), (complex(NAN, 0), complex(NAN, 0)), (complex(-0.0, 0), 0j),
    ],
    "tanh": [
        (complex(INF, 1e30), complex(1, 0)), (complex(-INF, 2), complex(-1, 0)),
        (complex(INF, -2), complex(1, -0.0)), (complex(INF, NAN), complex(1, 0)),
    ],
    "exp": [(complex(-INF, NAN), 0j), (complex(INF, 0), complex(INF, 0)), (complex(NAN, 0), complex(NAN, 0))],
    "sqrt": [(complex(-INF, 1), complex(0, INF)), (complex(3, INF), complex(INF, INF))],
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(device: str, name: str) -> None:
    actual, expected = zip(*SPECIAL[name], strict=True)
    number = ~np.isnan(np.asarray(actual))
    for function in (getattr(tb, name), tb.compile(getattr(tb, name))):
        got = function(tb.asarray(list(actual), device=device)).numpy()
        for part, wanted in ((got.real, np.real(expected)), (got.imag, np.imag(expected))):
            np.testing.assert_array_equal(part, wanted)
            np.testing.assert_array_equal(np.signbit(part)[number], np.signbit(wanted)[number])


STEP, THIRD = 1e-6, 1e4
"""Of differences, and what bounds the third derivative of what they are taken of, weighed."""
ONE: dict[str, Callable[[Any], Any]] = {
    **{name: getattr(tb, name) for name in (
        "abs angle conj real imag sign exp expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh"
        " tanh asinh acosh atanh sqrt square reciprocal").split()},
    "square root": lambda z: z**0.5, "complex exponent": lambda z: z ** (1.5 - 0.5j),
    "complex base": lambda z: (2 + 1j) ** z, "pairs": lambda z: tb.view_as_real(z) ** 2,
    "whole": lambda z: z * 3,
    "real weights": lambda z: z * tb.asarray([1.0, 2.0, 0.5, 3.0, -1.0], device=z.device),
}  # fmt: skip
TWO: dict[str, Callable[[Any, Any], Any]] = {
    "add": tb.add, "subtract": tb.subtract, "multiply": tb.multiply, "divide": tb.divide, "power": tb.power,
    "lerp": lambda z, w: tb.lerp(z, w, 0.3), "where": lambda z, w: tb.where(tb.real(z) > 0, z, w),
    "addcmul": lambda z, w: tb.addcmul(z, w, z, value=0.5),
}  # fmt: skip


def _value(function: Callable[..., Tensor], operands: list[Any]) -> float:
    """Weigh parts of the results differently, so that a conjugate in a wrong place shows."""
    return float(_loss(function(*[tb.asarray(a, dtype="complex128", device="cpu") for a in operands])))


def _loss(out: Tensor) -> Tensor:
    count = np.arange(1, out.size + 1).reshape(out.shape) / 3
    weights = tb.asarray(count, device=out.device)
    return (tb.real(out) * weights + tb.imag(out) * (weights * weights)).sum()


def _slopes(function: Callable[..., Tensor], operands: list[Any]) -> list[Any]:
    results = []
    for k, operand in enumerate(operands):
        slope = np.zeros(operand.shape, np.complex128)
        for at in np.ndindex(*operand.shape):
            for direction in (1, 1j):
                ends = []
                for sign in (1, -1):
                    moved = [a.copy() for a in operands]
                    moved[k][at] += sign * STEP * direction
                    ends.append(_value(function, moved))
                slope[at] += direction * (ends[0] - ends[1]) / (2 * STEP)
        results.append(slope)
    return results


@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_gradients(device: str, name: str) -> None:
    function: Callable[..., Tensor] = ONE[name] if name in ONE else TWO[name]
    operands = [PLACES] if name in ONE else [PLACES, OTHERS]
    xs = [tb.asarray(a, dtype="complex128", device=device).requires_grad_() for a in operands]
    out = function(*xs)
    terms = float((tb.abs(out) * tb.reshape(tb.arange(1, out.size + 1, device=device), out.shape) ** 2).sum())
    actual = tb.grad(_loss(out), xs)
    for g, expected in zip(actual, _slopes(function, operands), strict=True):
        assert g is not None
        assert_within(g.numpy(), expected, 2 * of_difference(terms, STEP, THIRD))  # along either axis


def test_the_gradient_of_a_real_operand_is_real(device: str) -> None:
    x = tb.asarray([1.5, -2.0], dtype="float64", device=device).requires_grad_()
    w = tb.asarray([2 - 1j, 1j], dtype="complex128", device=device).requires_grad_()
    dx, dw = tb.grad(tb.real(x * w * (1 + 1j)).sum(), (x, w))
    assert dx is not None
    assert dw is not None
    assert dx.dtype is tb.float64
    assert dx.tolist() == [3.0, -1.0]
    assert dw.tolist() == [1.5 - 1.5j, -2 + 2j]


def test_a_turn_by_a_phase(device: str) -> None:
    phase = tb.asarray([0.7], dtype="float64", device=device).requires_grad_()
    (g,) = tb.grad(tb.real(tb.polar(2.0, phase)).sum(), phase)
    assert g is not None
    assert_within(g.numpy(), [-2 * math.sin(0.7)], 2 * gamma(4, "float64"))
    assert_within(tb.polar(2.0, phase).detach().numpy(), [2 * cmath.exp(0.7j)], 2 * gamma(4, "float64"))


def test_variances_and_distances_are_real(device: str) -> None:
    z = tb.asarray([1 + 1j, 2 - 1j], device=device).requires_grad_()
    spread = tb.var(z)
    assert (spread.item(), spread.dtype, z.std(axis=0).dtype) == (1.25, tb.float32, tb.float32)
    assert tb.grad(spread, z)[0].tolist() == [-0.5 + 1j, 0.5 - 1j]
    slope = np.array([-0.5 + 1j, 0.5 - 1j]) / (2 * math.sqrt(1.25))
    assert_within(tb.grad(tb.std(z), z)[0].numpy(), slope, gamma(8, "float32") * abs(slope))
    same = tb.asarray([1j, 1j], device=device).requires_grad_()
    assert tb.grad(tb.std(same), same)[0].tolist() == [0j, 0j]
    far = tb.nn.functional.pairwise_distance(tb.asarray([[3j, 4]], device=device), tb.zeros(2, device=device))
    assert (round(far.item(), 4), far.dtype) == (5.0, tb.float32)
    with pytest.raises(tb.DtypeError, match=r"mse_loss: real numbers are needed, got complex64"):
        tb.mse_loss(z, z)
