"""Complex parameters are optimized as the two reals that they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import optim

from error_bounds import assert_alike, assert_within, gamma, unit

RNG = np.random.default_rng(5)
START = RNG.standard_normal((3, 2, 2))
GRADIENTS = [RNG.standard_normal((3, 2, 2)) * 10.0**scale for scale in (0, -1, 1, 0, 0, 1, -1, 0)]

UPDATE_ROUNDINGS = 24
"""Roundings in a row in one step of any of these optimizers."""
RATE_ROUNDING = 2 * unit("float32")
"""Rates and corrections of a compiled step are float32 numbers: each is rounded once, and meets another."""

OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "Adam": lambda p: optim.Adam(p, lr=0.1, weight_decay=0.1),
    "amsgrad": lambda p: optim.Adam(p, lr=0.1, amsgrad=True, maximize=True),
    "capturable": lambda p: optim.Adam(p, lr=0.1, capturable=True),
    "AdamW": lambda p: optim.AdamW(p, lr=0.1),
    "NAdam": lambda p: optim.NAdam(p, lr=0.1),
    "RAdam": lambda p: optim.RAdam(p, lr=0.1),
    "Adamax": lambda p: optim.Adamax(p, lr=0.1),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.1, momentum=0.5, centered=True),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.5),
    "Adadelta": lambda p: optim.Adadelta(p, lr=0.1),
    "Rprop": lambda p: optim.Rprop(p, lr=0.1),
    "ASGD": lambda p: optim.ASGD(p, lr=0.1, t0=2),
}


def as_complex(x: Any) -> Any:
    return tb.asarray(x[..., 0] + 1j * x[..., 1])


def parts(x: tb.Tensor) -> Any:
    actual = x.detach().numpy()
    return np.stack([actual.real, actual.imag], -1) if np.iscomplexobj(actual) else actual


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_that_of_the_parts(name: str) -> None:
    x, y = as_complex(START).requires_grad_(), tb.asarray(START).requires_grad_()
    one, two = OPTIMIZERS[name]([x]), OPTIMIZERS[name]([y])
    size = np.abs(START).max()
    for k, g in enumerate(GRADIENTS):
        x.grad, y.grad = as_complex(g), tb.asarray(g)
        one.step()
        two.step()
        size = max(size, np.abs(parts(y)).max())
        assert_within(parts(x), parts(y), gamma((k + 1) * UPDATE_ROUNDINGS, "float64") * size)
        if k == 3:  # going on from a state dict is going on
            saved = one.state_dict()
            one = OPTIMIZERS[name]([x])
            one.load_state_dict(saved)
    for key, value in two.state[y].items():
        retained = one.state[x][key]
        if isinstance(value, tb.Tensor):
            assert isinstance(retained, tb.Tensor)
            assert retained.dtype == (tb.complex128 if value.shape else tb.float32)
            bound = gamma(len(GRADIENTS) * UPDATE_ROUNDINGS, "float64") * np.abs(parts(value)).max()
            assert_within(parts(retained), parts(value), bound)
        else:
            assert retained == value


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_compiled_step_is_the_same(name: str) -> None:
    def build() -> tuple[tb.Tensor, optim.Optimizer, Callable[[Any], Any]]:
        x = as_complex(START).requires_grad_()
        optimizer = OPTIMIZERS[name]([x])

        def step(target: Any) -> Any:
            optimizer.zero_grad()
            loss = (tb.abs(x - target) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return x, optimizer, step

    (x, one, plain), (y, two, other) = build(), build()
    step = tb.compile(other)
    for g in GRADIENTS:
        np.testing.assert_allclose(
            step(as_complex(g)).numpy(), plain(as_complex(g)).numpy(), rtol=RATE_ROUNDING
        )
    np.testing.assert_allclose(y.detach().numpy(), x.detach().numpy(), rtol=RATE_ROUNDING)
    for key, value in one.state[x].items():
        if isinstance(value, tb.Tensor):
            actual, rounded = two.state[y][key].numpy(), len(GRADIENTS) * RATE_ROUNDING
            np.testing.assert_allclose(actual, value.numpy(), rtol=rounded)
    assert step.replays


@pytest.mark.parametrize(
    ("cls", "want"), [(optim.Adam, 0.9 + 0.9j), (optim.RMSprop, 0.0), (optim.SGD, 0.8 + 0.8j)]
)
def test_one_step_by_hand(cls: Any, want: complex) -> None:
    x = tb.asarray([1 + 1j]).requires_grad_()
    optimizer = cls([x], lr=0.1)
    (tb.abs(x) ** 2).sum().backward()
    optimizer.step()
    assert_within(x.detach().numpy(), [want], gamma(UPDATE_ROUNDINGS, "float32"))


def test_what_is_for_real_matrices_only() -> None:
    for cls in (optim.Adafactor, optim.Muon):
        with pytest.raises(
            tb.ArgumentError, match=f"{cls.__name__}: parameters are real, got one of complex64"
        ):
            cls([tb.ones((2, 2), dtype=tb.complex64).requires_grad_()])


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_goes_where_it_goes_for_the_parts(search: str | None) -> None:
    def run(one: Callable[[Any], tb.Tensor], as_parts: Callable[[Any], Any]) -> Any:
        x, shift = one(START).requires_grad_(), tb.asarray([2.0, -1.0], dtype=tb.float64).requires_grad_()
        optimizer = optim.LBFGS([x, shift], lr=0.5, max_iter=6, line_search_fn=search)

        def closure() -> Any:
            optimizer.zero_grad()
            real = as_parts(x) - shift
            loss = (real**4).sum() + (real * real).sum() + (shift * shift).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        optimizer.step(closure)
        return np.concatenate([parts(x).ravel(), shift.detach().numpy()])

    got, want = run(as_complex, tb.view_as_real), run(tb.asarray, lambda x: x)
    assert_alike(got, want, 12 * 64)  # twelve steps, each of sums over a few vectors of fourteen


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_resumes(search: str | None) -> None:
    def build() -> tuple[list[tb.Tensor], optim.LBFGS, Callable[[], Any]]:
        x, y = tb.asarray(START).requires_grad_(), as_complex(START * 2).requires_grad_()
        optimizer = optim.LBFGS([x, y], lr=0.5, max_iter=4, history_size=3, line_search_fn=search)

        def closure() -> Any:
            optimizer.zero_grad()
            loss = ((x[1:] - x[:-1] ** 2) ** 2).sum() + (tb.abs(y - 1) ** 2).sum() + (x * x).sum()
            loss.backward()
            return loss

        return [x, y], optimizer, closure

    cells, optimizer, closure = build()
    for _ in range(2):
        optimizer.step(closure)
    others, again, same = build()
    with tb.no_grad():
        for cell, other in zip(cells, others, strict=True):
            other.rebind(cell.detach())
    again.load_state_dict(optimizer.state_dict())
    for _ in range(2):
        assert again.step(same).item() == optimizer.step(closure).item()
    for cell, other in zip(cells, others, strict=True):
        np.testing.assert_array_equal(other.detach().numpy(), cell.detach().numpy())
    saved = optimizer.state_dict()
    saved["state"][0]["old_dirs"] = [tb.ones(3)]
    with pytest.raises(
        tb.StateError, match=r"'old_dirs' has shape \(3,\), and all parameters together \(24,\)"
    ):
        again.load_state_dict(saved)


def test_clipping_counts_moduli() -> None:
    x, y = tb.asarray([0j, 0j]).requires_grad_(), tb.asarray([1.0]).requires_grad_()
    for kind, norm in ((2.0, 13.0), (1.0, 17.0), (np.inf, 12.0)):
        x.grad, y.grad = tb.asarray([3 + 4j, 0j]).to(dtype=x.dtype), tb.asarray([12.0])
        result = optim.clip_grad_norm_([x, y], 1.0, kind)
        assert not result.dtype.is_complex
        assert result.item() == pytest.approx(norm, rel=gamma(4, "float32"), abs=0)
        assert x.grad is not None
        np.testing.assert_allclose(
            x.grad.numpy(), np.array([3 + 4j, 0]) / (norm + 1e-6), rtol=gamma(8, "float32")
        )
    before = y.grad
    with pytest.raises(tb.DtypeError, match="clip_grad_value_: gradients are real, got one of complex"):
        optim.clip_grad_value_([y, x], 0.01)
    assert y.grad is before
