"""Lazy modules: what they become, with which cells, and what they refuse before."""

from __future__ import annotations

import copy
import pickle

import pytest
import tensorbus as tb
from tensorbus import nn

CASES = {
    "LazyLinear(3)": ((2, 4), "Linear(4, 3)"),
    "LazyLinear(3, bias=False)": ((5, 2, 4), "Linear(4, 3, bias=False)"),
    "LazyConv1d(4, 3)": ((2, 3, 8), "Conv1d(3, 4, 3)"),
    "LazyConv1d(4, 3, padding='same')": ((3, 8), "Conv1d(3, 4, 3, padding='same')"),
    "LazyConv2d(4, 3, stride=2, groups=2, bias=False)": (
        (2, 6, 8, 8), "Conv2d(6, 4, 3, stride=2, groups=2, bias=False)",
    ),
    "LazyConv2d(4, 3, padding=1, padding_mode='reflect')": (
        (2, 6, 8, 8), "Conv2d(6, 4, 3, padding=1, padding_mode='reflect')",
    ),
    "LazyConv3d(4, 2, dilation=2)": ((1, 2, 3, 3, 3), "Conv3d(2, 4, 2, dilation=2)"),
    "LazyConvTranspose1d(4, 3)": ((3, 8), "ConvTranspose1d(3, 4, 3)"),
    "LazyConvTranspose2d(4, 3, stride=2, output_padding=1)": (
        (2, 3, 8, 8), "ConvTranspose2d(3, 4, 3, stride=2, output_padding=1)",
    ),
    "LazyConvTranspose3d(4, 2, groups=2)": ((1, 2, 3, 3, 3), "ConvTranspose3d(2, 4, 2, groups=2)"),
    "LazyBatchNorm1d()": ((4, 3), "BatchNorm1d(3)"),
    "LazyBatchNorm2d(momentum=None)": ((2, 3, 4, 4), "BatchNorm2d(3, momentum=None)"),
    "LazyBatchNorm3d(affine=False)": ((2, 3, 2, 2, 2), "BatchNorm3d(3, affine=False)"),
    "LazyInstanceNorm1d()": ((3, 4), "InstanceNorm1d(3, affine=True, track_running_stats=True)"),
    "LazyInstanceNorm2d()": ((2, 3, 4, 4), "InstanceNorm2d(3, affine=True, track_running_stats=True)"),
    "LazyInstanceNorm3d(affine=False, track_running_stats=False)": ((2, 3, 2, 2, 2), "InstanceNorm3d(3)"),
}  # fmt: skip


def module_of(text: str) -> nn.Module:
    module = eval(f"nn.{text}")
    assert isinstance(module, nn.Module)
    return module


def numbers(shape: tuple[int, ...]) -> tb.Tensor:
    size = 1
    for n in shape:
        size *= n
    return tb.sin(tb.reshape(tb.arange(float(size)), shape))


@pytest.mark.parametrize("name", CASES)
def test_the_first_call_makes_it_the_plain_layer(name: str) -> None:
    shape, wanted = CASES[name]
    lazy, x = module_of(name), numbers(shape)
    assert type(lazy).__name__ == name.partition("(")[0]
    cells = dict(lazy.named_parameters())
    assert all(type(cell) is nn.UninitializedParameter for cell in cells.values())
    tb.manual_seed(5)
    first = lazy(x)
    tb.manual_seed(5)
    plain = module_of(wanted)
    assert first.tolist() == plain(x).tolist()
    assert type(lazy) is type(plain)
    assert repr(lazy) == repr(plain)
    assert {k: v.tolist() for k, v in lazy.state_dict().items()} == {
        k: v.tolist() for k, v in plain.state_dict().items()
    }
    assert all(cell is cells[k] and type(cell) is nn.Parameter for k, cell in lazy.named_parameters())
    assert all(type(cell) is tb.Tensor for cell in lazy.buffers())


@pytest.mark.parametrize("compiled", [False, True])
def test_an_optimizer_that_was_there_before_trains_it(compiled: bool) -> None:
    model = nn.Sequential(
        nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(1)
    )
    optimizer = tb.optim.Adam(model.parameters(), lr=0.05)
    x = numbers((4, 3, 6, 6))

    def step():
        optimizer.zero_grad()
        loss = tb.square(model(x) - 1.0).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = tb.compile(step) if compiled else step
    losses = [run().item() for _ in range(8)]
    assert losses[-1] < losses[0] / 2
    assert not compiled or len(run.replays) == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda w: w.shape, lambda w: w.size, lambda w: w + 1, lambda w: w.sum(), lambda w: w @ tb.ones(3),
        lambda w: w.detach(), lambda w: nn.init.zeros_(w), lambda w: tb.square(w), lambda w: w[0],
        lambda w: w.tolist(),
    ],
)  # fmt: skip
def test_cells_without_a_shape_are_of_no_use(use) -> None:
    layer = nn.LazyLinear(3)
    with pytest.raises(tb.StateError, match="call the module once"):
        use(layer.weight)
    with pytest.raises(tb.StateError, match="call the module once"):
        layer.state_dict()
    assert layer(tb.ones((1, 2))).shape == (1, 3)


def test_they_are_moved_copied_and_pickled_before_their_first_call() -> None:
    layer = nn.LazyBatchNorm1d().double()
    assert {cell.dtype for cell in (*layer.parameters(), layer.running_mean)} == {tb.float64}
    for each in (layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert each(tb.ones((2, 3), dtype="float64")).dtype is tb.float64
        assert each.running_mean.dtype is each.weight.dtype is tb.float64
        assert type(each) is nn.BatchNorm1d


def test_a_state_dict_gives_them_their_shape() -> None:
    plain, lazy = nn.Linear(4, 3), nn.LazyLinear(3)
    assert lazy.load_state_dict(plain.state_dict()) == ([], [])
    assert lazy.weight.shape == (3, 4)
    x = numbers((2, 4))
    assert lazy(x).tolist() == plain(x).tolist()
    assert type(lazy) is nn.Linear
    assert lazy.in_features == 4
    with pytest.raises(tb.StateError, match="missing"):
        nn.LazyLinear(3).load_state_dict({"weight": plain.weight})


def test_frozen_cells_stay_frozen() -> None:
    layer = nn.LazyLinear(3).requires_grad_(False)
    layer(tb.ones((1, 2)))
    assert not layer.weight.requires_grad
    with tb.no_grad():
        layer = nn.LazyLinear(3)
        layer(tb.ones((1, 2)))
    assert layer.weight.requires_grad


def test_a_first_input_that_does_not_fit_changes_nothing() -> None:
    for name, shape in (("LazyConv2d(2, 3)", (4, 4)), ("LazyBatchNorm2d()", (2, 3)), ("LazyLinear(2)", ())):
        layer = module_of(name)
        with pytest.raises(tb.ShapeError):
            layer(tb.ones(shape))
        assert type(layer).__name__.startswith("Lazy")
    layer = module_of("LazyConv1d(4, 3, groups=2)")
    with pytest.raises(tb.ArgumentError, match="groups"):
        layer(tb.ones((1, 3, 8)))
    assert layer(tb.ones((1, 6, 8))).shape == (1, 4, 6)


def test_materialize_gives_a_shape_by_hand() -> None:
    layer = nn.LazyLinear(3)
    weight = layer.weight
    weight.materialize((3, 2))
    assert weight.shape == (3, 2)
    assert type(weight) is nn.Parameter
    nn.init.ones_(weight)
    layer(tb.ones((1, 2)))
    assert layer.weight.tolist() == [[1.0, 1.0]] * 3
