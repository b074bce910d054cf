"""Training steps whose temporaries lie in gradients that are still to come give what eager steps give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn, optim
from tensorbus.compiler.programs import program_cache as executables
from tensorbus.errors import IndexingError
from tensorbus_cpu.compiler import NATIVE

from training_steps import check_steps

pytestmark = pytest.mark.skipif(NATIVE.compiler() is None, reason="there is no C compiler")
WIDE, DEEP = 320, 5


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDE, WIDE) for _ in range(DEEP)])
        self.norms = nn.ModuleList([nn.LayerNorm(WIDE) for _ in range(DEEP)])

    def forward(self, x: Any) -> Any:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + nn.functional.gelu(layer(norm(x)))
        return x


def _step(model: Any, kind: Any = optim.SGD) -> Any:
    optimizer = kind(model.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = tb.mean(model(x) ** 2)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@pytest.mark.full
def test_gradients_are_those_of_an_eager_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tensorbus_cpu.native import bytecode as tape

    monkeypatch.setenv("TENSORBUS_CACHE_DIR", str(tmp_path))  # nothing is stored there yet
    arenas: list[Any] = []
    plan = tape.plan_memory

    def noting(*args: Any) -> Any:
        arenas.append(plan(*args))
        return arenas[-1]

    monkeypatch.setattr(tape, "plan_memory", noting)
    executables.clear()
    x = tb.asarray(np.random.default_rng(0).standard_normal((WIDE, WIDE), dtype=np.float32))
    check_steps((Deep(), Deep(), Deep()), _step, x, 2 * DEEP * WIDE)
    assert any(arena.hosts for arena in arenas)


def test_gradients_of_an_earlier_step_stay_as_they_were() -> None:
    model = Deep()
    x = tb.asarray(np.random.default_rng(1).standard_normal((WIDE, WIDE), dtype=np.float32))
    compiled = tb.compile(_step(model))
    for _ in range(3):
        compiled(x)
    held = [p.grad for p in model.parameters()]
    copies = [g.numpy().copy() for g in held]
    compiled(x)
    for now, before in zip(held, copies, strict=True):
        np.testing.assert_array_equal(now.numpy(), before)


def test_the_first_step_too_updates_state_in_its_place() -> None:
    model = Deep()
    x = tb.asarray(np.random.default_rng(2).standard_normal((WIDE, WIDE), dtype=np.float32))
    places = [p.numpy().ctypes.data for p in model.parameters()]
    before = [p.numpy().copy() for p in model.parameters()]
    tb.compile(_step(model, optim.Adam))(x)
    assert [p.numpy().ctypes.data for p in model.parameters()] == places
    for p, old in zip(model.parameters(), before, strict=True):
        assert not np.array_equal(p.numpy(), old)


def test_old_values_that_somebody_has_stay_as_they_were() -> None:
    model = Deep()
    x = tb.asarray(np.random.default_rng(3).standard_normal((WIDE, WIDE), dtype=np.float32))
    first = next(iter(model.parameters()))
    held, copy = first.detach().clone(), first.numpy().copy()
    seen = first.numpy()
    compiled = tb.compile(_step(model))
    for _ in range(3):
        compiled(x)
        np.testing.assert_array_equal(held.numpy(), copy)
        np.testing.assert_array_equal(seen, copy)
    assert not np.array_equal(first.numpy(), copy)


def test_a_first_step_that_fails_changes_no_state() -> None:
    table = tb.asarray(np.ones((7, 3), np.float32), device="cpu").requires_grad_()

    @tb.compile
    def step(index: Any) -> Any:
        loss = (nn.functional.embedding(index, table) ** 2).sum()
        (grad,) = tb.grad(loss, [table])
        with tb.no_grad():
            table[...] = table - grad
        return loss

    with pytest.raises(IndexingError):
        step(tb.asarray(np.array([0, 7]), device="cpu"))
    np.testing.assert_array_equal(table.detach().numpy(), 1)
