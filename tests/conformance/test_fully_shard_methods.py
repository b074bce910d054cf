"""What PyTorch's ``FSDPModule`` has: prefetch by request, other divisors, other methods than ``forward``."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import nn

from error_bounds import assert_alike

SIZE = 2
ROUNDINGS = 256
"""Of three layers, their derivatives, and the average over ranks."""
X = tb.randn(4, 5, device="cpu")


class Coder(nn.Module):
    """Three layers, and a method beside ``forward``."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(5, 5, device=device) for _ in range(3)])
        self.scale = nn.Parameter(tb.ones(5, device=device))

    def forward(self, x: tb.Tensor) -> tb.Tensor:
        """Run the layers."""
        for layer in self.layers:
            x = tb.tanh(layer(x))
        return x * self.scale

    def encode(self, x: tb.Tensor, *, times: int = 1) -> tb.Tensor:
        """Run the first layer, and scale by a parameter of the whole."""
        for _ in range(times):
            x = self.layers[0](x) * self.scale
        return x

    def fail(self, x: tb.Tensor) -> None:
        """Raise."""
        raise ZeroDivisionError


STATE = {name: value.clone() for name, value in Coder().state_dict().items()}


def divided(device: str, prepare: Callable[[Coder], None] = lambda model: None, **options: Any) -> Coder:
    model = Coder(device)
    model.load_state_dict(STATE)
    for block in (*model.layers, model):
        dist.fully_shard(block, **options)
    prepare(model)
    return model


def gradients(model: Coder, device: str, method: str = "forward", compiled: bool = False) -> list[tb.Tensor]:
    call = model if method == "forward" else getattr(model, method)
    run = tb.compile(lambda x: call(x).square().mean()) if compiled else lambda x: call(x).square().mean()
    mine = X.to(device)[2 * dist.get_rank() : 2 * dist.get_rank() + 2]
    for _ in range(2):
        model.zero_grad()
        run(mine).backward()
    averaged = [p.grad for p in model.parameters() if p.grad is not None]
    return [g.full_tensor() if isinstance(g, dist.DTensor) else g for g in averaged]


def _all_ahead(model: Coder) -> None:
    a, b, c = model.layers
    model.set_modules_to_forward_prefetch([a, b, c])
    a.set_modules_to_forward_prefetch([])
    c.set_modules_to_backward_prefetch([b, a])
    b.set_modules_to_backward_prefetch([])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("reshard", [True, False])
def test_what_is_gathered_ahead_changes_no_gradient(device: str, reshard: bool, compiled: bool) -> None:
    def rank() -> tuple[Any, Any, Any, list[str]]:
        plain = gradients(divided(device), device)
        model = divided(device, _all_ahead)
        model.set_reshard_after_forward(reshard)
        before = len(dist.records())
        ahead = gradients(model, device, compiled=compiled)
        asked = [r.asked for r in dist.records()[before:] if r.operation == "all_gather"]
        return plain, ahead, gradients(deepcopy(model), device), asked

    for plain, ahead, copied, asked in dist.run_ranks(rank, SIZE, timeout=60):
        assert_alike([x.numpy() for x in ahead], [x.numpy() for x in plain], ROUNDINGS)
        assert_alike([x.numpy() for x in copied], [x.numpy() for x in plain], ROUNDINGS)
        if not compiled:
            gathers = [text for text in asked if "gradients" not in text][:4]
            assert len({*gathers}) == 4  # the whole model and each layer, before anything is gathered again


def test_other_divisors(device: str) -> None:
    def rank() -> tuple[Any, Any]:
        plain = gradients(divided(device), device)
        model = divided(device)
        for block in (*model.layers, model):
            block.set_gradient_divide_factor(1.0)
        with pytest.raises(tb.errors.ArgumentError, match="factor must be > 0, got 0"):
            model.set_reduce_scatter_divide_factor(0)
        return plain, gradients(model, device)

    for plain, summed in dist.run_ranks(rank, SIZE, timeout=60):
        assert_alike([x.numpy() for x in summed], [SIZE * x.numpy() for x in plain], ROUNDINGS)


@pytest.mark.parametrize("compiled", [False, True])
def test_other_methods_than_forward(device: str, compiled: bool) -> None:
    def rank() -> Any:
        alone = Coder(device)
        alone.load_state_dict(STATE)
        dist.register_fsdp_forward_method(alone, "encode")  # nothing is divided, and nothing changed
        assert "encode" not in vars(alone)
        model = divided(device)
        for name in ("encode", "fail"):
            dist.register_fsdp_forward_method(model, name)
        with pytest.raises(tb.errors.ArgumentError, match="'nothing' is no method of this Coder"):
            dist.register_fsdp_forward_method(model, "nothing")
        with pytest.raises(ZeroDivisionError):
            model.fail(X)
        got = gradients(model, device, "encode", compiled)
        assert all(isinstance(p, dist.DTensor) for p in model.parameters())
        mine = X.to(device)[2 * dist.get_rank() : 2 * dist.get_rank() + 2]
        assert deepcopy(model).encode(mine, times=2).shape == (2, 5)
        assert model.encode.__doc__ == Coder.encode.__doc__
        return model.encode(mine).numpy(), alone.encode(mine).numpy(), [g.numpy() for g in got]

    results = dist.run_ranks(rank, SIZE, timeout=60)
    whole = Coder()
    whole.load_state_dict(STATE)
    whole.encode(X).square().mean().backward()
    right = [p.grad.numpy() for p in whole.parameters() if p.grad is not None]
    for run, alone, got in results:
        assert_alike([run], [alone], ROUNDINGS)
        assert_alike(got, right, ROUNDINGS)


def test_gathered_beside_the_program(device: str) -> None:
    def rank() -> list[Any]:
        model = divided(device)
        handle = model.layers[0].unshard(async_op=True)
        assert isinstance(model.layers[0].weight, dist.DTensor)
        handle.wait()
        shape = model.layers[0].weight.shape, isinstance(model.layers[0].weight, dist.DTensor)
        model.layers[0].reshard()
        with pytest.raises(tb.errors.ArgumentError, match="modules that fully_shard has divided"):
            model.set_modules_to_backward_prefetch([nn.Linear(1, 1, device=device)])
        return [shape, isinstance(model.layers[0].weight, dist.DTensor)]

    assert dist.run_ranks(rank, SIZE) == [[((5, 5), False), True]] * SIZE


@pytest.mark.parametrize("way", ["a block", "the whole", "copies"])
def test_modules_that_compile_returned(device: str, way: str) -> None:
    """Blocks are compiled before they are divided: the module that is called is another one."""

    def rank() -> None:
        model = Coder(device)
        model.load_state_dict(STATE)
        right = gradients(divided(device), device)
        if way == "a block":
            model.layers[1] = tb.compile(model.layers[1])
        spread = model if way == "a block" else tb.compile(model)
        if way == "copies":
            assert dist.replicate(spread) is spread
            with spread.no_sync():
                spread(tb.ones((2, 5), device=device))
        else:
            for block in (*model.layers, spread):
                assert isinstance(dist.fully_shard(block), dist.FullyShardedModule)
        for one in (spread, deepcopy(spread)):
            for gradient, known in zip(gradients(one, device), right, strict=True):
                assert_alike(gradient.numpy(), known.numpy(), ROUNDINGS)

    dist.run_ranks(rank, SIZE)
