"""Symbolic sizes that differ at each call: compiling a program for each would take longer than Python."""

from __future__ import annotations

from typing import Any

import pytest
import tensorbus as tb
from tensorbus import nn
from tensorbus.compiler.programs import program_cache as executables
from tensorbus.compiler.programs.program_cache import LARGE_ELEMENTS, ShapeSpecializations

from error_bounds import assert_alike

AT_ONCE = 16
STEPS, STEP_ROUNDINGS = 28 + 20 + 28, 32
"""Steps of training, each of which goes on from the last; sums of the batch in each, forward and back."""


@pytest.fixture
def family(monkeypatch) -> list[ShapeSpecializations]:
    """The families that were made, by a clock on which a second passes at each look."""
    results: list[ShapeSpecializations] = []
    begin = ShapeSpecializations.__init__

    def noted(self, *args, **kwargs) -> None:
        begin(self, *args, **kwargs)
        results.append(self)

    times = iter(range(1 << 30))
    monkeypatch.setattr(ShapeSpecializations, "__init__", noted)
    monkeypatch.setattr(executables, "EAGERLY_COMPILED_SIZES", AT_ONCE)
    monkeypatch.setattr(executables, "perf_counter", lambda: next(times))
    monkeypatch.setattr(executables, "symbolic_plan", lambda *_: None)  # as on a device without plans
    return results


def summed(x):
    return tb.softmax(x * 2, axis=0).sum() + x.mean()


def program_count(family: ShapeSpecializations) -> int:
    return len(family._programs)


def test_the_first_sizes_have_programs_at_once(family) -> None:
    compiled = tb.compile(summed, dynamic=True)
    for n in range(2, 3 + AT_ONCE):  # the first is of the run that was captured
        assert_alike(compiled(tb.ones(n)), summed(tb.ones(n)), 2 * n + 8)
    assert program_count(family[0]) == AT_ONCE


@pytest.mark.full
def test_later_sizes_are_compiled_when_python_has_spent_as_long(family) -> None:
    compiled = tb.compile(summed, dynamic=True)
    for n in range(2, 42):
        assert_alike(compiled(tb.ones(n)), summed(tb.ones(n)), 2 * n + 8)
    assert program_count(family[0]) == AT_ONCE
    for _ in range(5):  # on which Python has spent a second by now, but making a program takes several
        compiled(tb.ones(41))
    assert program_count(family[0]) == AT_ONCE + 1
    assert len(compiled.replays) == 1
    assert compiled.recompiles == []


@pytest.mark.full
def test_large_sizes_are_compiled_at_once(family) -> None:
    compiled = tb.compile(
        lambda x: tb.broadcast_to(x.sum(), (2, LARGE_ELEMENTS)).sum() + x.mean(), dynamic=True
    )
    for n in range(2, 42):
        compiled(tb.ones(n))
    assert program_count(family[0]) == 39


@pytest.mark.full
def test_another_mode_compiles_all_sizes(family) -> None:
    compiled = tb.compile(summed, dynamic=True, mode="reduce-overhead")
    for n in range(2, 42):
        compiled(tb.ones(n))
    assert program_count(family[0]) == 39


@pytest.mark.parametrize(("lengths", "in_python", "planned"), [
    ([*range(2, 80)], 0, [3, 16, 32, 48, 64]),  # plans serve 16 lengths
    ([*range(40, 2, -1)], 2, [39, 30, 14]),  # it shrinks: the first of each range may be alone
    ([*range(2, 14), 40, *range(14, 32)], 1, [3, 40, 17]),
    ([2, 40, 3, 70, 4], 2, [40, 70]),
])  # fmt: skip
def test_a_length_that_grows_has_its_next_plan_at_once(
    family, monkeypatch, lengths: list[int], in_python: int, planned: list[int]
) -> None:
    class Plan:
        """A plan that serves sixteen lengths."""

        is_special = False

        def __init__(self, arguments: tuple[Any, ...], n: int) -> None:
            self.arguments, self.range = arguments, n // 16

        def at(self, sizes: dict[str, int]) -> Any:
            (n,) = sizes.values()
            return executables._lookup_or_compile(*self.arguments, sizes) if n // 16 == self.range else None

    plans: list[int] = []
    runs: list[int] = []

    def plan(*arguments: Any) -> Plan:
        (n,) = arguments[-1].values()
        plans.append(n)
        return Plan(arguments[:-1], n)

    run = ShapeSpecializations.run
    monkeypatch.setattr(executables, "symbolic_plan", plan)
    monkeypatch.setattr(
        ShapeSpecializations, "run", lambda self, function: runs.append(1) or run(self, function)
    )
    compiled = tb.compile(summed, dynamic=True)
    for n in lengths:
        assert_alike(compiled(tb.ones(n)), summed(tb.ones(n)), 2 * n + 8)
    assert (len(runs), plans) == (in_python, planned)


def test_a_run_that_fails_counts(family) -> None:
    def factor(x):
        return tb.linalg.cholesky(x.T @ x + tb.eye(3) * x[0, 0])

    compiled = tb.compile(factor, dynamic=True)
    for n in range(2, 30):
        assert compiled(tb.ones((n, 3))).tolist() == factor(tb.ones((n, 3))).tolist()  # sums of whole numbers
    for _ in range(5):
        with pytest.raises(tb.errors.LinAlgError):
            compiled(tb.zeros((30, 3)))
    assert program_count(family[0]) == AT_ONCE + 1
    assert compiled(tb.ones((30, 3))).tolist() == factor(tb.ones((30, 3))).tolist()


@pytest.mark.full
def test_steps_of_training_go_on_whoever_runs_them(family) -> None:
    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = nn.functional.dropout(model(x), 0.25).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.steps = nn.Linear(3, 3), 0
            self.register_buffer("mean", tb.zeros(3))

        def forward(self, x):
            self.steps += 1
            self.mean = self.mean * 0.9 + x.mean(axis=0) * 0.1
            return self.layer(x) - self.mean

    models = [Model() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [tb.optim.Adam(m.parameters(), lr=0.01) for m in models]
    compiled = tb.compile(step, dynamic=True)
    losses: list[list[float]] = [[], []]
    for each, run in enumerate((step, compiled)):
        tb.manual_seed(3)
        for n in [*range(2, 30), *range(20, 40), *range(2, 30)]:
            x = tb.sin(tb.reshape(tb.arange(3.0 * n), (n, 3)))
            losses[each].append(run(models[each], optimizers[each], x).item())
    assert_alike(losses[1], losses[0], STEPS * STEP_ROUNDINGS)
    assert models[0].steps == models[1].steps
    for a, b in zip(models[0].state_dict().values(), models[1].state_dict().values(), strict=True):
        assert_alike(b, a, STEPS * STEP_ROUNDINGS)
    assert (
        AT_ONCE < max(map(program_count, family)) < 38
    )  # sets of sizes: Python has run the others each time
