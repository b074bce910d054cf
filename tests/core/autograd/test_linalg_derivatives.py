"""Derivatives of linear algebra and Fourier transforms where they are complex, singular, or not defined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor, linalg

from error_bounds import assert_alike, assert_within, of_difference
from linalg_derivatives import COMPLEX, SINGULAR, array

Array = np.ndarray[Any, Any]
STEP, THIRD = 1e-6, 1000.0
"""Of differences, and what bounds the third derivative of what they are taken of."""
OPERATIONS, CONDITION = 64, 10
"""Roundings of a value, a sum of a few dozen; what linear systems make more of them."""


@pytest.fixture(autouse=True)
def _on_cpu() -> Iterator[None]:
    with tb.device("cpu"):
        yield


def _weights(shape: tuple[int, ...], seed: int) -> Tensor:
    return tb.asarray(np.random.default_rng(seed).uniform(-1, 1, shape))


def _value(f: Callable[..., Tensor], xs: Sequence[Tensor]) -> Tensor:
    out = f(*xs)
    assert out.dtype is tb.float64
    return tb.sum(out * _weights(out.shape, 11))


def _slopes(f: Callable[[list[Array]], float], arrays: Sequence[Array]) -> list[Array]:
    """The gradient by finite differences: along the real axis, plus 1j times along the other."""
    results = []
    for k, a in enumerate(arrays):
        out = np.zeros_like(a)
        for at in np.ndindex(*a.shape):
            for unit in (1, 1j) if a.dtype.kind == "c" else (1,):
                ends = []
                for sign in (1, -1):
                    moved = [b.copy() for b in arrays]
                    moved[k][at] += sign * unit * STEP
                    ends.append(f(moved))
                out[at] += unit * (ends[0] - ends[1]) / (2 * STEP)
        results.append(out)
    return results


def _agree(actual: Sequence[Tensor | None], expected: Sequence[Array], terms: float) -> None:
    """Check derivatives against differences of sums whose terms are as large as ``terms`` together."""
    for g, e in zip(actual, expected, strict=True):
        assert g is not None
        bound = of_difference(CONDITION * terms, STEP, THIRD, operations=OPERATIONS)
        assert_within(g.numpy(), e, 2 * bound)  # along either axis


def _terms(f: Callable[..., Tensor], arrays: Sequence[Array]) -> float:
    out = f(*map(tb.asarray, arrays))
    return float(tb.abs(out * _weights(out.shape, 11)).sum())


def _operands(name: str) -> tuple[Callable[..., Tensor], list[Array]]:
    f, shapes = COMPLEX[name]
    return f, [array(*s, seed=2 * k) + 1j * array(*s, seed=2 * k + 1) for k, s in enumerate(shapes)]


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_gradient(name: str) -> None:
    f, arrays = _operands(name)
    xs = [tb.asarray(a).requires_grad_() for a in arrays]
    actual = tb.grad(_value(f, xs), xs)
    expected = _slopes(lambda moved: float(_value(f, [tb.asarray(a) for a in moved])), arrays)
    _agree(actual, expected, _terms(f, arrays))


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_gradient_of_the_gradient(name: str) -> None:
    f, arrays = _operands(name)

    def first(moved: Sequence[Array]) -> tuple[list[Tensor], Tensor, float]:
        xs = [tb.asarray(a).requires_grad_() for a in moved]
        total, terms = tb.zeros((), dtype="float64"), 0.0
        for k, g in enumerate(tb.grad(_value(f, xs), xs, create_graph=True)):
            assert g is not None
            parts = tb.real(g) * _weights(g.shape, 12 + k), tb.imag(g) * _weights(g.shape, 20 + k)
            total = total + tb.sum(parts[0] + parts[1])
            terms += float(tb.sum(tb.abs(parts[0]) + tb.abs(parts[1])))
        return xs, total, terms

    xs, total, terms = first(arrays)
    expected = _slopes(lambda moved: float(first(moved)[1]), arrays)
    actual = tb.grad(total, xs, allow_unused=True) if total.requires_grad else [None] * len(xs)
    _agree([tb.zeros_like(x) if g is None else g for g, x in zip(actual, xs, strict=True)], expected, terms)


@pytest.mark.parametrize("name", SINGULAR)
def test_gradient_where_a_factor_is_not_unique(name: str) -> None:
    f, arrays = SINGULAR[name]
    xs = [tb.asarray(a).requires_grad_() for a in arrays]
    actual = tb.grad(_value(f, xs), xs)
    expected = _slopes(lambda moved: float(_value(f, [tb.asarray(a) for a in moved])), arrays)
    _agree(actual, expected, _terms(f, arrays))


def test_a_gradient_of_a_hermitian_operand_is_hermitian() -> None:
    a = array(3, 3) + 1j * array(3, 3, seed=1)
    for f in (linalg.eigvalsh, linalg.cholesky):
        x = tb.asarray(a @ a.conj().T).requires_grad_()
        (g,) = tb.grad(tb.sum(tb.real(f(x))), x)
        assert g is not None
        assert_alike(g.numpy(), g.numpy().conj().T, OPERATIONS)
        assert np.abs(g.numpy()).max() > 0.1


@pytest.mark.parametrize("shape", [(4, 3), (3, 4)])
def test_full_singular_vectors_have_no_gradient(shape: tuple[int, int]) -> None:
    x = tb.asarray(array(*shape)).requires_grad_()
    with pytest.raises(tb.AutogradError, match="use full_matrices=False, or svdvals"):
        tb.sum(linalg.svd(x).S).backward()
    tb.sum(linalg.svdvals(x)).backward()


def test_complete_factors_of_a_tall_matrix_have_no_gradient() -> None:
    x = tb.asarray(array(4, 3)).requires_grad_()
    with pytest.raises(tb.AutogradError, match="use mode='reduced'"):
        tb.sum(linalg.qr(x, mode="complete").R).backward()


def test_the_norm_of_zero_has_the_gradient_zero() -> None:
    for ord in (1, 2, 3, 0.5, float("inf")):
        x = tb.zeros((3,), dtype="float64").requires_grad_()
        linalg.vector_norm(x, ord=ord).backward()
        assert x.grad is not None
        assert x.grad.tolist() == [0.0, 0.0, 0.0]


def test_an_extreme_norm_shares_its_gradient_among_equals() -> None:
    x = tb.asarray([3.0, -3.0, 1.0]).requires_grad_()
    linalg.vector_norm(x, ord=float("inf")).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.5, -0.5, 0.0]


def test_the_rest_of_a_triangle_has_no_gradient() -> None:
    a = tb.asarray(array(3, 3)).requires_grad_()
    tb.sum(linalg.solve_triangular(a, tb.ones((3, 1), dtype="float64"), upper=True)).backward()
    assert a.grad is not None
    assert np.all(np.tril(a.grad.numpy(), -1) == 0)
