"""Modules: names, registration, moving, modes, state dicts."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import nn


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(2)
        self.scale = nn.Parameter(tb.ones((2,)))
        self.register_buffer("offset", tb.zeros((2,)))
        self.register_buffer("scratch", tb.zeros((1,)), persistent=False)

    def forward(self, x: tb.Tensor) -> tb.Tensor:
        return self.norm(self.linear(x)) * self.scale + self.offset


KEYS = [
    "scale", "offset", "linear.weight", "linear.bias", "norm.weight", "norm.bias", "norm.running_mean",
    "norm.running_var", "norm.num_batches_tracked",
]  # fmt: skip


def test_names_follow_the_order_of_assignment_parameters_first():
    block = Block()
    assert [n for n, _ in block.named_parameters()] == [
        "scale", "linear.weight", "linear.bias", "norm.weight", "norm.bias"
    ]  # fmt: skip
    assert [n for n, _ in block.named_modules()] == ["", "linear", "norm"]
    assert [n for n, _ in block.named_children()] == ["linear", "norm"]
    assert [n for n, _ in block.named_buffers()][:2] == ["offset", "scratch"]
    assert list(block.state_dict()) == KEYS
    assert block.get_parameter("linear.bias") is block.linear.bias
    assert block.get_submodule("norm") is block.norm
    with pytest.raises(AttributeError, match=r"nothing"):
        block.get_submodule("nothing")


def test_a_shared_parameter_is_listed_once_and_saved_under_each_name():
    a, b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    b.weight = a.weight
    both = nn.Sequential(a, b)
    assert [n for n, _ in both.named_parameters()] == ["0.weight"]
    assert list(both.state_dict()) == ["0.weight", "1.weight"]
    both.to(tb.float64)
    assert both[0].weight is both[1].weight


def test_a_parameter_is_a_leaf_tensor():
    data = tb.ones((2,))
    weight = nn.Parameter(data)
    assert isinstance(weight, tb.Tensor)
    assert isinstance(weight, nn.Parameter)
    assert weight.requires_grad
    assert weight.is_leaf
    assert not data.requires_grad
    (weight * weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [2.0, 2.0]
    assert type(weight * 1) is tb.Tensor
    assert repr(weight).startswith("Parameter containing:\ntensor(")
    assert not nn.Parameter(tb.asarray([1, 2]), requires_grad=False).requires_grad
    with pytest.raises(tb.AutogradError, match="int64"):
        nn.Parameter(tb.asarray([1, 2]))
    with pytest.raises(TypeError, match="list"):
        nn.Parameter([1.0])


def test_a_deep_copy_shares_nothing():
    block = Block()
    other = copy.deepcopy(block)
    assert isinstance(other.scale, nn.Parameter)
    assert other.linear.weight is not block.linear.weight
    with tb.no_grad():
        other.scale *= 3
        other.offset += 1
    assert block.scale.tolist() == [1.0, 1.0]
    assert block.offset.tolist() == [0.0, 0.0]


def test_assignment_keeps_parameters_parameters():
    block: Any = Block()
    with pytest.raises(TypeError, match=r"Block\.scale holds a Parameter"):
        block.scale = tb.ones((2,))
    with pytest.raises(TypeError, match=r"offset holds a Tensor or None, got float"):
        block.offset = 1.0
    block.scale = None
    assert "scale" not in dict(block.named_parameters())
    block.linear = nn.Parameter(tb.ones((1,)))  # another kind takes the name over
    assert [n for n, _ in block.named_children()] == ["norm"]
    del block.norm
    with pytest.raises(AttributeError, match="norm"):
        _ = block.norm


def test_registration_refuses_bad_names_and_kinds():
    block = Block()
    with pytest.raises(KeyError, match="already has an attribute 'forward'"):
        block.register_buffer("forward", tb.ones((1,)))
    with pytest.raises(KeyError, match="no dot"):
        block.register_parameter("a.b", None)
    with pytest.raises(TypeError, match="a parameter is a Parameter or None, got Tensor"):
        block.register_parameter("other", tb.ones((1,)))
    with pytest.raises(TypeError, match="a module is a Module or None, got int"):
        block.add_module("other", 3)

    class Early(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(tb.ones((1,)))

    with pytest.raises(AttributeError, match=r"call super\(\).__init__\(\) in Early"):
        Early()


def test_a_module_without_forward_says_so():
    with pytest.raises(NotImplementedError, match="ModuleList has no forward"):
        nn.ModuleList()(tb.ones((1,)))


def test_modes_and_gradients_reach_every_module():
    block = Block()
    assert block.eval() is block
    assert not block.norm.training
    block.train()
    assert block.norm.training
    block(tb.randn(4, 3)).sum().backward()
    assert block.linear.weight.grad is not None
    block.zero_grad(set_to_none=False)
    assert block.linear.weight.grad.tolist() == tb.zeros((2, 3)).tolist()
    block.zero_grad()
    assert block.linear.weight.grad is None
    block.requires_grad_(False)
    assert not any(p.requires_grad for p in block.parameters())
    seen: list[nn.Module] = []
    block.apply(seen.append)
    assert seen == [block.linear, block.norm, block]


def test_moving_keeps_cells_and_moves_gradients():
    block = Block()
    block(tb.randn(4, 3)).sum().backward()
    before = list(block.parameters())
    assert block.to("cpu", tb.float64) is block
    assert all(a is b for a, b in zip(before, block.parameters(), strict=True))
    assert {p.dtype for p in before} == {tb.float64}
    assert {p.grad.dtype for p in before if p.grad is not None} == {tb.float64}
    assert block.norm.running_mean.dtype is tb.float64
    assert block.norm.num_batches_tracked.dtype is tb.int64
    block.to(tb.ones((), dtype=tb.float32))
    assert block.scale.dtype is tb.float32
    with pytest.raises(tb.DtypeError, match="int32"):
        block.to(tb.int32)
    with pytest.raises(tb.DeviceUnavailableError, match="no-such"):
        block.to("no-such")
    assert block.scale.dtype is tb.float32


def test_a_state_dict_shows_the_parameters_and_loads_back():
    block, other = Block(), Block()
    state = block.state_dict()
    before = copy.deepcopy(state)
    with tb.no_grad():
        block.scale += 5
        state["linear.weight"].mul_(2)
    assert state["scale"].tolist() == [6.0, 6.0]
    assert before["scale"].tolist() == [1.0, 1.0]
    assert block.linear.weight.tolist() == (before["linear.weight"] * 2).tolist()
    assert not state["scale"].requires_grad
    cell = other.linear.weight
    result = other.load_state_dict(state)
    assert result == ([], [])
    assert other.linear.weight is cell
    assert cell.tolist() == block.linear.weight.tolist()
    assert cell.requires_grad
    other.to(tb.float64).load_state_dict(state)
    assert other.linear.weight.dtype is tb.float64


def test_loading_what_does_not_fit_names_all_and_changes_nothing():
    block = Block()
    before = {k: v.tolist() for k, v in block.state_dict().items()}
    state = dict(Block().state_dict())
    state["linear.wieght"] = state.pop("linear.weight")
    state["scale"] = tb.ones((3,))
    with pytest.raises(tb.StateError) as caught:
        block.load_state_dict(state)
    text = str(caught.value)
    assert "missing key(s): 'linear.weight'" in text
    assert "unexpected key(s): 'linear.wieght'. Did you mean 'linear.weight'?" in text
    assert "'scale' has shape (3,), and the module needs (2,)" in text
    assert {k: v.tolist() for k, v in block.state_dict().items()} == before
    with pytest.raises(tb.StateError, match="has shape"):
        block.load_state_dict(state, strict=False)
    del state["scale"]
    result = block.load_state_dict(state, strict=False)
    assert result.missing_keys == ["scale", "linear.weight"]
    assert result.unexpected_keys == ["linear.wieght"]
    with pytest.raises(tb.StateError, match="'offset' is a list"):
        block.load_state_dict({**block.state_dict(), "offset": [0.0, 0.0]})
    with pytest.raises(TypeError, match="dict of tensors"):
        block.load_state_dict([])


def test_repr_nests():
    assert repr(nn.Sequential(nn.Linear(3, 2), nn.ModuleDict({"a": nn.ReLU()}))) == (
        "Sequential(\n"
        "  (0): Linear(in_features=3, out_features=2, bias=True)\n"
        "  (1): ModuleDict(\n"
        "    (a): ReLU()\n"
        "  )\n"
        ")"
    )
    assert repr(nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Tanh()])) == (
        "ModuleList(\n  (0-1): 2 x ReLU()\n  (2): Tanh()\n)"
    )
    assert repr(nn.Conv2d(1, 2, 3, padding=1, groups=1, bias=False)) == (
        "Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False)"
    )


def test_moving_an_optimized_module_keeps_the_optimizer_working():
    model = nn.Linear(2, 1)
    optimizer = tb.optim.AdamW(model.parameters(), lr=0.1)
    for dtype in (tb.float32, tb.float64):
        model.to(dtype)
        optimizer.zero_grad()
        model(tb.ones((3, 2), dtype=dtype)).sum().backward()
        before = model.weight.tolist()
        optimizer.step()
        assert model.weight.tolist() != before
        assert optimizer.state[model.weight]["exp_avg"].dtype is dtype
