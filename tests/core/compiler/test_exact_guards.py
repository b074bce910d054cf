"""Guards distinguish values where Python does: by type, order and identity."""

from __future__ import annotations

import enum
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import tensorbus as tb


class Side(enum.Enum):
    LEFT = 1
    RIGHT = 2


class MarkedError(Exception):
    """Its arguments are no attributes."""


def texts(f: Callable[..., Any], given: list[Any]) -> list[str]:
    """Return what ``f`` says of each, as often as it takes to run a captured program."""
    return [repr(f(tb.ones((2,)), x)) for each in given for x in (each, each)]


def said(x: tb.Tensor, values: Any) -> tuple[tb.Tensor, list[str]]:
    return x + len(values), [repr(v) for v in values]


@pytest.mark.parametrize(
    "given",
    [
        [{1}, {True}, {1.0}, {1, 2}],
        [{0.0}, {-0.0}],
        [frozenset({1}), frozenset({2}), frozenset({True})],
        [{0, 8}, {8, 0}],
        [frozenset([0, 8]), frozenset([8, 0])],
        [{1: 0}, {True: 0}, {1.0: 0}],
        [{0.0: 0}, {-0.0: 0}],
        [{math.inf: 0}, {-math.inf: 0}, {math.nan: 0}, {np.float32(1): 0}],
        [{(0, 1): 0, (1, 0): 0}, {(1, 0): 0, (0, 1): 0}, {(1, 0): 0, (0, True): 0}],
        [{Side.LEFT: 0, Side.RIGHT: 0}, {Side.RIGHT: 0, Side.LEFT: 0}],
        [{tb.float32: 0, int: 0}, {int: 0, tb.float32: 0}],
    ],
)
def test_items_of_sets_and_keys_of_dicts(given: list[Any]) -> None:
    assert texts(tb.compile(said), given) == texts(said, given)


def test_equal_keys_are_one_capture() -> None:
    f = tb.compile(said)
    for _ in range(3):
        f(tb.ones((2,)), {(0, 1): 0, Side.LEFT: 1, frozenset({3}): 2})
    assert len(f.replays) == 1


@dataclass(frozen=True)
class Named:
    name: str
    scale: float = field(compare=False)


@dataclass(frozen=True, slots=True)
class Slotted:
    name: str
    scale: float = field(compare=False)


@pytest.mark.parametrize("kind", [Named, Slotted])
def test_keys_that_are_equal_differ_in_what_they_hold(kind: Callable[[str, float], Any]) -> None:
    @tb.compile
    def f(x: tb.Tensor, d: dict[Any, int]) -> tb.Tensor:
        for key, n in d.items():
            x = x * key.scale * n
        return x

    @tb.compile
    def g(x: tb.Tensor, d: dict[frozenset[float], int]) -> tb.Tensor:
        return x * sum(v for key in d for v in key)

    for scale in (2.0, 2.0, 3.0, 3.0):
        assert f(tb.ones(()), {kind("a", scale): 1}).item() == scale
    assert len(f.replays) == 2
    x = tb.ones((), dtype=tb.int32)
    assert [g(x, {frozenset({v}): 0}).dtype for v in (1, 1.0, True)] == [tb.int32, tb.float32, tb.int32]


def test_modules_that_are_keys() -> None:
    layer = tb.nn.Linear(2, 2, bias=False)
    weights = {layer: 2.0}

    @tb.compile
    def f(x: tb.Tensor) -> tb.Tensor:
        return sum((m(x) * n * m.scale for m, n in weights.items()), tb.zeros((2,)))

    with tb.no_grad():
        for value, scale in ((1.0, 1), (3.0, 1), (3.0, 5)):
            layer.weight = tb.nn.Parameter(tb.full((2, 2), value))
            layer.scale = scale
            assert f(tb.ones((2,))).tolist() == [4 * value * scale] * 2
    assert not f.reasons


def test_asking_for_an_entry_makes_none() -> None:
    @tb.compile
    def f(x: tb.Tensor, d: Any) -> tb.Tensor:
        return x * sum(v[0] for v in d.values())

    for names in ("ab", "ab", "cd", "ab", "cd"):
        given: defaultdict[str, list[int]] = defaultdict(list, {name: [k] for k, name in enumerate(names)})
        f(tb.ones((2,)), given)
        assert [*given] == [*names]


def test_entries_of_a_counter_vary() -> None:
    counts: Counter[str] = Counter()

    @tb.compile
    def f(x: tb.Tensor) -> tb.Tensor:
        counts["runs"] += 1
        return x * counts["runs"]

    assert [f(tb.ones((1,))).tolist()[0] for _ in range(5)] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert counts == {"runs": 5}


def test_attributes_of_enum_members_and_their_classes() -> None:
    class Scale(enum.Enum):
        ONE = 1

        def of(self, x: tb.Tensor) -> tb.Tensor:
            return x * self.factor * self.shared

    f = tb.compile(Scale.of)
    found = []
    for factor, shared in ((2, 1), (2, 1), (3, 1), (3, 1), (3, 10), (3, 10)):
        Scale.ONE.factor, Scale.shared = factor, shared  # type: ignore[attr-defined]
        found.append(f(Scale.ONE, tb.ones((1,))).item())
    assert found == [2.0, 2.0, 3.0, 3.0, 30.0, 30.0]


def test_arguments_of_exceptions() -> None:
    @tb.compile
    def scaled(x: tb.Tensor, error: MarkedError) -> tb.Tensor:
        return x * error.args[0]

    @tb.compile
    def made(x: tb.Tensor) -> tuple[tb.Tensor, MarkedError]:
        return x + 1, MarkedError("made", *x.shape)

    for factor in (1, 1, 2, 2):
        assert scaled(tb.ones((1,)), MarkedError(factor)).tolist() == [factor]
        assert made(tb.ones((2,)))[1].args == ("made", 2)


@pytest.mark.parametrize(
    "make", [object, lambda: type("Made", (), {}), lambda: tb.nn.ReLU(), lambda: [1].append, tb.Generator]
)
def test_an_object_that_a_call_creates_is_new_at_each_call(make: Callable[[], Any]) -> None:
    @tb.compile
    def f(x: tb.Tensor) -> tuple[tb.Tensor, Any]:
        return x + 1, make()

    made = [f(tb.ones((2,)))[1] for _ in range(4)]
    assert len({id(x) for x in made}) == 4


def test_slices_hold_what_is_computed() -> None:
    @tb.compile
    def f(x: tb.Tensor, part: slice) -> tuple[tb.Tensor, slice, slice]:
        return x[part], slice(x.sum(), None), slice(0, x.shape[0])

    for n in (2, 2, 3, 3):
        out, summed, length = f(tb.ones((n,)), slice(1, n))
        assert out.shape == (n - 1,)
        assert summed.start.item() == n
        assert length == slice(0, n)
        assert f(tb.ones((4,)), slice(tb.asarray(n), None))[0].shape == (4 - n,)


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_set_that_each_call_changes(dynamic: bool | None) -> None:
    seen = {1, 2}

    @tb.compile(dynamic=dynamic)
    def f(x: tb.Tensor, k: int) -> tb.Tensor:
        seen.symmetric_difference_update({k})
        return x * len(seen)

    assert [f(tb.ones((1,)), 1).item() for _ in range(6)] == [1.0, 2.0] * 3
    assert seen == {1, 2}


def test_a_string_like_generated_code() -> None:
    @tb.compile
    def f(x: tb.Tensor, words: list[str]) -> tb.Tensor:
        words.append("return None")
        return x + 1

    for _ in range(3):
        words: list[str] = []
        f(tb.ones((2,)), words)
        assert words == ["return None"]


def test_the_state_of_many_parameters_is_guarded_by_few_conditions() -> None:
    """Another tensor, key or history in the state of one parameter of many is noticed all the same."""

    def build(compiled: bool) -> tuple[Any, Any, Any]:
        tb.manual_seed(0)
        model = tb.nn.Sequential(*[tb.nn.Linear(2, 2) for _ in range(12)])
        optimizer = tb.optim.Adam(model.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            (model(x) ** 2).sum().backward()
            optimizer.step()
            return [p.detach() for p in model.parameters()]

        return tb.compile(step) if compiled else step, model, optimizer

    def changed_average(model, optimizer):
        optimizer.state[model[7].weight]["exp_avg"] = tb.ones((2, 2))

    def cleared_state(model, optimizer):
        optimizer.state.pop(model[5].bias)

    def replaced_state(model, optimizer):
        optimizer.state[model[3].bias] = dict(reversed(optimizer.state[model[3].bias].items()))

    x = tb.asarray([[1.0, 2.0]])
    (fn, *mine), (compiled, *its) = build(False), build(True)
    for change in (None, None, changed_average, None, cleared_state, None, replaced_state, None):
        if change is not None:
            change(*mine)
            change(*its)
        pairs = zip(fn(x), compiled(x), strict=True)
        assert all(bool((abs(a - b) < 1e-4).all()) for a, b in pairs)
    checked = [g for g in compiled.replays[0].guards if not g.on_mutation_only and not g.binds]
    assert any("of the kind" in g.text for g in checked)
