"""Programs that are lowered once for many sizes give what eager code gives, at each size."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import plugins
from tensorbus.compiler.programs import program_cache
from tensorbus.tracing.plan_env import PlanEnv
from tensorbus.tracing.sym_int import SymInt

from error_bounds import assert_alike, assert_within, gamma, of_sum


def _attention(x: Any) -> Any:
    q = x.reshape((x.shape[0], 2, -1)).permute((1, 0, 2))
    return tb.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)


def _padded(x: Any) -> Any:
    y = tb.concat([x, tb.zeros((3, x.shape[1])), x[::2]], axis=0)
    return tb.cumulative_sum(y[1:-1], axis=0)


def _written(x: Any) -> Any:
    y = x * 2
    y[1:, :3] += 1
    y[0] = y[-1]
    return y, y[1:].sum(axis=0)


def _gathered(x: Any) -> Any:
    i = tb.arange(x.shape[0] - 1, -1, -1)
    return tb.take(x, i, axis=0), x[i % 2], tb.argmax(x, axis=0)


def _convolved(x: Any) -> Any:
    w = tb.ones((2, 1, 3)) / 3
    return tb.nn.functional.conv1d(x.reshape((1, 1, -1)), w, padding=1), (x - x.mean(axis=0)) / x.shape[0]


def _filtered(x: Any) -> Any:
    """A kernel that is called, with a length for an attribute."""
    return tb.fft.irfft(tb.fft.rfft(x, axis=0) * 2, n=x.shape[0], axis=0)


def _inverted(x: Any) -> Any:
    return tb.linalg.inv(x @ x.permute((1, 0)) + 4 * x.shape[1] * tb.eye(x.shape[0]))


def _gradient(x: Any) -> Any:
    w = tb.ones((x.shape[1], 5)).requires_grad_()
    loss = tb.log(tb.softmax(x @ w, axis=-1)[:, 0]).mean()
    loss.backward()
    return loss.detach(), w.grad


FUNCTIONS: list[Callable[[Any], Any]] = [
    lambda x: tb.softmax(x, axis=0) @ x.permute((1, 0)), _attention, _padded, _written, _gathered, _convolved,
    _filtered, _inverted, _gradient,
    lambda x: (tb.sort(x, axis=0), x.var(axis=0), tb.max(x), x.T.reshape((-1,))),
]  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "opencl", pytest.param("graphics", marks=pytest.mark.full)])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__.strip("_<>"))
def test_one_program_serves_sizes_that_it_has_not_seen(
    device: str, function: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "graphics":
        lowering = plugins.backend("opencl").lowering()
        monkeypatch.setattr(lowering, "compiler", _ThinCores(lowering.compiler))
    with tb.device("opencl" if device == "graphics" else device):
        compiled = tb.compile(function, dynamic=True)
        for n in (5, 9, 2, 33, 64, 65, 130, 1, 17, 33):
            x = tb.asarray(np.random.default_rng(n).standard_normal((n, 8)).astype("f"))
            assert_alike(compiled(x), function(x), n + 16)  # sums of a column, or of eight
        assert len(compiled.replays) <= 2


def test_a_new_size_is_not_lowered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[Any] = []
    plan = program_cache.symbolic_plan
    monkeypatch.setattr(program_cache, "symbolic_plan", lambda *a: results.append(a[-1]) or plan(*a))
    compiled = tb.compile(lambda x: tb.softmax(x @ x.T, axis=-1).sum(axis=0))
    for n in range(200, 250):
        compiled(tb.ones((n, 32)))
    assert len(results) == 1
    assert len(compiled.replays) <= 2


def test_decisions_that_only_concern_speed_split_no_range_of_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Any] = []
    plan = program_cache.symbolic_plan
    monkeypatch.setattr(program_cache, "symbolic_plan", lambda *a: plans.append(a[-1]) or plan(*a))

    def attend(x: Any) -> Any:
        return tb.softmax(tb.tanh(x) @ x.T, axis=-1) @ x

    compiled = tb.compile(attend, dynamic=True, compare_eager=True)
    for n in range(40, 250, 7):
        x = tb.linspace(-1, 1, n * 16).reshape((n, 16))
        assert_alike(compiled(x), attend(x), n + 16)
    assert len(plans) == 1
    assert all(entry.comparison is None for entry in compiled.replays if entry.shape_env.symbols)


class _ThinCores:
    """A device's compiler, as of one whose rows are split among work-items: a graphics processor."""

    def __init__(self, compiler: Any) -> None:
        self._compiler = compiler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiler, name)

    def dialect(self, index: int) -> Any:
        """Return its language, for thin cores."""
        own = self._compiler.dialect(index)
        return replace(own, target=replace(own.target, row_per_task=False, lanes=4))


def test_graphics_processors_have_a_program_for_a_range_of_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    lowering = plugins.backend("opencl").lowering()
    results: list[Any] = []
    plan = program_cache.symbolic_plan
    monkeypatch.setattr(program_cache, "symbolic_plan", lambda *a: results.append(plan(*a)) or results[-1])
    for compiler in (lowering.compiler, _ThinCores(lowering.compiler)):
        monkeypatch.setattr(lowering, "compiler", compiler)
        results.clear()
        compiled = tb.compile(lambda x: tb.sort(x * 3, axis=0)[1:] + x.sum(), dynamic=True)
        for n in (4, 6, 11):
            x = np.random.default_rng(n).standard_normal((n, 7)).astype("f")
            result = compiled(tb.asarray(x, device="opencl")).numpy()
            wanted = np.sort(x * np.float64(3), axis=0)[1:] + x.sum(dtype="f8")
            assert_within(result, wanted, of_sum(x, None, "float32") + gamma(2, "float32") * abs(wanted))
        assert [x.is_special for x in results] == [False]


_OPS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a // (b * b + 1),
    lambda a, b: a % (b * b + 1), lambda a, b: -(-a // 8), lambda a, b: a >> 2, lambda a, b: a & 7,
    lambda a, b: a < b, lambda a, b: a == b, lambda a, b: min(a, b), lambda a, b: a.bit_length(),
]  # fmt: skip


def test_lengths_of_a_plan_are_the_integers_wherever_its_conditions_hold() -> None:
    chance = random.Random(0)

    def run(a: Any, b: Any, seed: float) -> list[Any]:
        each, pool, outs = random.Random(seed), [a, b, 3, 8], []
        for _ in range(8):
            out = each.choice(_OPS)(each.choice(pool), each.choice(pool))
            outs.append(out)
            if type(out) is not bool:
                pool.append(out)
        return outs

    held = 0
    for _ in range(200):
        env, seed = PlanEnv(), chance.random()
        hints = {name: chance.randint(2, 40) for name in ("s0", "s1")}
        symbolic = run(*[env.symbol(name, n, 2) for name, n in hints.items()], seed)
        for sizes in [hints, *[{name: chance.randint(2, 60) for name in hints} for _ in range(20)]]:
            if env.holds()(**sizes):
                held += sizes is not hints
                values = [eval(x.text, {}, dict(sizes)) if type(x) is SymInt else x for x in symbolic]
                assert values == run(*sizes.values(), seed), env.conditions
    assert held > 500
