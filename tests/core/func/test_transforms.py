"""``tb.func``: derivatives of functions, nested, over modules, compiled, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor, nn
from tensorbus.autograd import forward_ad
from tensorbus.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

from error_bounds import assert_alike, assert_within, of_difference

RANDOM = np.random.default_rng(3)


def tensor(*shape: int) -> Tensor:
    return tb.asarray(RANDOM.normal(size=shape), device="cpu")


X, V, ROWS = tensor(4), tensor(4), tensor(3, 4)
ROUNDINGS = 64
"""Of sums of a dozen elements through a few layers, forward and back."""
STEP, THIRD = 1e-5, 100.0
"""Of differences, and what bounds the third derivative of what they are taken of."""


def assert_near(got: Any, wanted: Any) -> None:
    assert_alike(got.detach().numpy(), np.asarray(wanted), ROUNDINGS)


def number(x: Tensor) -> Tensor:
    return (tb.sin(x) * x.sum() + tb.exp(x * 0.1)).sum()


def written(x: Tensor) -> Tensor:
    """Writes to views, to tensors from before, and in place."""
    y = tb.zeros(4, dtype=tb.float64)
    y[1:3] = x[:2]
    tail = y[1:]
    tail *= 2
    y.add_(x)
    other = x * 1
    other[0] = 5.0
    return y * other


def branching(x: Tensor) -> Tensor:
    return x * x * (2 if x.sum() > 0 else 3)


VECTOR: dict[str, Callable[[Tensor], Tensor]] = {
    "elementwise": lambda x: tb.sin(x) * x.sum(),
    "writes": written,
    "a branch": branching,
    "checkpoint": lambda x: tb.checkpoint(lambda y: tb.exp(y) * y, x),
    "detach": lambda x: x * x.detach(),
    "vmap inside": lambda x: vmap(lambda a: a * a * x.sum())(x),
    "gradient inside": lambda x: vmap(grad(lambda a: a**3 * x.sum()))(x),
    "another device": lambda x: (x.to("refdev") * x.to("refdev").sum()).to("cpu"),
    "no_grad inside": lambda x: x + tb.softmax(x, axis=0).detach(),
}


@pytest.mark.parametrize("name", VECTOR)
def test_jacobians_agree(name: str) -> None:
    f = VECTOR[name]
    reverse, forward = jacrev(f)(X), jacfwd(f)(X)
    assert_near(forward, reverse.numpy())
    assert_near(jacrev(f, chunk_size=3)(X), reverse.numpy())
    assert_near(jacfwd(f, chunk_size=3)(X), reverse.numpy())
    output, push = linearize(f, X)
    assert_near(output, f(X).numpy())
    assert_near(push(V), reverse.numpy() @ V.numpy())
    assert_near(jvp(f, (X,), (V,))[1], reverse.numpy() @ V.numpy())
    if name not in ("a branch", "writes"):
        assert_near(vmap(jacfwd(f))(ROWS), np.stack([jacrev(f)(row).numpy() for row in ROWS]))


def by_differences(f: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    eye = np.eye(x.shape[0]) * STEP
    sides = [(f(x + tb.asarray(e)).numpy(), f(x - tb.asarray(e)).numpy()) for e in eye]
    return np.stack([(a - b) / (2 * STEP) for a, b in sides], axis=-1)


SECOND = {
    "hessian": hessian, "reverse twice": lambda f: jacrev(jacrev(f)),
    "forward twice": lambda f: jacfwd(jacfwd(f)),
    "reverse over forward": lambda f: jacrev(jacfwd(f)),
    "of a compiled function": lambda f: hessian(tb.compile(f)), "compiled": lambda f: tb.compile(hessian(f)),
    "gradient by gradient": lambda f: lambda x: jacrev(lambda z: grad(f)(z))(x),
}  # fmt: skip


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives(name: str) -> None:
    slope = grad(number)
    bound = of_difference(abs(slope(X).numpy()).max(), STEP, THIRD)
    assert_within(SECOND[name](number)(X).numpy(), by_differences(slope, X), bound)


def _step(p: Tensor, xs: Tensor, ys: Tensor) -> Tensor:
    p = p - 0.1 * grad(lambda q: ((xs @ q - ys) ** 2).mean())(p)
    return ((xs @ p - ys) ** 2).mean()


def test_learning_to_learn() -> None:
    xs, ys = tensor(5, 3, 4), tensor(5, 3)

    def total(p: Tensor) -> Tensor:
        return vmap(lambda a, b: _step(p, a, b))(xs, ys).mean()

    wanted, bound = by_differences(total, X), of_difference(total(X).numpy(), STEP, THIRD)
    assert_within(grad(total)(X).numpy(), wanted, bound)
    assert_within(tb.compile(grad(total))(X).numpy(), wanted, bound)
    nested = vmap(grad(lambda a: vmap(lambda b: b * b * a.sum())(a).sum()))(ROWS)
    assert_near(nested, [2 * r * r.sum() + (r * r).sum() for r in ROWS.numpy()])


def test_modules() -> None:
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).to(tb.float64)
    params = dict(net.named_parameters())
    labels = tb.asarray([0, 2, 1])

    def loss(p: Any, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(net, p, (x[None],)), y[None])

    each = vmap(grad_and_value(loss), in_dims=(None, 0, 0))
    grads, values = each(params, ROWS, labels)
    loop = [grad(loss)(params, ROWS[k], labels[k]) for k in range(3)]
    compiled = tb.compile(each)(params, ROWS, labels)[0]
    for name, g in grads.items():
        assert_near(g, np.stack([one[name].detach().numpy() for one in loop]))
        assert_near(compiled[name], g.detach().numpy())
    whole = nn.functional.cross_entropy(net(ROWS), labels)
    assert_near(values.mean(), whole.detach().numpy())
    whole.backward()
    for name, p in net.named_parameters():
        assert_near(grads[name].mean(axis=0), p.grad.numpy())

    def features(p: Any, x: Tensor) -> Tensor:
        out: Tensor = functional_call(net, p, (x,))
        return out

    rows = vmap(jacrev(features), (None, 0))(params, ROWS)
    columns = vmap(jacfwd(features), (None, 0))(params, ROWS)
    for name, row in rows.items():
        assert row.shape == (3, 3, *params[name].shape)
        assert_near(row, columns[name].detach().numpy())


def test_ensembles() -> None:
    def make() -> Any:
        return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)).to(tb.float64).eval()

    nets = [make() for _ in range(3)]
    params, buffers = stack_module_state(nets)
    assert all(x.requires_grad and x.is_leaf for x in params.values())
    run = vmap(lambda p, b, x: functional_call(nets[0], (p, b), (x,)), in_dims=(0, 0, None))
    assert_near(run(params, buffers, ROWS), np.stack([net(ROWS).detach().numpy() for net in nets]))
    with pytest.raises(tb.ArgumentError, match="at least one module"):
        stack_module_state([])
    with pytest.raises(tb.ArgumentError, match="of one class, got Linear, Tanh"):
        stack_module_state([nn.Linear(2, 2), nn.Tanh()])
    with pytest.raises(tb.ArgumentError, match="training"):
        stack_module_state([make(), make().train()])
    with pytest.raises(tb.ShapeError, match=r"'weight' has the shapes"):
        stack_module_state([nn.Linear(2, 2), nn.Linear(3, 2)])


def test_buffers_lose_their_tangents() -> None:
    norm = nn.BatchNorm1d(4).to(tb.float64)
    jvp(norm, (ROWS,), (ROWS,))
    assert norm.running_mean.device == ROWS.device
    assert_near(norm.running_mean, np.float64(0.1) * ROWS.numpy().mean(axis=0))


def test_memory_that_is_lent_has_no_room_for_tangents() -> None:
    y = tb.zeros(4, dtype=tb.float64, device="cpu")
    lent = np.asarray(y)

    def put(x: Tensor) -> Tensor:
        y[0] = x[0]
        return y

    with pytest.raises(tb.DeviceError, match="whose memory is lent, to NumPy"):
        jvp(put, (X,), (V,))
    assert lent.tolist() == y.tolist() == [0.0] * 4


def test_histories_outside() -> None:
    w = tensor(4).requires_grad_()
    (second,) = tb.grad(grad(lambda x: (x * x * w).sum())(X).sum(), w)
    assert_near(second, 2 * X.numpy())
    tangent = jvp(lambda x: x * x * w, (X,), (V,))[1]
    (g,) = tb.grad(tangent.sum(), w)
    assert_near(g, (2 * X * V).numpy())
    with tb.no_grad():
        assert not grad(lambda x: (x * x * w).sum())(X).requires_grad
        assert_near(grad(lambda x: (x * x).sum())(X), 2 * X.numpy())
    out, vjp_fn = vjp(lambda x: x * 2, X)
    assert not out.requires_grad
    assert_near(vjp_fn(V)[0], 2 * V.numpy())
    assert grad(lambda x: grad(lambda y: (x + y).sum())(tb.ones(4)).sum())(X).tolist() == [0.0] * 4


def test_trees_and_aux() -> None:
    def f(d: Any, scale: Tensor) -> Any:
        return {"a": d["x"] * scale, "b": (d["y"][0] ** 2,)}, {"scale": scale}

    point = {"x": X, "y": [V]}
    _, back, aux = vjp(f, point, tb.asarray(2.0, dtype=tb.float64), has_aux=True)
    assert aux["scale"].item() == 2.0
    into, at_scale = back({"a": tb.ones_like(X), "b": (X,)})
    assert_near(into["y"][0], (2 * V * X).numpy())
    assert_near(at_scale, X.numpy().sum())
    two = tb.asarray(2.0, dtype=tb.float64)
    pushed = jvp(f, (point, two), ({"x": V, "y": [X]}, two * 0), has_aux=True)
    assert_near(pushed[1]["b"][0], (2 * V * X).numpy())
    rows, _ = jacrev(f, argnums=(0, 1), has_aux=True)(point, tb.asarray(2.0, dtype=tb.float64))
    columns, _ = jacfwd(f, argnums=(0, 1), has_aux=True)(point, tb.asarray(2.0, dtype=tb.float64))
    assert_near(rows["a"][0]["x"], 2 * np.eye(4))
    assert_near(columns["a"][0]["x"], 2 * np.eye(4))
    assert_near(rows["b"][0][1], np.zeros(4))
    assert rows["b"][0][0]["y"][0].shape == (4, 4)
    gradient, (value, extra) = grad_and_value(lambda x: ((x * x).sum(), x * 2), has_aux=True)(X)
    assert_near(gradient, 2 * X.numpy())
    assert_near(extra, 2 * X.numpy())
    assert not extra.requires_grad
    assert_near(value, (X * X).sum().numpy())


def test_dual_numbers() -> None:
    with forward_ad.dual_level():
        x = forward_ad.make_dual(X, V)
        with forward_ad.dual_level():
            y = forward_ad.unpack_dual(tb.sin(forward_ad.make_dual(x, V))).tangent
        assert y is not None
        primal, tangent = forward_ad.unpack_dual(y)
        assert_near(primal, (tb.cos(X) * V).numpy())
        assert tangent is not None
        assert_near(tangent, (-tb.sin(X) * V * V).numpy())
        assert forward_ad.unpack_dual(X).tangent is None
        with pytest.raises(tb.AutogradError, match="tangent of this level already"):
            forward_ad.make_dual(x, V)
        with pytest.raises(tb.AutogradError, match=r"float64\[4\]; got float64\[3, 4\]"):
            forward_ad.make_dual(X, ROWS)
    with pytest.raises(tb.AutogradError, match="inside of 'with dual_level"):
        forward_ad.make_dual(X, V)
    with pytest.raises(tb.DeviceError, match="does not exist outside"):
        x + 1
    assert forward_ad.enter_dual_level() == 0
    forward_ad.exit_dual_level()
    with pytest.raises(tb.AutogradError, match="none is entered"):
        forward_ad.exit_dual_level()
    assert forward_ad.unpack_dual(X).tangent is None


def test_randomness() -> None:
    def draw(x: Tensor) -> Tensor:
        return x + tb.rand(5)

    tb.manual_seed(0)
    rows = vmap(draw, randomness="different")(tb.zeros(3)).numpy()
    assert len({tuple(row) for row in rows}) == 3
    assert len({tuple(row) for row in vmap(draw, randomness="same")(tb.zeros(3)).numpy()}) == 1
    same = vmap(draw, randomness="same", chunk_size=2)
    for chunked in (same, tb.compile(same)):
        shared = [chunked(tb.zeros(5)).numpy() for _ in range(2)]
        assert [len({tuple(row) for row in drawn}) for drawn in shared] == [1, 1]
        assert not np.array_equal(*shared)
    nested = vmap(vmap(draw, randomness="different"), randomness="different")(tb.zeros((2, 3))).numpy()
    assert len({tuple(row) for row in nested.reshape(6, 5)}) == 6
    compiled = tb.compile(vmap(draw, randomness="different"))
    tb.manual_seed(0)
    assert np.array_equal(compiled(tb.zeros(3)).numpy(), rows)
    with pytest.raises(tb.ArgumentError, match="randomness='error'"):
        vmap(draw)(tb.zeros(3))
    with pytest.raises(tb.ArgumentError, match="error, same, different"):
        vmap(draw, randomness="some")


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no function": (lambda: grad(3), tb.ArgumentError, "grad: a function is needed, got int"),
    "no number": (lambda: grad(lambda x: x)(X), tb.ShapeError, r"single number, of shape \(\), got \(4,\)"),
    "no tensor": (lambda: grad(lambda x: 1.0)(X), tb.DtypeError, "must return a tensor, got float"),
    "argnums": (lambda: grad(number, argnums=2)(X), tb.ArgumentError, "argnums has 2, but .* got 1"),
    "twice": (lambda: grad(number, argnums=(0, -1))(X), tb.ArgumentError, "names an argument twice"),
    "integers": (lambda: grad(number)(tb.asarray([1])), tb.DtypeError, "this one is int64"),
    "numbers": (lambda: grad(number)(1.0), tb.DtypeError, "with respect to tensors, got float"),
    "aux": (lambda: grad(number, has_aux=True)(X), tb.ArgumentError, r"returns \(output, aux\), got Tensor"),
    "primals": (lambda: jvp(number, X, V), tb.ArgumentError, "primals must be a tuple"),
    "tangents": (lambda: jvp(number, (X,), (V, V)), tb.ArgumentError, "must have the structure"),
    "shape": (lambda: jvp(number, (X,), (ROWS,)), tb.AutogradError, r"float64\[4\]; got float64\[3, 4\]"),
    "strict": (lambda: jvp(lambda x: V, (X,), (V,), strict=True), tb.AutogradError, "strict=True"),
    "cotangents": (lambda: vjp(lambda x: (x, x), X)[1](V), tb.ArgumentError, "must have the structure"),
    "complex": (lambda: jacrev(lambda x: tb.complex(x, x))(X), tb.DtypeError, "results must be real"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name: str) -> None:
    run, error, text = WRONG[name]
    with pytest.raises(error, match=text):
        run()
