"""Eager fusion: functions and derivatives as one generated program, on devices that generate code.

There they are few launches; everywhere they give what the cpu device gives, which runs the ops one by one
for few elements (``tests/cpu/test_eager_programs.py`` has many).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor
from tensorbus.devices.device import Device
from tensorbus.dispatch.plan import invalidate
from tensorbus.eager_fusion import fused_vjp as derivatives
from tensorbus.eager_fusion.fused_function import programs_on
from tensorbus.kernels import generated_program
from tensorbus.ops.fused_function import fuse_in_eager
from tensorbus.ops.nn import batch_norm as normalization_of_batches
from tensorbus.optim import fused_update

from error_bounds import assert_alike, assert_within, gamma, stored

F: Any = tb.nn.functional
RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 16)).astype("f4")
Y = RNG.normal(size=(6, 16)).astype("f4")
P = RNG.uniform(0.1, 0.9, size=(6, 16)).astype("f4")
IMAGE = RNG.normal(size=(4, 6, 3, 5)).astype("f4")
WEIGHT, BIAS, MEAN = (RNG.normal(size=6).astype("f4") for _ in range(3))
VARIANCE = RNG.uniform(0.5, 2, size=6).astype("f4")
TARGET = RNG.integers(0, 16, 6)

# A function, its operands, the most launches of a call and of its derivative; norms of a library stay its.
CASES: dict[str, tuple[Callable[..., Tensor], tuple[Any, ...], int, int]] = {
    "var": (lambda x: tb.var(x, axis=-1), (X,), 1, 1),
    "var of all": (lambda x: tb.var(x, correction=1), (X,), 1, 1),
    "std": (lambda x: tb.std(x, axis=0), (X,), 2, 4),
    "mse_loss": (F.mse_loss, (X, Y), 1, 1),
    "l1_loss, summed": (lambda x, y: F.l1_loss(x, y, reduction="sum"), (X, Y), 1, 1),
    "huber_loss": (lambda x, y: F.huber_loss(x, y, delta=0.5), (X, Y), 1, 1),
    "binary_cross_entropy": (F.binary_cross_entropy, (P, P[::-1].copy()), 2, 1),
    "cross_entropy": (lambda x: tb.cross_entropy(x, x.tensor_like_device(TARGET)), (X,), 2, 2),
    "normalize": (F.normalize, (X,), 1, 1),
    "cosine_similarity": (F.cosine_similarity, (X, Y), 1, 1),
    "layer_norm": (lambda x, w: tb.layer_norm(x, 16, w[0], w[1]), (X, Y), 2, 8),
    "rms_norm": (lambda x, w: F.rms_norm(x, 16, w[0]), (X, Y), 2, 4),
    "group_norm": (lambda x, w, b: F.group_norm(x, 3, w, b), (IMAGE, WEIGHT, BIAS), 2, 4),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (IMAGE, WEIGHT, BIAS), 1, 4),
    "batch_norm by running statistics": (
        lambda x, w, b: F.batch_norm(x, w.tensor_like_device(MEAN), w.beside(VARIANCE), w, b),
        (IMAGE, WEIGHT, BIAS), 2, 4,
    ),
    "gelu": (F.gelu, (X,), 1, 1),
    "softmax": (lambda x: tb.softmax(x, axis=-1), (X,), 1, 1),
    "clip": (lambda x: tb.clip(x, -1, 1), (X,), 1, 1),
    "vector_norm": (lambda x: tb.linalg.vector_norm(x, axis=-1), (X,), 1, 1),
    "a product with a row": (lambda x, w: x * w[0], (X, Y), 1, 4),
}  # fmt: skip


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that were launched, in order."""
    seen: list[str] = []
    whole = generated_program.GeneratedProgram._bind

    def bind(self: Any, op: str, launch: Any, *rest: Any) -> Any:
        run, slots, late = whole(self, op, launch, *rest)

        def counted(*args: Any) -> Any:
            seen.append(launch.kernel.name)
            return run(*args)

        return counted, slots, late

    monkeypatch.setattr(generated_program.GeneratedProgram, "_bind", bind)
    invalidate()
    return seen


def makes_programs(device: str) -> bool:
    """Return whether a device makes programs for as few elements as there are here."""
    maker = programs_on(Device(device))
    return maker is not None and not maker.least


def leaves(arrays: Any, device: str, dtype: str = "float32") -> list[Tensor]:
    return [tb.asarray(a, device=device).to(dtype).requires_grad_() for a in arrays]


def close(got: Tensor, wanted: Tensor, stores: int = 0, cancelled: float = 1.0) -> None:
    """Check sums of all elements at most, and what is stored on the way in narrow dtypes."""
    assert got.dtype is wanted.dtype
    actual, exact = got.to("cpu").to("float64").numpy(), wanted.to("float64").numpy()
    size = np.abs(exact).max(initial=cancelled)  # operands are about 1
    wide = "float64" if got.dtype is tb.float64 else "float32"
    assert_within(actual, exact, 2 * gamma(X.size + 8, wide) * size + stores * stored(size, got.dtype))


@pytest.mark.parametrize("name", CASES)
def test_a_call_is_few_launches_and_so_is_its_derivative(device: str, name: str, launches: list[str]) -> None:
    function, arrays, forward, backward = CASES[name]
    xs = leaves(arrays, device)
    seed = tb.ones(function(*xs).shape, device=device)
    launches.clear()
    out = function(*xs)
    assert not makes_programs(device) or len(launches) <= forward, launches
    launches.clear()
    actual = tb.grad(out, xs, seed)
    assert not makes_programs(device) or len(launches) <= backward, launches
    there = leaves(arrays, "cpu")
    wanted = function(*there)
    close(out, wanted)
    for got, back in zip(actual, tb.grad(wanted, there, tb.ones(wanted.shape)), strict=True):
        assert got is not None
        assert back is not None
        close(got, back)


def test_derivatives_are_worked_out_once(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of parts, and of changes in place, whose plans tell where they begin."""
    results: list[str] = []
    whole = derivatives._derived

    def noted(node: Any, x: Any) -> Any:
        results.append(node.plan.op.name)
        return whole(node, x)

    monkeypatch.setattr(derivatives, "_derived", noted)
    w = tb.ones((1 << 16,), device=device).requires_grad_()

    def back(k: int) -> None:
        x = w * 2.0
        x += 1.0
        x[k] = 5.0
        (x[k : k + 9].sum() + x[k + 1]).backward()

    for k in range(3):
        back(k)
    results.clear()
    for k in range(6):
        back(k)
    assert not results
    assert w.grad is not None
    assert w.grad[:3].tolist() == [0.0, 8.0, 12.0]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_choices_between_halves_and_numbers(device: str, dtype: str, reduction: str) -> None:
    """Numbers are rounded before a kernel is made: a driver crashed on those that kernels round."""

    def both(where: str) -> list[Tensor | None]:
        xs = leaves((X, P), where, dtype)
        loss = F.kl_div(*xs, reduction=reduction)
        return [loss, *tb.grad(loss.sum(), xs)]

    for got, wanted in zip(both(device), both("cpu"), strict=True):
        assert got is not None
        assert wanted is not None
        close(got, wanted, stores=8)


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_second_derivatives(device: str, name: str) -> None:
    function, arrays, _, _ = CASES[name]

    def second(where: str) -> tuple[Tensor | None, ...]:
        xs = leaves(arrays, where, "float64")
        out = function(*xs)
        first = tb.grad((out * out).sum(), xs, create_graph=True)
        return tb.grad(sum((g * g).sum() for g in first if g is not None), xs, allow_unused=True)

    for got, wanted in zip(second(device), second("cpu"), strict=True):
        assert (got is None) == (wanted is None)
        if got is not None and wanted is not None:
            close(got, wanted, cancelled=1000.0)  # terms of norms


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_narrow_and_wide_dtypes_round_as_op_by_op(device: str, dtype: str) -> None:
    for function in (F.mse_loss, F.cosine_similarity, F.huber_loss, lambda x, y: tb.layer_norm(x, 16, y[0])):
        xs = leaves((X, Y), device, dtype)
        there = leaves((X, Y), "cpu", dtype)
        out, wanted = function(*xs), function(*there)
        assert out.dtype is getattr(tb, dtype)
        stores = 0 if dtype == "float64" else 4
        close(out, wanted, stores)
        for got, back in zip(tb.grad(out.sum(), xs), tb.grad(wanted.sum(), there), strict=True):
            assert got is not None
            assert back is not None
            close(got, back, stores)


@pytest.mark.parametrize("draw", [
    lambda x: F.dropout(x, 0.3), lambda x: F.dropout2d(x, 0.5), lambda x: F.alpha_dropout(x, 0.2, True),
    lambda x: tb.uniform((7, 3), low=-1, high=2, device=x.device), lambda x: tb.normal((5,), device=x.device),
    lambda x: tb.randint(-3, 9, (33,), device=x.device), lambda x: tb.bernoulli(0.4, (9,), device=x.device),
    lambda x: tb.randint(0, 1 << 40, (9,), device=x.device), lambda x: F.gumbel_softmax(x, 0.7),
])  # fmt: skip
def test_a_seed_gives_the_same_numbers_everywhere(device: str, draw: Callable[[Tensor], Tensor]) -> None:
    def drawn(where: str, function: Any) -> Any:
        tb.manual_seed(11)
        x = tb.asarray(IMAGE, device=where)
        return [function(x).to("cpu").numpy() for _ in range(2)]

    wanted = drawn("cpu", draw)
    for got in (drawn(device, draw), drawn(device, tb.compile(draw))):
        for a, b in zip(got, wanted, strict=True):
            assert_alike(a, b, roundings=8)
    first, second = wanted
    assert not np.array_equal(first, second)


def test_what_dropout_drops_has_no_gradient(device: str, launches: list[str]) -> None:
    x = tb.asarray(X, device=device).requires_grad_()
    out = F.dropout(x, 0.5)
    launches.clear()
    out.sum().backward()
    assert not makes_programs(device) or len(launches) <= 3
    assert x.grad is not None
    mask = out.detach().to("cpu").numpy() != 0
    np.testing.assert_array_equal(x.grad.to("cpu").numpy(), np.where(mask, 2.0, 0.0))


def test_running_statistics_move(device: str) -> None:
    for momentum in (0.1, None):
        layers = [tb.nn.BatchNorm2d(6, momentum=momentum).to(where) for where in (device, "cpu")]
        for k in range(30):
            for layer, where in zip(layers, (device, "cpu"), strict=True):
                layer(tb.asarray(IMAGE * (k + 1), device=where))
        for name in ("running_mean", "running_var"):
            close(getattr(layers[0], name), getattr(layers[1], name))
            assert not getattr(layers[0], name).requires_grad


def test_a_layer_counts_its_batches_in_the_program_that_normalizes(device: str, launches: list[str]) -> None:
    """The counter and the running statistics have no history, and views of them see that they moved."""
    image = RNG.normal(size=(4, 6, 3, 5)).astype("f4")
    layers = [tb.nn.BatchNorm2d(6, device=where) for where in (device, "cpu")]
    for _ in range(2):
        views = [layer.running_mean.detach() for layer in layers]
        launches.clear()
        outs = [layer(tb.asarray(image, device=layer.weight.device)) for layer in layers]
        if makes_programs(device):
            assert 0 < len(launches) <= 6, launches
        close(outs[0].detach(), outs[1].detach())
        states = [(layer.running_mean, layer.running_var) for layer in layers]
        for got, wanted in zip(*states, strict=True):
            assert not got.requires_grad
            close(got, wanted)
        close(views[0], views[1])
    assert [layer.num_batches_tracked.item() for layer in layers] == [2, 2]
    grads = [tb.grad(out.sum(), layer.weight)[0] for out, layer in zip(outs, layers, strict=True)]
    close(grads[0], grads[1], cancelled=float(image.size))


@pytest.mark.parametrize("shape", [(4, 6, 3, 5), (8, 64, 16, 16)])
def test_what_a_call_saves_is_not_computed_again(
    device: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The derivative gives what it does where it computes statistics of its own, also with a history."""
    sums: list[int] = []
    whole = generated_program.GeneratedProgram.__init__

    def make(self: Any, compiler: Any, op: str, graph: Any, *rest: Any, **named: Any) -> None:
        if op.startswith("derivative"):
            sums.append(sum(node.op == "sum" for node in graph))
        whole(self, compiler, op, graph, *rest, **named)

    monkeypatch.setattr(generated_program.GeneratedProgram, "__init__", make)
    image = np.random.default_rng(7).normal(size=shape).astype("f4")
    weight = np.linspace(0.5, 2, shape[1]).astype("f4")

    def trained() -> tuple[list[np.ndarray[Any, Any]], int]:
        invalidate()
        x, w, b = leaves((image, weight, weight[::-1].copy()), device)
        average, variance = tb.zeros_like(w).detach(), tb.ones_like(w).detach()
        out = F.batch_norm(x, average, variance, w, b, True)
        seed = tb.cos(out.detach())
        (second,) = tb.grad(tb.grad(out, x, seed, create_graph=True)[0].sum(), w, retain_graph=True)
        sums.clear()
        grads = tb.grad(out, (x, w, b), seed)
        count = sum(sums)
        tensors = [out.detach(), average, variance, second, *grads]
        return [t.to("cpu").numpy() for t in tensors if t is not None], count

    got, few = trained()
    monkeypatch.setattr(normalization_of_batches, "save_for_backward", lambda x: x)
    expected, many = trained()
    assert len(got) == len(expected) == 7
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    if makes_programs(device):
        assert 0 < few == many - 2


OPTIMIZERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "AdamW": (lambda p: tb.optim.AdamW(p, lr=0.1), "float32"),
    "AdamW of halves": (lambda p: tb.optim.AdamW(p, lr=0.1, eps=1e-3), "float16"),
    "Adam, amsgrad": (lambda p: tb.optim.Adam(p, lr=0.1, amsgrad=True), "float32"),
    "SGD, decayed momentum": (lambda p: tb.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1), "float32"),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_a_launch_for_each_parameter(
    device: str, name: str, launches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives what the ops give one by one, and another rate and another step take no other program."""
    lowered: list[str] = []
    whole = generated_program.GeneratedProgram.__init__

    def make(self: Any, compiler: Any, op: str, *rest: Any, **named: Any) -> None:
        lowered.append(op)
        whole(self, compiler, op, *rest, **named)

    monkeypatch.setattr(generated_program.GeneratedProgram, "__init__", make)
    build, dtype = OPTIMIZERS[name]

    def trained() -> tuple[list[Tensor], list[int], int]:
        shapes = (6, 16), (3, 5), (7,), (2, 4, 4), (1,)
        parameters = [x.detach().requires_grad_() for x in leaves([X[:1, :1] + np.zeros(s) for s in shapes],
                                                                  device, dtype)]  # fmt: skip
        optimizer = build(parameters)
        counts = []
        for k in range(5):
            optimizer.param_groups[0]["lr"] = 0.1 / (k + 1)
            for x in parameters:
                x.grad = tb.cos(x.detach() * (k + 1))
            launches.clear()
            if k == 3:
                lowered.clear()
            optimizer.step()
            counts.append(len(launches))
        state = [v for entries in optimizer.state.values() for v in entries.values()]
        return [*parameters, *[v for v in state if isinstance(v, Tensor)]], counts, lowered.count("step")

    got, counts, late = trained()
    if makes_programs(device):
        assert counts[2:] == [5, 5, 5]
        assert late == 0
    monkeypatch.setattr(fused_update, "_is_even", lambda *_: False)
    for one, other in zip(got, trained()[0], strict=True):
        np.testing.assert_array_equal(one.to("cpu").numpy(), other.to("cpu").numpy())


def test_a_step_writes_over_what_nobody_else_holds(device: str) -> None:
    """A history that is still to be walked has the value of before."""
    x, held = leaves((X, Y), device)
    optimizer = tb.optim.SGD([x, held], lr=0.1, momentum=0.9)

    def step() -> None:
        for p in (x, held):
            p.grad = tb.cos(p.detach())
        optimizer.step()

    def memory() -> list[int]:
        return [
            id(t._value.buffer)
            for t in (x, held, *[optimizer.state[p]["momentum_buffer"] for p in (x, held)])
        ]

    step()
    step()
    loss = F.tanhshrink(held).sum()  # whose derivative reads what may be written to
    before, old = held.detach().clone(), memory() if makes_programs(device) else []
    step()
    if makes_programs(device):
        assert [a == b for a, b in zip(old, memory(), strict=True)] == [True, False, True, True]
    (g,) = tb.grad(loss, held)
    assert g is not None
    close(g, tb.tanh(before) ** 2)
    assert not np.array_equal(held.detach().to("cpu").numpy(), before.to("cpu").numpy())


def test_a_number_that_changes_makes_no_program_for_each_value(device: str, launches: list[str]) -> None:
    x = tb.asarray(X, device=device)
    for k in range(40):
        result = F.huber_loss(x, x + 1, delta=0.25 + k / 16)
        close(result, F.huber_loss(tb.asarray(X), tb.asarray(X) + 1, delta=0.25 + k / 16))
    launches.clear()
    F.huber_loss(x, x + 1, delta=0.123)
    assert not makes_programs(device) or len(launches) > 2


def test_errors_are_those_of_the_function(device: str) -> None:
    x = tb.asarray(X, device=device)
    with pytest.raises(
        tb.errors.ShapeError, match="cross_entropy: the classes' scores need a target of shape"
    ):
        tb.cross_entropy(x, tb.zeros((5,), dtype="int64", device=device))
    with pytest.raises(tb.errors.ArgumentError, match="delta must be > 0"):
        F.huber_loss(x, x, delta=0.0)
    if device != "cpu":
        with pytest.raises(tb.errors.DeviceError, match="cpu:0"):
            F.mse_loss(x, tb.asarray(Y))
    with pytest.raises(tb.errors.IndexingError):
        tb.cross_entropy(x, tb.full((6,), 16, dtype="int64", device=device)).item()


def test_a_gradient_without_its_loss_refuses_a_class_that_is_not_there(device: str) -> None:
    def gradient(x: Tensor, target: Tensor) -> Tensor | None:
        z = x.detach().requires_grad_()
        tb.cross_entropy(z, target).backward()
        return z.grad

    x, compiled = tb.asarray(X, device=device), tb.compile(gradient)
    for target in ([0, 15, -100, 3, 3, 8], [15] * 6):
        there = tb.asarray(target, device=device)
        got, wanted = compiled(x, there), gradient(tb.asarray(X), tb.asarray(target))
        assert got is not None
        assert wanted is not None
        close(got, wanted)
    for wrong in (16, -1):
        with pytest.raises(tb.errors.IndexingError, match=f"{wrong} .*16"):
            compiled(x, tb.asarray([0, 1, 2, wrong, 4, 5], device=device)).numpy()


def test_explain_names_the_program(device: str) -> None:
    x = tb.asarray(X, device=device)
    text = str(tb.explain(F.mse_loss, x, x))
    one = f"mse_loss(float32[6, 16], float32[6, 16]) on {device}:0: kernel 'generated'"
    assert (one in text) == makes_programs(device)


def test_a_preferred_kernel_is_used(device: str) -> None:
    x = tb.asarray(X, device=device).requires_grad_()
    name = tb.explain("sum", x).decisions[0].chosen
    assert name is not None
    with tb.prefer_kernel(sum=name.kernel.name):
        report = tb.explain(F.mse_loss, x, x)
        assert {d.op.name for d in report.decisions} >= {"subtract", "multiply", "mean"}
        F.mse_loss(x, x * 2).backward()
        tb.mean(x, axis=0)
    assert x.grad is not None


def test_a_function_returns_an_operand_as_it_is(device: str) -> None:
    same = fuse_in_eager(lambda x: x)
    x = tb.asarray(X, device=device)
    assert same(x) is x


def test_hooks_and_graphs_that_are_walked_twice(device: str) -> None:
    x = tb.asarray(X, device=device).requires_grad_()
    seen: list[Any] = []
    middle = x * 2
    middle.register_hook(lambda g: seen.append(g) or g * 3)
    out = F.mse_loss(middle, x.detach())
    (once,) = tb.grad(out, x, retain_graph=True)
    (again,) = tb.grad(out, x)
    assert len(seen) == 2
    assert once is not None
    assert again is not None
    np.testing.assert_array_equal(once.to("cpu").numpy(), again.to("cpu").numpy())
    assert_alike(once.to("cpu").numpy(), 12 * X / X.size, roundings=6)
    with pytest.raises(tb.errors.AutogradError, match="let go"):
        tb.grad(out, x)


def test_autocast_and_vmap(device: str) -> None:
    x, y = tb.asarray(X, device=device), tb.asarray(Y, device=device)
    close(tb.vmap(F.mse_loss)(x, y), tb.vmap(F.mse_loss)(tb.asarray(X), tb.asarray(Y)))
    with tb.autocast(device, dtype="bfloat16"):
        result = F.mse_loss(x @ y.T, x @ x.T)
        assert result.dtype is F.mse_loss(x.to("bfloat16"), y.to("bfloat16")).dtype
