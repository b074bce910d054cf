"""Modules that hold modules."""

from __future__ import annotations

import pytest
import tensorbus as tb
from tensorbus import nn


def test_sequential_runs_in_order_and_is_a_sequence():
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    x = tb.randn(5, 4)
    assert net(x).tolist() == net[2](net[1](net[0](x))).tolist()
    assert len(net) == 3
    assert net[-1] is net[2]
    assert list(net[1:]) == [net[1], net[2]]
    assert [n for n, _ in net[1:].named_children()] == ["1", "2"]
    tail = net[1:].append(nn.Tanh())
    assert [type(m).__name__ for m in tail] == ["ReLU", "Linear", "Tanh"]
    net[1] = nn.Tanh()
    assert isinstance(net[1], nn.Tanh)
    net.insert(0, nn.Identity())
    assert [type(m).__name__ for m in net] == ["Identity", "Linear", "Tanh", "Linear"]
    del net[0]
    assert list(net.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    with pytest.raises(IndexError, match="index 7 is out of range"):
        net[7]
    with pytest.raises(TypeError, match="function"):
        nn.Sequential(nn.ReLU(), lambda x: x)


def test_sequential_takes_names():
    net = nn.Sequential({"first": nn.Linear(2, 2), "last": nn.ReLU()})
    assert list(net.state_dict()) == ["first.weight", "first.bias"]
    assert net.first is net[0]


def test_lists_and_dicts_own_their_modules():
    layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(2)])
    layers.append(nn.Linear(2, 1))
    layers += [nn.ReLU()]
    assert len(list(layers.parameters())) == 6
    assert [n for n, _ in layers[1:].named_children()] == ["0", "1", "2"]
    heads = nn.ModuleDict({"a": nn.Linear(2, 2)})
    heads["b"] = nn.ReLU()
    assert list(heads) == ["a", "b"]
    assert "a" in heads
    assert [n for n, _ in heads.named_parameters()] == ["a.weight", "a.bias"]
    assert isinstance(heads.pop("b"), nn.ReLU)
    assert len(heads) == 1
    with pytest.raises(KeyError):
        heads["b"]
    with pytest.raises(TypeError, match="int"):
        heads["c"] = 3


def test_containers_add_up() -> None:
    first, second = nn.Sequential(nn.ReLU()), nn.Sequential(nn.Tanh())
    both = first + second
    assert (len(first), [type(m) for m in both]) == (1, [nn.ReLU, nn.Tanh])
    first += second
    assert [name for name, _ in first.named_children()] == ["0", "1"]
    with pytest.raises(TypeError, match=r"Sequential \+ list: another Sequential is needed"):
        first += [nn.ReLU()]
    parts = nn.ModuleList([nn.ReLU()])
    more = parts + [nn.Tanh()]  # noqa: RUF005 - it is no list
    assert (type(more), len(parts), len(more)) == (nn.ModuleList, 1, 2)
    more += parts
    assert len(more) == 3
    with pytest.raises(TypeError, match=r"ModuleList \+ int"):
        more + 3


def test_none_in_a_list_stands_for_a_module_left_out():
    """As in PyTorch, where blocks of ``[attention or None, feedforward]`` are common."""
    parts = nn.ModuleList([nn.Linear(2, 3), None, nn.Linear(3, 1)])
    parts.append(None)
    assert [part is None for part in parts] == [False, True, False, True]
    assert (len(parts), parts[1], parts[-1]) == (4, None, None)
    assert list(parts.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert [part is None for part in parts[1:3]] == [True, False]
    assert len(list(parts.modules())) == 3
    assert "(1): None" in repr(parts)
    assert nn.ModuleDict({"skip": None})["skip"] is None
    with pytest.raises(TypeError, match="Sequential holds modules"):
        nn.Sequential(nn.ReLU(), None)
