"""Guards behind the mutation counter are checked after it has moved, and compiled no sooner."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorbus as tb
from tensorbus.compiler.guards.guard import CounterGuards
from tensorbus.tracing.mutation_counter import mutation_counter

from error_bounds import assert_alike


class Scaled(tb.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = tb.nn.Linear(2, 2)

    def forward(self, x: tb.Tensor) -> tb.Tensor:
        out = self.inner(x)
        return out * 2 if self.training else out


def test_counter_guards_are_compiled_at_the_first_mutation() -> None:
    model, x = Scaled(), tb.ones((1, 2))
    compiled = tb.compile(lambda x: model(x))
    wanted = model(x).tolist()
    for _ in range(3):
        assert compiled(x).tolist() == wanted
    (replay,) = compiled.replays
    unchanged = replay.scope["unchanged"]
    assert isinstance(unchanged, CounterGuards)
    assert unchanged._run is None


def test_a_mutation_elsewhere_is_checked_once_and_does_not_recompile() -> None:
    model, other, x = Scaled(), Scaled(), tb.ones((1, 2))
    compiled = tb.compile(lambda x: model(x))
    wanted = compiled(x).tolist()
    other.eval()
    assert compiled(x).tolist() == wanted
    (replay,) = compiled.replays
    assert replay.scope["unchanged"]._run is not None
    assert replay.scope["checked"] == [mutation_counter[0]]


def test_changes_between_calls_are_seen_each_time() -> None:
    model, x = Scaled(), tb.ones((1, 2))
    compiled = tb.compile(lambda x: model(x))
    for change in (model.train, model.eval, model.eval, model.train):
        change()
        assert compiled(x).tolist() == model(x).tolist()
    model.inner = tb.nn.Linear(2, 2)
    assert compiled(x).tolist() == model(x).tolist()
    model.inner.weight.requires_grad_(False)
    assert compiled(x).requires_grad == model(x).requires_grad


def test_a_change_that_the_captured_run_makes_is_seen_by_the_next_call() -> None:
    model, x = Scaled(), tb.ones((1, 2))

    def step(x: tb.Tensor) -> tb.Tensor:
        out = model(x)
        model.eval()
        return out

    plain = [2 * v for v in model.inner(x).tolist()[0]]
    compiled = tb.compile(step)
    for times in (1, 2):
        assert_alike(compiled(x).tolist()[0], [v / times for v in plain], roundings=4)


@pytest.fixture
def made_up() -> Iterator[Any]:
    """A module that looks as if it were a part of the package, while one has been captured."""
    tb.compile(lambda x: tb.sin(x))(tb.ones(2))
    module = types.ModuleType("tensorbus.made_up")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]
    for name in ("made_up", "another"):
        if name in tb.__dict__:
            delattr(tb, name)


def test_importing_a_submodule_is_no_mutation(made_up: Any) -> None:
    before = mutation_counter[0]
    tb.made_up = made_up
    assert mutation_counter[0] == before
    tb.made_up = made_up  # in the place of something
    assert mutation_counter[0] == before + 1
    tb.another = made_up
    assert mutation_counter[0] == before + 2


@pytest.mark.parametrize(
    ("name", "call"), [("cat", lambda x: tb.cat([x, x])), ("isin", lambda x: tb.isin(x, x))]
)
def test_a_name_that_is_imported_when_first_named_is_no_change_of_its_module(
    name: str, call: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, right = tb.ones((3,)), call(tb.ones((3,))).tolist()
    monkeypatch.delitem(vars(tb), name)
    function = tb.compile(lambda x: call(x), fullgraph=True)
    assert function(x).tolist() == right
    assert len(function.replays) == 1, function.reasons
