"""Training steps on cpu keep state in place, gradients too, and large results over their operands."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn, optim
from tensorbus.compiler.programs import program_cache as executables
from tensorbus.errors import IndexingError

from error_bounds import assert_within, gamma, of_product
from training_steps import check_steps

RNG = np.random.default_rng(3)
WORDS, WIDTH = 37, 24


class Tied(nn.Module):
    """An embedding whose weight gives the logits too."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(WORDS, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, tokens: Any) -> Any:
        return nn.functional.linear(self.norm(self.words(tokens)), self.words.weight)


def training(model: Any, targets: Any) -> Any:
    optimizer = optim.SGD(model.parameters(), lr=0.5)

    def step(tokens: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(tb.reshape(model(tokens), (-1, WORDS)), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def models() -> tuple[Tied, Tied]:
    first, second = Tied(), Tied()
    second.load_state_dict(first.state_dict())
    return first, second


def newest() -> Any:
    return list(executables._programs.values())[-1].executable


def test_rows_are_added_onto_the_gradient_of_a_tied_weight() -> None:
    tokens, targets = (tb.asarray(RNG.integers(0, WORDS, s)) for s in ((2, 15), (30,)))
    check_steps((Tied(), Tied(), Tied()), lambda model: training(model, targets), tokens, 30 + WIDTH + WORDS)


def test_an_index_out_of_range_changes_no_parameter() -> None:
    _, model = models()
    tokens, targets = tb.asarray(RNG.integers(0, WORDS, (2, 15))), tb.asarray(RNG.integers(0, WORDS, 30))
    step = tb.compile(training(model, targets))
    for _ in range(3):
        step(tokens)
    before = [p.numpy().copy() for p in model.parameters()]
    with pytest.raises(IndexingError, match=f"index {WORDS} is out of range"):
        step(tb.full((2, 15), WORDS, dtype=tb.int64))
    for p, old in zip(model.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.numpy(), old)
    step(tokens)


def test_old_gradients_leave_before_new_ones_come() -> None:
    _, model = models()
    tokens, targets = tb.asarray(RNG.integers(0, WORDS, (2, 15))), tb.asarray(RNG.integers(0, WORDS, 30))
    step = tb.compile(training(model, targets))
    for _ in range(3):
        step(tokens)
    held = model.words.weight.grad
    before = held.numpy().copy()
    step(tokens)
    np.testing.assert_array_equal(held.numpy(), before)
    assert model.words.weight.grad is not held


def test_gradients_that_add_up_are_not_let_go() -> None:
    weight = tb.asarray(np.ones(5, "f4")).requires_grad_()

    @tb.compile
    def add(x: Any) -> Any:
        (weight * x).sum().backward()
        return x

    for k in range(4):
        add(tb.asarray(np.full(5, 2.0, "f4")))
        assert weight.grad.tolist() == [2.0 * (k + 1)] * 5


def test_large_results_take_the_place_of_operands_that_nobody_reads() -> None:
    x, w = (RNG.standard_normal((512, 512)).astype("f4") for _ in range(2))

    @tb.compile
    def run(x: Any, w: Any) -> Any:
        y = x @ w
        return tb.exp(y / (1 + abs(y))) @ w

    for _ in range(3):
        got = run(tb.asarray(x), tb.asarray(w)).numpy()
    y = x.astype("f8") @ w
    inner = np.exp(y / (1 + abs(y)))
    off = of_product(x, w, "float32") / (1 + abs(y)) ** 2 + gamma(5, "float32")  # of the exponent
    bound = (inner * off) @ abs(w) + of_product(inner, w, "float32")
    assert_within(got, inner @ w, bound)
    loops = newest().stages()["loops"]
    sizes = [line for line in loops.splitlines() if line.startswith("%") and line.endswith("float32[262144]")]
    assert not sizes or len(sizes) <= 2  # the product, over which its function lies, and the result


@pytest.mark.parametrize("low", [-200.0, -104.5, -88.0, -1.0])
def test_exp_of_many_floats(low: float) -> None:
    x = np.linspace(low, low + 190, 1 << 18).astype("f4")
    x[:4] = [-np.inf, np.inf, np.nan, -0.0]
    with np.errstate(over="ignore", under="ignore"):
        want = np.exp(x.astype("f8")).astype("f4")
    got = tb.compile(tb.exp)(tb.asarray(x)).numpy()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_max_ulp(got[3:], want[3:], 2)
    assert got[0] == 0
    assert got[1] == np.inf


def test_blocks_that_lie_idle_go_back() -> None:
    from tensorbus_cpu.compiler import NATIVE

    compiler = NATIVE.compiler()
    assert compiler is not None
    reserved, set_idle = compiler.runtime.tb_reserved, compiler.runtime.tb_set_idle
    reserved.restype, set_idle.argtypes, set_idle.restype = ctypes.c_size_t, (ctypes.c_int64,), None
    x = tb.ones((1 << 22,))
    set_idle(1 << 60)
    try:
        del x
        before = reserved()
        assert before >= 1 << 24
        y = tb.ones((1 << 21,))
        assert reserved() >= 1 << 24, "nobody has waited yet"
        set_idle(-1)  # whatever lies there has done so for long enough
        z = tb.ones((1 << 20,))
    finally:
        set_idle(10**9)
    assert reserved() <= before - (1 << 24)
    assert float(y[-1]) == float(z[-1]) == 1


def test_indices_that_lie_backwards() -> None:
    tokens, targets = (tb.asarray(RNG.integers(0, WORDS, 30)) for _ in range(2))
    steps = 30 + WIDTH + WORDS
    check_steps((Tied(), Tied(), Tied()), lambda model: training(model, targets), tokens[::-1], steps)
