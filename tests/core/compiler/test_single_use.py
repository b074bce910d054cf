"""The run that is captured, where no program comes of it: kernel by kernel, while memory is free for that."""

from __future__ import annotations

import pytest
import tensorbus as tb
from tensorbus.compiler.programs import program_cache
from tensorbus.devices.device import Device


@pytest.mark.parametrize(("free", "compiled"), [(1 << 20, 0), (64, 1)])
def test_a_first_step_is_compiled_where_memory_is_short(
    monkeypatch: pytest.MonkeyPatch, free: int, compiled: int
) -> None:
    requests: list[Device] = []
    compile_request = program_cache.compile_request
    monkeypatch.setattr(program_cache, "LARGE_ELEMENTS", 8)
    monkeypatch.setattr(program_cache, "_free_memory", lambda device: free)
    monkeypatch.setattr(
        program_cache,
        "compile_request",
        lambda device, request: requests.append(device) or compile_request(device, request),
    )
    weight = tb.ones((4, 4)).requires_grad_()
    optimizer = tb.optim.SGD([weight], lr=0.5, momentum=0.9, dampening=0.5)

    @tb.compile(compare_eager=False)
    def step(x: tb.Tensor) -> tb.Tensor:
        optimizer.zero_grad()
        loss = (x @ weight).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    x = tb.ones((2, 4))
    assert step(x).item() == 32.0
    assert not step.replays  # the optimizer's state is new: the next step is another program
    assert len(requests) == compiled
    assert step(x).item() == 32.0 - 0.5 * 2 * 32
    assert step.replays
    assert len(requests) == 1
