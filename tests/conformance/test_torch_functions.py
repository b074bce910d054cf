"""Functions that PyTorch has under the same names, on every device, against what it computes."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
import tensorbus as tb

from error_bounds import assert_within, gamma
from installed import lacks
from samples import native
from torch_functions import EXPRESSIONS, PATH, array, evaluate, names

ROUNDINGS, PRINTED = 128, 0.5e-6
"""Of sums and linear systems, as in PyTorch's results, which have seven digits."""


@cache
def stored() -> dict[str, Any]:
    results: dict[str, Any] = json.loads(PATH.read_text())
    return results


def test_every_expression_is_stored() -> None:
    assert list(stored()) == EXPRESSIONS


def same(got: Any, want: dict[str, Any], what: str) -> None:
    if got is None:
        assert not any(want["values"]), what
        return
    dtype = getattr(tb, want["dtype"])
    assert (got.dtype, got.shape) == (dtype, tuple(want["shape"])), what
    flat = np.array(want["values"], np.float64 if dtype.is_inexact else native(dtype))
    expected = (flat.view(np.complex128) if dtype.is_complex else flat).reshape(want["shape"])
    if dtype.is_inexact:
        size = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)  # of operands and results
        assert_within(got.numpy(), expected, (2 * gamma(ROUNDINGS, dtype) + PRINTED) * size, what)
    else:
        np.testing.assert_array_equal(got.numpy(), expected, err_msg=what)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expression(device: str, expression: str) -> None:
    want = stored()[expression]
    arrays = {name: array(name) for name in names(expression)}
    dtypes = {getattr(tb, a.dtype.name) for a in arrays.values()}
    dtypes |= {getattr(tb, r["dtype"]) for r in want["results"]}
    missing = [d for d in dtypes if lacks(device, d)]
    if missing:
        with tb.device(device), pytest.raises(tb.UnsupportedDtypeError):
            evaluate(tb, expression, {k: tb.asarray(a) for k, a in arrays.items()})
        return
    with tb.device(device):
        named = {k: tb.asarray(a) for k, a in arrays.items()}
        for x in named.values():
            x.requires_grad_(x.dtype.is_inexact)
        results = evaluate(tb, expression, named)
        assert len(results) == len(want["results"])
        for got, expected in zip(results, want["results"], strict=True):
            assert str(got.device) == f"{device}:0"
            same(got, expected, expression)
        if "grads" not in want:
            return
        first = next(r for r in results if r.requires_grad)
        real = first.real if first.dtype.is_complex else first
        weights = np.cos(np.arange(real.size)).reshape(real.shape).astype(native(real.dtype))
        (real * tb.asarray(weights)).sum().backward()
        for name, expected in want["grads"].items():
            same(named[name].grad, expected, f"gradient of {name} in {expression}")
        left = [k for k, x in named.items() if k not in want["grads"] and x.grad is not None]
        assert not any(named[k].grad.any() for k in left), left
