"""Parameters of divided modules that are changed between runs: no run and no derivative takes former ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import nn

SIZE = 2


def _filled(module: nn.Module, value: float) -> None:
    with tb.no_grad():
        for p in module.parameters():
            p.copy_(p * 0 + value)


def _loaded(module: nn.Module, value: float) -> None:
    module.load_state_dict({name: x.full_tensor() * 0 + value for name, x in module.state_dict().items()})


def _stepped(module: nn.Module, value: float) -> None:
    """Let an optimizer take the step from what is there to ``value``."""
    for p in module.parameters():
        p.grad = p.detach() - value
    tb.optim.SGD(module.parameters(), lr=1.0).step()


@pytest.mark.parametrize("change", [_filled, _loaded, _stepped])
@pytest.mark.parametrize("reshard", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_a_run_takes_parameters_as_they_are(
    device: str, grad: bool, reshard: bool, change: Callable[[nn.Module, float], None]
) -> None:
    """Also where the run before had no backward pass, which ends the use of whole ones."""

    def rank() -> list[Any]:
        model = nn.Sequential(nn.Linear(2, 3, device=device), nn.Linear(3, 1, device=device))
        for block in (model[0], model[1], model):
            if any(True for _ in block.parameters(recurse=False)):
                dist.fully_shard(block, reshard_after_forward=reshard)
        x = tb.ones((1, 2), device=device)
        results = []
        for value in (1.0, 2.0, 3.0):
            change(model, value)
            with tb.set_grad_enabled(grad):
                results += [model(x).item(), model(x).item()]
        part = model[0].weight
        model[0].unshard()
        with tb.no_grad():
            part.copy_(part * 0 + 4.0)
        model[0].unshard()
        results.append(model[0].weight.sum().item())
        model[0].reshard()
        return results

    right = [3 * (2 * v + v) * v + v for v in (1.0, 2.0, 3.0)]
    expected = [y for y in right for _ in range(2)] + [24.0]
    assert dist.run_ranks(rank, SIZE, timeout=60) == [expected] * SIZE


@pytest.mark.parametrize("reshard", [True, False])
def test_a_derivative_never_takes_a_parameter_that_was_changed_since(device: str, reshard: bool) -> None:
    """It is an error where the parameter is gathered again, as on one rank; and right where it stayed."""

    def rank() -> str:
        model = dist.fully_shard(nn.Linear(2, 1, device=device), reshard_after_forward=reshard)
        _filled(model, 1.0)
        x = tb.ones((1, 2), device=device).requires_grad_()
        y = model(x).sum()
        _filled(model, 5.0)
        try:
            y.backward()
        except tb.errors.AutogradError as error:
            assert not any(p.grad is not None for p in model.parameters())
            text = str(error)
        else:
            text = str(x.grad.tolist())
        x.grad = None
        model(x).sum().backward()  # the next step is not touched by it
        assert x.grad.tolist() == [[5.0, 5.0]]
        return text

    for text in dist.run_ranks(rank, SIZE, timeout=60):
        if reshard:
            assert "a derivative needs 'weight', of the group 'weight', 'bias' of Linear" in text
            assert "copy_ has overwritten it since" in text
        else:
            assert text == "[[1.0, 1.0]]"
