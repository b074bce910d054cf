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
from tensorbus.compiler.replay.cache_entry import GUARD_MISS


class Side(enum.Enum):
    LEFT = 1
    RIGHT = 2


class MarkedError(Exception):
    """Its arguments are no attributes."""


def texts(f: Callable[..., Any], x: list[Any]) -> list[str]:
    """Return what ``f`` says of each, as often as it takes to run a captured program."""
    return [repr(f(tb.ones((2,)), x)) for each in x for x in (each, each)]


def representations(x: tb.Tensor, values: Any) -> tuple[tb.Tensor, list[str]]:
    return x + len(values), [repr(v) for v in values]


@pytest.mark.parametrize(
    "x",
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
def test_items_of_sets_and_keys_of_dicts(x: list[Any]) -> None:
    assert texts(tb.compile(representations), x) == texts(representations, x)


def test_equal_keys_are_one_capture() -> None:
    f = tb.compile(representations)
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
        named: defaultdict[str, list[int]] = defaultdict(list, {name: [k] for k, name in enumerate(names)})
        f(tb.ones((2,)), named)
        assert [*named] == [*names]


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
    results = []
    for factor, shared in ((2, 1), (2, 1), (3, 1), (3, 1), (3, 10), (3, 10)):
        Scale.ONE.factor, Scale.shared = factor, shared
        results.append(f(Scale.ONE, tb.ones((1,))).item())
    assert results == [2.0, 2.0, 3.0, 3.0, 30.0, 30.0]


def test_arguments_of_exceptions() -> None:
    @tb.compile
    def scaled(x: tb.Tensor, error: MarkedError) -> tb.Tensor:
        return x * error.args[0]

    @tb.compile
    def marked(x: tb.Tensor) -> tuple[tb.Tensor, MarkedError]:
        return x + 1, MarkedError("made", *x.shape)

    for factor in (1, 1, 2, 2):
        assert scaled(tb.ones((1,)), MarkedError(factor)).tolist() == [factor]
        assert marked(tb.ones((2,)))[1].args == ("made", 2)


@pytest.mark.parametrize(
    "make", [object, lambda: type("Made", (), {}), lambda: tb.nn.ReLU(), lambda: [1].append, tb.Generator]
)
def test_an_object_that_a_call_creates_is_new_at_each_call(make: Callable[[], Any]) -> None:
    @tb.compile
    def f(x: tb.Tensor) -> tuple[tb.Tensor, Any]:
        return x + 1, make()

    results = [f(tb.ones((2,)))[1] for _ in range(4)]
    assert len({id(x) for x in results}) == 4


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


def _training(compiled: bool) -> tuple[Any, Any, Any]:
    """Return a step of a model with so many parameters that their guards are merged, it and its optimizer."""
    tb.manual_seed(0)
    model = tb.nn.Sequential(*[tb.nn.Linear(2, 2) for _ in range(12)])
    optimizer = tb.optim.Adam(model.parameters(), lr=0.1)

    def step(x: tb.Tensor) -> list[tb.Tensor]:
        optimizer.zero_grad()
        (model(x) ** 2).sum().backward()
        optimizer.step()
        return [p.detach() for p in model.parameters()]

    return tb.compile(step, compare_eager=False) if compiled else step, model, optimizer


def test_the_state_of_many_parameters_is_guarded_by_few_conditions() -> None:
    """Another tensor, key or history in the state of one parameter of many is noticed all the same."""

    def changed_average(model: Any, optimizer: Any) -> None:
        optimizer.state[model[7].weight]["exp_avg"] = tb.ones((2, 2))

    def cleared_state(model: Any, optimizer: Any) -> None:
        optimizer.state.pop(model[5].bias)

    def replaced_state(model: Any, optimizer: Any) -> None:
        optimizer.state[model[3].bias] = dict(reversed(optimizer.state[model[3].bias].items()))

    def another_count(model: Any, optimizer: Any) -> None:
        optimizer.state[model[3].weight]["step"] = 1
        optimizer.param_groups[0]["lr"] = 0.05

    x = tb.asarray([[1.0, 2.0]])
    (step, *mine), (compiled, *its) = _training(False), _training(True)
    checked: list[Any] = []
    changes = (None, changed_average, None, cleared_state, None, replaced_state, None, another_count, None)
    for change in (None, *changes):
        if change is not None:
            change(*mine)
            change(*its)
        pairs = zip(step(x), compiled(x), strict=True)
        assert all(bool((abs(a - b) < 1e-4).all()) for a, b in pairs)
        checked = checked or [g for g in compiled.replays[0].guards if not g.on_mutation_only and not g.binds]
    assert any("of the kind" in g.text for g in checked)
    assert not any("exp_avg" in g.code for g in checked)


def _state_changes() -> dict[str, Callable[[Any, Any], Any]]:
    """Return changes of an optimizer that a captured step has to notice; each gets the model too."""

    def merge(model: Any, optimizer: Any) -> None:
        entries = optimizer.state[model[3].bias]
        entries |= {"exp_avg": tb.ones((2,))}

    def fail(model: Any, optimizer: Any) -> None:
        with pytest.raises(TypeError):
            optimizer.state[model[3].bias].update([("exp_avg", tb.ones((2,))), 1])

    return {
        "an average": lambda m, o: o.state[m[7].weight].__setitem__("exp_avg", tb.ones((2, 2))),
        "a number for an average": lambda m, o: o.state[m[7].weight].__setitem__("exp_avg", 1),
        "a tensor for a number": lambda m, o: o.state[m[7].weight].__setitem__("step", tb.asarray(1.0)),
        "an entry more": lambda m, o: o.state[m[1].bias].update(more=0),
        "no entry": lambda m, o: o.state[m[1].bias].pop("exp_avg"),
        "the order": lambda m, o: o.state[m[1].bias].update(step=o.state[m[1].bias].pop("step")),
        "merged": merge,
        "a failing update": fail,
        "all entries of one": lambda m, o: o.state[m[3].bias].clear(),
        "a plain dict": lambda m, o: o.state.update({m[3].bias: dict(o.state[m[3].bias])}),
        "no state of one": lambda m, o: o.state.pop(m[5].bias),
        "no state of another": lambda m, o: o.state.__delitem__(m[6].bias),
        "no state of the last": lambda m, o: o.state.popitem(),
        "state of another": lambda m, o: o.state.setdefault(tb.ones(2), {}),
        "another table": lambda m, o: setattr(o, "state", dict(o.state)),
        "loaded": lambda m, o: o.load_state_dict(o.state_dict()),
        "cleared": lambda m, o: o.state.clear(),
        "a setting": lambda m, o: o.param_groups[0].__setitem__("eps", 0.5),
        "a group without one": lambda m, o: o.param_groups[0]["params"].pop(),
        "a group more": lambda m, o: o.add_param_group({"params": [tb.nn.Parameter(tb.ones(2))]}),
        "a parameter that requires none": lambda m, o: m[4].weight.requires_grad_(False),
        # the last one: what has a history keeps it
        "a history": lambda m, o: o.state[m[4].bias]["exp_avg"].add_(m[4].bias * 2),
    }


@pytest.mark.parametrize("plain", [False, True], ids=["counted", "plain"])
def test_each_change_of_the_state_of_an_optimizer_is_noticed(plain: bool) -> None:
    """Its dicts count their changes; of plain dicts, which a user may put there, everything is compared."""
    x = tb.asarray([[1.0, 2.0]])
    compiled, model, optimizer = _training(True)
    for _ in range(2):
        compiled(x)
    if plain:
        optimizer.state = {p: dict(entries) for p, entries in optimizer.state.items()}
        compiled(x)
    entry = compiled.replays[0]

    def misses() -> bool:
        return entry.run((x,), {}) is GUARD_MISS

    state, groups = optimizer.state, optimizer.param_groups
    (group,) = groups
    settings, params = {**group}, group["params"]
    listed = [*params]
    for name, change in _state_changes().items():
        assert not misses(), f"before {name}: {entry.first_failing_guard((x,), {})}"
        before = [(p, entries, [*entries.items()]) for p, entries in state.items()]
        change(model, optimizer)
        assert misses(), name
        state.clear()
        for p, entries, items in before:
            entries.clear()
            entries.update(items)
            state[p] = entries
        optimizer.state, optimizer.param_groups = state, groups
        groups[:], params[:] = [group], listed
        group.update(settings)
        model[4].weight.requires_grad_()
