"""Functions and derivatives of many elements are one program each, which gives what ops one by one give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor
from tensorbus.eager_fusion import fused_function, fused_vjp
from tensorbus.optim import fused_update
from tensorbus_cpu.compiler import NATIVE
from tensorbus_cpu.eager.fused_programs import PROGRAMS

from error_bounds import assert_alike, assert_as_exact_as_eager

F: Any = tb.nn.functional
RNG = np.random.default_rng(5)


def drawn(*shape: int) -> Any:
    return RNG.normal(size=shape).astype("f4")


X, Y, IMAGE, C = drawn(40, 256), drawn(40, 256), drawn(4, 6, 17, 33), drawn(6)
TARGET = RNG.integers(0, 256, 40)
ROUNDINGS, UPDATE_ROUNDINGS = 4 * 17 * 33, 12
"""Of sums over all images, or the rows of a batch; of one parameter's step."""

# A function, its operands, and whether calls of it are a program too.
CASES: dict[str, tuple[Callable[..., Tensor], tuple[Any, ...], bool]] = {
    "relu": (F.relu, (X,), False),
    "gelu": (F.gelu, (X,), False),
    "softmax": (lambda x: tb.softmax(x, axis=-1), (X,), False),
    "mse_loss": (F.mse_loss, (X, Y), True),
    "cross_entropy": (lambda x: tb.cross_entropy(x, tb.asarray(TARGET)), (X,), True),
    "layer_norm": (lambda x, w: tb.layer_norm(x, 256, w[0], w[1]), (X, Y), True),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (IMAGE, C, C[::-1]), True),
    "a product and a bias": (
        lambda x, w, b: x @ w + b[0], (drawn(2, 20, 256), drawn(256, 33), Y[:, :33]), False,
    ),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        tuple(drawn(2, 3, 65, 32) for _ in range(3)), False,
    ),
}  # fmt: skip


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the programs that were made."""
    if NATIVE.compiler() is None:
        pytest.skip("there is no compiler here")
    names: list[str] = []
    prepare = type(PROGRAMS).prepare

    def noted(self: Any, name: str, graph: Any, index: int, *rest: Any) -> Any:
        names.append(name)
        return prepare(self, name, graph, index, *rest)

    monkeypatch.setattr(type(PROGRAMS), "prepare", noted)
    tb.dispatch.plan.invalidate()
    return names


def gradients(function: Callable[..., Tensor], xs: Sequence[Tensor]) -> list[Any]:
    out = function(*xs)
    seed = tb.reshape(tb.cos(tb.arange(out.size, dtype=out.dtype)), out.shape)
    return [out, *tb.grad(out, xs, seed)]


@pytest.mark.parametrize("turned", [False, True], ids=["packed", "strided"])
@pytest.mark.parametrize(
    "dtype", ["float32", *[pytest.param(d, marks=pytest.mark.full) for d in ("float64", "bfloat16")]]
)
@pytest.mark.parametrize("name", CASES)
def test_a_program_gives_what_ops_give(
    name: str, dtype: str, turned: bool, programs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    function, arrays, whole = CASES[name]

    def leaves() -> list[Tensor]:
        results = []
        for a in arrays:
            x = tb.asarray(np.ascontiguousarray(np.swapaxes(a, 0, -1)) if turned else a).to(dtype)
            results.append(
                tb.permute_dims(x, (a.ndim - 1, *range(1, a.ndim - 1), 0)) if turned and a.ndim > 1 else x
            )
        return [x.requires_grad_() for x in results]

    got = gradients(function, leaves())
    assert any(n.startswith("derivative of ") for n in programs)
    assert not whole or any(not n.startswith("derivative of ") for n in programs)
    count = len(programs)
    for module in (fused_function, fused_vjp):
        monkeypatch.setattr(module, "is_small", lambda *_: True)
    wanted = gradients(function, leaves())
    assert len(programs) == count
    exact = gradients(function, [x.detach().to("float64").requires_grad_() for x in leaves()])
    # Narrow ones are rounded after each of a few ops, which do not add up in them.
    roundings = 4 if dtype == "bfloat16" else ROUNDINGS
    for one, other, right in zip(got, wanted, exact, strict=True):
        assert one.dtype is other.dtype
        results = (x.detach().to("float64").numpy() for x in (one, other, right))
        assert_as_exact_as_eager(*results, roundings, dtype)


def test_few_elements_make_no_program(programs: list[str]) -> None:
    x = tb.asarray(X[:2, :16]).requires_grad_()
    F.mse_loss(F.gelu(x), x * 2).backward()
    assert programs == []


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "Adam": lambda p: tb.optim.Adam(p),
    "Adam, amsgrad and weight decay": lambda p: tb.optim.Adam(p, amsgrad=True, weight_decay=0.1),
    "AdamW": lambda p: tb.optim.AdamW(p),
    "NAdam": lambda p: tb.optim.NAdam(p),
    "SGD": lambda p: tb.optim.SGD(p, lr=0.1, momentum=0.9),
    "SGD, nesterov and weight decay": lambda p: tb.optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1
    ),
    "SGD, dampening": lambda p: tb.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_one_program(name: str, programs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the shapes and dtypes of the parameters, and whichever have a gradient."""

    def trained() -> list[Any]:
        arrays = X, X[0, :7], X[:3, :5], X[1, :9], X[4:8, :4]
        parameters = [tb.asarray(a.copy()).requires_grad_() for a in arrays]
        parameters.append(tb.asarray(Y[:5].astype("f8")).requires_grad_())
        optimizer = OPTIMIZERS[name](parameters)
        for k in range(4):
            for place, p in enumerate(parameters):
                p.grad = None if place == 3 and k != 2 else tb.cos(p.detach() * (k + 1))
            optimizer.step()
        state = [v for entries in optimizer.state.values() for v in entries.values()]
        return [x.numpy() if isinstance(x, Tensor) else x for x in (*parameters, *state)]

    got = trained()
    assert ("step" in programs) == ("dampening" not in name)
    count = len(programs)
    assert count <= 3  # one for each set of parameters that had gradients
    monkeypatch.setattr(fused_update, "_is_even", lambda *_: False)
    for one, other in zip(got, trained(), strict=True):
        assert_alike(one, other, 4 * UPDATE_ROUNDINGS, "float32")  # of four steps, whose rates are float32
