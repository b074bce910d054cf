"""Functions and modules of ``nn`` on every device, against what PyTorch computes, gradients included."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
import tensorbus as tb

from error_bounds import assert_within, gamma
from functional_cases import CALLS, Call, parameter
from torch_values import PATH


@cache
def stored() -> dict[str, Any]:
    results: dict[str, Any] = json.loads(PATH.read_text())
    return results


def test_every_call_is_stored() -> None:
    assert [call.label for call in CALLS] == list(stored())


OPS = 100
"""How many roundings may follow each other in a layer, beside those of its sums."""


def same(got: tb.Tensor | None, want: dict[str, Any] | None, longest: int, what: str) -> None:
    """Compare with PyTorch's result; both are off by what sums of so many terms explain."""
    if want is None:
        assert got is None or not got.numpy().any(), what
        return
    expected = np.array(want["values"]).reshape(want["shape"])
    if got is None:
        assert not expected.any(), what
        return
    scale = max(float(np.abs(expected).max(initial=0)), 1.0)
    assert_within(got.numpy(), expected, 2 * gamma(longest + OPS, "float32") * scale, what)


def flatten(out: Any) -> list[tb.Tensor]:
    if isinstance(out, (tuple, list)):
        return [x for part in out for x in flatten(part)]
    return [] if out is None else [out]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.label)
def test_call(device: str, call: Call) -> None:
    operands = [tb.asarray(a, device=device) for a in call.drawn()]
    leaves = {
        str(k): t.requires_grad_()
        for k, (t, a) in enumerate(zip(operands, call.arrays, strict=True))
        if t.dtype.is_floating and not a.fixed
    }
    if call.module:
        module = getattr(tb.nn, call.name)(*call.rest, **call.named).to(device)
        state = {k: tb.asarray(parameter(k, v.shape)) for k, v in module.state_dict().items()}
        module.load_state_dict(state)
        out = module(*operands)
        leaves |= dict(module.named_parameters())
    else:
        out = getattr(tb.nn.functional, call.name)(*operands, *call.rest, **call.named)
    results, want = flatten(out), stored()[call.label]
    assert len(results) == len(want["results"])
    longest = max(leaf.size for leaf in (*operands, *leaves.values(), *results))
    for got, expected in zip(results, want["results"], strict=True):
        assert str(got.device) == f"{device}:0"
        assert got.shape == tuple(expected["shape"])
        same(got, expected, longest, "result")
    weights = np.cos(np.arange(results[0].size)).reshape(results[0].shape).astype(np.float32)
    (results[0] * tb.asarray(weights, device=device)).sum().backward()
    assert set(leaves) == set(want["grads"])
    for name, leaf in leaves.items():
        same(leaf.grad, want["grads"][name], longest, f"gradient of {name}")
