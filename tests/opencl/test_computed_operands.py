"""Products whose operands are computed, by the kernels that are generated for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb

from error_bounds import assert_within, gamma, stored

pytestmark = pytest.mark.usefixtures("bench")
RNG = np.random.default_rng(0)
CASES: dict[str, Callable[..., Any]] = {
    "right": lambda x, w: x @ (w * 2 + 1),
    "right, turned": lambda x, w: x @ tb.exp(w.mT * 0.1).mT,
    "right, turned inside": lambda x, w: x @ tb.tanh(w.mT.mT),
    "both": lambda x, w: tb.relu(x) @ tb.relu(w),
    "right in batches": lambda x, w: x @ (w[None] * x[:3, 0, None, None]),
    "left": lambda x, w: tb.relu(x) @ w,
    "left, turned and shown": lambda x, w: (x[::2].mT * 2).mT @ w,
    "left in batches": lambda x, w: (x[None] - x[:3, :1, None]) @ w,
    "left, one for all": lambda x, w: tb.abs(x)[None] @ tb.stack([w, w + 1]),
    "left of integers": lambda x, w: (x * 9).to(tb.int32) @ (w * 9).to(tb.int32),
    "left of complex": lambda x, w: tb.real((x * (1 - 2j)) @ w.to(tb.complex64)),
    "left of bfloat16": lambda x, w: (x.to(tb.bfloat16) * 2) @ w.to(tb.bfloat16),
    "the same for both": lambda x, w: tb.abs(w.mT) @ w,
    "right for two": lambda x, w: (x @ (w * 2), w * 2),
    "right for two products": lambda x, w: (lambda y: x @ y + tb.abs(x) @ y)(tb.sin(w)),
    "one row": lambda x, w: x[:1] @ (w - 1),
    "one column": lambda x, w: (x * 3) @ w[:, :1],
    "right of bfloat16": lambda x, w: x.to(tb.bfloat16) @ (w.to(tb.bfloat16) * 2),
    "right of integers": lambda x, w: x @ ((w * 50).to(tb.int8).to(tb.float32) * 0.02),
}  # fmt: skip


@pytest.mark.parametrize("columns", [1, 7, 32, 100])
@pytest.mark.parametrize("rows", [3, 40, 300])
@pytest.mark.parametrize("name", CASES)
def test_they_are_what_eager_makes(name: str, rows: int, columns: int) -> None:
    x, w = (RNG.normal(size=s).astype("f4") for s in ((rows, 65), (65, columns)))
    operands = [tb.asarray(a, device="opencl") for a in (x, w)]
    ours, right = tb.compile(CASES[name], fullgraph=True)(*operands), CASES[name](*operands)
    for a, b in zip(*((v if isinstance(v, tuple) else (v,)) for v in (ours, right)), strict=True):
        narrow = a.dtype is tb.bfloat16
        a, b = (v.to("float32").numpy() for v in (a, b))
        size = np.abs(b).max()
        assert_within(a, b, 2 * gamma(65 + 8, "float32") * size + 2 * stored(size, "bfloat16") * narrow)
