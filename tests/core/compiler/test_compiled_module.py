"""A compiled module is used as the module is: trained, saved, copied, moved, put into others."""

from __future__ import annotations

import copy
import pickle

import pytest
import tensorbus as tb
from tensorbus import nn


def model_and_compiled():
    tb.manual_seed(3)
    model = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5), nn.Linear(3, 1)).eval()
    return model, tb.compile(model)


def test_it_shares_the_state_of_its_module() -> None:
    model, compiled = model_and_compiled()
    assert isinstance(compiled, nn.Sequential)
    assert compiled[0] is model[0]
    assert list(compiled.state_dict()) == list(model.state_dict())
    assert [*map(id, compiled.parameters())] == [*map(id, model.parameters())]
    compiled.train()
    assert model.training
    assert model[1].training
    model.eval()
    assert not compiled.training
    compiled.scale = 2
    assert model.scale == 2
    assert repr(compiled) == repr(model)


def test_it_is_compiled_and_follows_changes_of_either() -> None:
    model, compiled = model_and_compiled()
    x = tb.ones((4, 2))
    for _ in range(2):
        assert compiled(x).tolist() == model(x).tolist()
    assert len(compiled.replays) == 1
    with tb.no_grad():
        model[0].weight[...] = model[0].weight * 2
    assert compiled(x).tolist() == model(x).tolist()
    handle = compiled.register_forward_hook(lambda module, args, out: out + 1)
    assert compiled(x).tolist() == model(x).tolist()
    handle.remove()
    compiled.load_state_dict({k: v * 0 for k, v in model.state_dict().items()})
    assert compiled(x).tolist() == [[0.0]] * 4


def test_copies_and_pickles_are_compiled_anew() -> None:
    model, compiled = model_and_compiled()
    x = tb.ones((4, 2))
    want = compiled(x).tolist()
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert other(x).tolist() == want
        assert len(other.replays) == 1
        with tb.no_grad():
            other[2].weight[...] = 0.0
            other[2].bias[...] = 0.0
        assert other(x).tolist() == [[0.0]] * 4
    assert compiled(x).tolist() == want == model(x).tolist()


def test_it_is_a_child_of_other_modules() -> None:
    _, compiled = model_and_compiled()
    whole = nn.Sequential(compiled, nn.ReLU())
    assert list(whole.state_dict()) == [f"0.{name}" for name in compiled.state_dict()]
    x = tb.ones((4, 2))
    assert tb.compile(whole)(x).tolist() == whole(x).tolist()


def test_another_module_of_its_class_has_weights_of_its_own() -> None:
    class Scale(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.weight = nn.Parameter(tb.full((2,), factor))

        @classmethod
        def of_factor(cls, factor: float) -> Scale:
            return cls(factor)

        def twice(self) -> Scale:
            return type(self)(2 * float(self.weight[0]))

        def forward(self, x: tb.Tensor) -> tb.Tensor:
            return x * self.weight

    compiled, x = tb.compile(Scale(3.0)), tb.ones(2)
    assert compiled(x).tolist() == [3.0, 3.0]
    assert compiled.twice()(x).tolist() == [6.0, 6.0]
    assert compiled.of_factor(5.0)(x).tolist() == type(compiled)(5.0)(x).tolist() == [5.0, 5.0]
    assert compiled(x).tolist() == [3.0, 3.0]


@tb.compile
def added(x):
    return x + 1


class Named:
    factor = 4.0

    @tb.compile
    def times(self, x):
        return x * self.factor

    @tb.compile
    @classmethod
    def of_the_class(cls, x):
        return x * cls.factor

    @tb.compile
    @staticmethod
    def of_none(x):
        return x - 1


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_decorated_function_is_pickled_by_its_name(protocol: int) -> None:
    for fn in (added, Named.times, Named.of_none):
        assert pickle.loads(pickle.dumps(fn, protocol)) is fn
    x = tb.ones(2)
    assert pickle.loads(pickle.dumps(Named().times, protocol))(x).tolist() == [4.0, 4.0]


def test_methods_of_the_class_and_of_none() -> None:
    x = tb.ones(2)
    for _ in range(2):
        assert Named.of_the_class(x).tolist() == Named().of_the_class(x).tolist() == [4.0, 4.0]
        assert Named.of_none(x).tolist() == Named().of_none(x).tolist() == [0.0, 0.0]


def test_methods_are_bound_as_methods_are() -> None:
    class Scale:
        def __init__(self, k):
            self.k = k

        @tb.compile
        def times(self, x, *, more=0):
            return x * self.k + more

        @classmethod
        @tb.compile
        def twice(cls, x):
            return x * 2

    two, three, x = Scale(2), Scale(3), tb.ones(2)
    assert two.times(x).tolist() == [2, 2]
    assert three.times(x, more=1).tolist() == [4, 4]
    assert two.times == two.times
    assert two.times.__self__ is two
    assert tb.compile(two.times)(x).tolist() == [2, 2]
    assert Scale.twice(x).tolist() == two.twice(x).tolist() == [2, 2]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.seen = nn.Linear(2, 2), []

    def forward(self, x, scale=1.0):
        self.seen.append(self)
        return self.first(x) * scale


def test_a_module_compiled_in_place() -> None:
    tb.manual_seed(3)
    model, x = Net(), tb.ones((4, 2))
    want = [model(x).tolist(), model(x, scale=2.0).tolist()]
    names, message = list(model.state_dict()), repr(model)
    assert model.compile(dynamic=False) is None
    for _ in range(3):
        assert [model(x).tolist(), model(x, scale=2.0).tolist()] == want
    assert (type(model), repr(model), list(model.state_dict())) == (Net, message, names)
    assert len(model.seen) == 8
    assert all(actual is model for actual in model.seen)
    handle = model.register_forward_hook(lambda module, args, out: out + (module is model))
    for _ in range(2):
        assert model(x).tolist() == (tb.asarray(want[0]) + 1).tolist()
    handle.remove()
    model(x).sum().backward()
    assert model.first.bias.grad.tolist() == [4.0, 4.0]
    model.first.load_state_dict({k: v * 0 for k, v in model.first.state_dict().items()})
    assert model(x).tolist() == [[0.0, 0.0]] * 4


def test_blocks_compiled_in_place_run_as_programs() -> None:
    model, x = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.ReLU())), tb.ones((4, 2))
    model.apply(lambda m: nn.init.ones_(m.weight) if isinstance(m, nn.Linear) else None)
    want = model(x).tolist()
    model[1].compile(fullgraph=True)
    compiled = model[1]._hooks.compiled
    for _ in range(3):
        assert model(x).tolist() == want
    assert len(compiled.replays) == 1, compiled.reasons
    assert tb.compile(model)(x).tolist() == want
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.copy(model)):
        assert other(x).tolist() == want
    other = copy.deepcopy(model)
    nn.init.zeros_(other[1][0].weight)
    assert other(x).tolist() != want
    assert model(x).tolist() == want
