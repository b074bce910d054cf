"""Products that add, attention between them, and gradients of tables, on a GPU: against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn
from tensorbus.ops.definition import table
from tensorbus_cuda import device as cuda

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda.why_unavailable() is not None, reason=f"cuda: {cuda.why_unavailable()}"),
]
CUDA = "cuda"


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> tuple[Any, np.ndarray]:
    x = tb.asarray(rng.standard_normal(shape).astype(np.float32), device=CUDA).to(dtype)
    return x, x.to(tb.float32).numpy().astype(np.float64)


def share(actual: Any, expected: np.ndarray) -> float:
    got = actual.detach().to(tb.float32).numpy()
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", [tb.bfloat16, tb.float16], ids=str)
@pytest.mark.parametrize("rows", [1, 200, 8192])
def test_rows_and_matrices_are_added(rows: int, dtype: Any, compiled: bool, rng: np.random.Generator) -> None:
    run: Callable[..., Any] = table.function("affine")
    call = tb.compile(lambda x, w, *added: run(x, w.mT, *added)) if compiled else None
    (x, a), (w, b), (row, r), (whole, c) = (
        drawn(rng, s, dtype) for s in ((rows, 128), (320, 128), (320,), (rows, 320))
    )
    for _ in range(3):
        for added, plus in (((row,), r), ((whole,), c), ((row, whole), r + c)):
            result = call(x, w, *added) if call is not None else run(x, w.mT, *added)
            assert share(result, a @ b.T + plus) < (4e-3 if dtype is tb.bfloat16 else 6e-4)


class Block(nn.Module):
    """Attention whose query, key and value one product makes, with a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = tb.reshape(self.mix(x), (batch, length, 3, self.heads, width // self.heads))
        q, k, v = tb.unstack(tb.permute_dims(parts, (2, 0, 3, 1, 4)))
        out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(tb.reshape(tb.permute_dims(out, (0, 2, 1, 3)), (batch, length, width)))


@pytest.mark.parametrize("length", [1, 96])
def test_a_block_and_its_gradients(length: int, rng: np.random.Generator) -> None:
    wide = Block(128, 4).to(tb.float64)
    with tb.device(CUDA):
        block = Block(128, 4).to(tb.bfloat16)
    block.load_state_dict(
        {k: v.to(tb.float32).to(CUDA).to(tb.bfloat16) for k, v in wide.state_dict().items()}
    )
    wide.load_state_dict(
        {k: v.to(tb.float32).to("cpu").to(tb.float64) for k, v in block.state_dict().items()}
    )
    x, a = drawn(rng, (2, length, 128), tb.bfloat16)
    g, h = drawn(rng, (2, length, 128), tb.bfloat16)

    def step(net: Any, x: Any, g: Any) -> Any:
        for p in net.parameters():
            p.grad = None
        y = net(x)
        (y * g).sum().backward()
        return y.detach()

    expected = step(wide, tb.asarray(a, device="cpu"), tb.asarray(h, device="cpu")).numpy()
    compiled = tb.compile(lambda x, g: step(block, x, g))
    grads = {name: p.grad for name, p in wide.named_parameters()}
    for _ in range(3):
        assert share(compiled(x, g), expected) < 1e-2
        for name, p in block.named_parameters():
            if np.linalg.norm(grads[name].numpy()) > 1e-6:  # of the keys' bias it is 0
                assert share(p.grad, grads[name].numpy()) < 3e-2, name


@pytest.mark.parametrize(("count", "rows", "wide"), [(8192, 50257, 64), (600, 7, 33), (1000, 1, 32)])
def test_indices_that_meet_are_added_in_order(
    count: int, rows: int, wide: int, rng: np.random.Generator
) -> None:
    index = rng.integers(0, rows, count)
    value = rng.integers(-9, 9, (count, wide)).astype(np.float32)
    x = rng.integers(-9, 9, (rows, wide)).astype(np.float32)
    expected = x.copy()
    np.add.at(expected, index, value)
    actual = table.function("scatter")(*(tb.asarray(a, device=CUDA) for a in (x, value, index)), mode="add")
    assert np.array_equal(actual.numpy(), expected)
    with pytest.raises(IndexError, match="scatter"):
        table.function("scatter")(
            *(tb.asarray(a, device=CUDA) for a in (x, value, index + rows)), mode="add"
        ).numpy()
