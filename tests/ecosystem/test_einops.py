"""einops' classic functions take tensors of any device, as soon as their backend is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import einops
import numpy as np
import pytest
import tensorbus as tb
import tensorbus.interchange.einops_backend  # makes tensors known to einops

from installed import available

CALLS: dict[str, Callable[[Any], Any]] = {
    "rearrange": lambda x: einops.rearrange(x, "b (h w) c -> b c h w", h=2),
    "a list": lambda x: einops.rearrange([x, x + 1], "n b p c -> (n b) p c"),
    "reduce": lambda x: einops.reduce(x, "b (h w) c -> b h c", "max", h=2),
    "mean": lambda x: einops.reduce(x, "b p c -> 1 p 1", "mean"),
    "repeat": lambda x: einops.repeat(x, "b p c -> b p (c two)", two=2),
    "einsum": lambda x: einops.einsum(x, x, "b p c, b q c -> b p q"),
    "pack": lambda x: einops.pack([x, x[:, 0]], "b * c")[0],
}


@pytest.mark.parametrize("device", available())
@pytest.mark.parametrize("name", CALLS)
def test_same_as_of_numpy(name: str, device: str) -> None:
    data = np.random.default_rng(1).integers(-9, 10, (2, 4, 4)).astype(np.float32)
    x = tb.asarray(data, device=device).requires_grad_()
    result = CALLS[name](x)
    assert isinstance(result, tb.Tensor)
    np.testing.assert_array_equal(result.detach().numpy(), CALLS[name](data))
    result.sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(tb.compile(CALLS[name])(x.detach()).numpy(), CALLS[name](data))
