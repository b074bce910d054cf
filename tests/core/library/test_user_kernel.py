"""User kernels: what the definition checks, and that they are ops like any other."""

from __future__ import annotations

from typing import Any

import pytest
import tensorbus as tb
from tensorbus import plugins
from tensorbus.backend_interface.capabilities import SourceCall
from tensorbus.ops.definition import table

DEVICES = ["cpu", "refdev"]


def scaled(**changes: Any) -> Any:
    """Return a kernel that multiplies by a number: without source, unless given some."""
    named: dict[str, Any] = {
        "source": {},
        "name": "scale",
        "tensors": {"x": (tb.float32, tb.float64)},
        "scalars": {"k": tb.float32},
        "out": lambda x, k: x,
        "default": lambda x, k: x * k,
    }
    named.update(changes)
    return tb.kernel(named.pop("source"), **named)


def product(**changes: Any) -> Any:
    """Return a kernel of two operands and two results."""
    attrs: dict[str, Any] = {
        "name": "both",
        "tensors": {"x": tb.float32, "y": tb.float32},
        "results": ("total", "biggest"),
        "out": lambda x, y: (x, (x.shape[:1], x.dtype)),
        "default": lambda x, y: (x * y, (x * y).max(axis=1)),
    }
    return tb.kernel({}, **{**attrs, **changes})


def lend_compiler(monkeypatch: pytest.MonkeyPatch, compile_kernel: Any) -> None:
    """Let refdev compile kernels for the rest of a test.

    The runtime has the method, not its class: ``isinstance`` of a protocol remembers classes for ever, and
    the tests after this one would find a refdev that compiles, without the method.
    """
    monkeypatch.setattr(plugins.backend("refdev").runtime, "compile_kernel", compile_kernel, raising=False)


@pytest.mark.parametrize("device", DEVICES)
def test_a_default_runs_on_every_device(device: str) -> None:
    x = tb.asarray([[1.0, 2.0], [3.0, 4.0]], device=device)
    scale = scaled()
    assert scale(x, 3).tolist() == [[3.0, 6.0], [9.0, 12.0]]
    assert scale(x, k=0.5).dtype is tb.float32
    assert scale(x, 2.0).device == x.device


@pytest.mark.parametrize("device", DEVICES)
def test_several_results_are_a_named_tuple(device: str) -> None:
    x = tb.asarray([[1.0, 2.0], [3.0, 4.0]], device=device)
    result = product()(x, x)
    assert result.total.tolist() == [[1.0, 4.0], [9.0, 16.0]]
    assert result.biggest.tolist() == [4.0, 16.0]


@pytest.mark.parametrize("device", DEVICES)
def test_a_default_has_gradients_and_a_vjp_comes_first(device: str) -> None:
    x = tb.asarray([1.0, 2.0], device=device).requires_grad_()
    assert tb.grad(scaled()(x, 3.0).sum(), x)[0].tolist() == [3.0, 3.0]
    marked = scaled(vjp=lambda g, k: (g * (k + 100.0),))
    assert tb.grad(marked(x, 3.0).sum(), x)[0].tolist() == [103.0, 103.0]
    whole = scaled(vjp=lambda g, out, x, x_shape, wanted: (g * out * x * x_shape[0] * sum(wanted),))
    assert tb.grad(whole(x, 3.0).sum(), x)[0].tolist() == [6.0, 24.0]


@pytest.mark.parametrize("device", DEVICES)
def test_it_is_captured_without_a_break(device: str) -> None:
    scale, both = scaled(), product()
    x = tb.asarray([[1.0, 2.0], [3.0, 4.0]], device=device)

    def program(x: tb.Tensor) -> tb.Tensor:
        total, biggest = both(scale(x, 2.0) + 1, x)
        return total.sum(axis=1) * biggest

    assert tb.compile(program, fullgraph=True)(x).tolist() == program(x).tolist()

    def slope(x: tb.Tensor) -> Any:
        return tb.grad(scale(x * x, 0.5).sum(), x)[0]

    leaf = x.requires_grad_()
    assert tb.compile(slope, fullgraph=True)(leaf).tolist() == slope(leaf).tolist()


def test_vmap_takes_the_default() -> None:
    x = tb.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert tb.vmap(lambda row: scaled()(row, 2.0).sum())(x).tolist() == [6.0, 14.0]


def test_it_stays_out_of_the_list_of_ops() -> None:
    before = table.names()
    first, second = scaled(name="twice"), scaled(name="twice", default=lambda x, k: x - k)
    assert table.names() == before
    assert first.schema.name != second.schema.name
    assert table[first.schema.name].family == "user"
    x = tb.asarray([4.0])
    assert (first(x, 2.0).item(), second(x, 2.0).item()) == (8.0, 2.0)
    assert tb.explain(first, x, 2.0).into == ("multiply",)


def test_a_device_without_source_says_who_has_some() -> None:
    scale = scaled(source={"cpu": "..."}, default=None)
    x = tb.asarray([1.0], device="refdev")
    with pytest.raises(tb.UnsupportedOpError, match=r"supported on cpu.*register_kernel\('refdev'"):
        scale(x, 1.0)
    with pytest.raises(tb.UnsupportedOpError, match="supported on cpu"):
        tb.compile(lambda x: scale(x, 1.0) + 1)(x)


def test_a_device_that_compiles_nothing_says_so() -> None:
    scale = scaled(source={"refdev": "..."}, default=None)
    with pytest.raises(tb.UnsupportedOpError, match="compiles no kernels of users"):
        scale(tb.asarray([1.0], device="refdev"), 1.0)


def test_what_a_device_is_asked_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[SourceCall, int]] = []

    def compile_kernel(call: SourceCall, index: int) -> Any:
        asked.append((call, index))
        return lambda values: tuple(values)

    lend_compiler(monkeypatch, compile_kernel)
    source = tb.KernelSource(code="text", grid=lambda x, k: (7, 1), group=8, constants={"WIDE": 4})
    scale = scaled(source={"refdev": source}, default=None)
    x = tb.asarray([[1.0, 2.0, 3.0]], device="refdev:1")
    assert scale(x, 2).tolist() == x.tolist()
    assert scale(x, 2.0).tolist() == x.tolist()
    ((call, index),) = asked
    assert call == SourceCall(
        name="scale", code="text", operands=(("x", tb.float32, (1, 3)),),
        results=(("out", tb.float32, (1, 3)),), scalars=(("k", tb.float32, 2.0),), sizes=(3,), grid=(7, 1),
        group=8, constants={"WIDE": 4},
    )  # fmt: skip
    assert index == 1


def test_operands_and_scalars_are_checked() -> None:
    scale = scaled(scalars={"k": tb.int8})
    x = tb.asarray([1.0])
    with pytest.raises(tb.DtypeError, match="x is int64, and the kernel takes float32, float64"):
        scale(tb.asarray([1]), 1)
    with pytest.raises(tb.DtypeError, match=r"k must be an integer for int8, got 1\.5"):
        scale(x, 1.5)
    with pytest.raises(tb.DtypeError, match="300"):
        scale(x, 300)
    with pytest.raises(tb.DtypeError, match="got a tensor"):
        scale(x, tb.asarray(1))
    with pytest.raises(tb.DtypeError, match="k must be a number for float32, got '2'"):
        scaled()(x, "2")
    with pytest.raises(tb.DtypeError, match="got a tensor"):
        scaled()(x, tb.asarray(2.0))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'k'"):
        scale(x)
    with pytest.raises(tb.DeviceError, match="cpu:0 and refdev:0"):
        product()(tb.ones((1, 1), device="cpu"), tb.ones((1, 1), device="refdev"))


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"out": lambda x, k: x.size_of}, tb.ShapeError, "rule `out` raised AttributeError.*x=float32"),
        ({"out": lambda x: x}, tb.ShapeError, "rule `out` raised TypeError"),
        ({"out": lambda x, k: x.shape[0]}, tb.ArgumentError, r"\(shape, dtype\) pair.*got 1"),
        ({"out": lambda x, k: (x, x, x)}, tb.ArgumentError, "pair"),
        (
            {"out": lambda x, k: ((2, -3), x.dtype)},
            tb.ArgumentError,
            r"shape \(2, -3\); no length is negative",
        ),
        ({"default": 3}, tb.ArgumentError, "default is a function of tensors, got 3"),
        ({"source": {"cpu": None}}, tb.ArgumentError, "source for 'cpu' is text.*got NoneType"),
        ({"default": lambda x, k: x.sum()}, tb.ShapeError, r"default returned float32\[\]"),
        ({"vjp": lambda g: g}, tb.ArgumentError, "a tuple with a gradient or None for each of x; got Tensor"),
        ({"vjp": lambda g: (g, g)}, tb.ArgumentError, "got 2 of them"),
    ],
)
def test_rules_that_fail_name_themselves(changes: dict[str, Any], error: type, text: str) -> None:
    x = tb.asarray([1.0]).requires_grad_()
    with pytest.raises(error, match=text):
        scaled(**changes)(x, 1.0).sum().backward()


@pytest.mark.parametrize("name", ["grid", "sizes"])
@pytest.mark.parametrize("actual", [-1, (1, -2), "n", (1.5,)])
def test_lengths_are_integers(name: str, actual: Any) -> None:
    scale = scaled(source={"cpu": "..."}, default=None, **{name: lambda x, k: actual})
    with pytest.raises(tb.ArgumentError, match=f"rule `{name}` must return"):
        scale(tb.asarray([1.0], device="cpu"), 1.0)


def test_a_grid_has_at_most_three_axes() -> None:
    scale = scaled(source={"cpu": "..."}, default=None, grid=lambda x, k: (1, 1, 1, 1))
    with pytest.raises(tb.ArgumentError, match="one to three"):
        scale(tb.asarray([1.0], device="cpu"), 1.0)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"source": "void f() {}"}, "a dict from device types to text"),
        ({"default": None}, "give source for a device, or a default"),
        ({"tensors": {}}, "needs a tensor"),
        ({"tensors": {"x": ()}}, "needs a dtype or several"),
        ({"tensors": {"x": "float32"}}, "needs a dtype or several"),
        ({"tensors": {"x": 3}}, "needs a dtype or several"),
        ({"tensors": ("x",)}, "tensors is a dict from names to dtypes"),
        ({"tensors": {1: tb.float32}}, "1 cannot be a name"),
        ({"scalars": ("k",)}, "scalars is a dict from names to dtypes"),
        ({"results": "ab"}, "results is a sequence of names"),
        ({"results": 3}, "results is a sequence of names"),
        ({"tensors": {"g": tb.float32}}, "means something else in a vjp"),
        ({"tensors": {"a b": tb.float32}}, "cannot be a name"),
        ({"name": "lambda"}, "cannot be a name"),
        ({"scalars": {"x": tb.float32}}, "each name may stand there once"),
        ({"scalars": {"k": tb.bfloat16}}, "scalar 'k' is"),
        ({"results": ("one",)}, "`results` names several"),
        ({"out": "x"}, "`out` must be a function"),
        ({"vjp": lambda grad: (grad,)}, "asks for 'grad'"),
        ({"vjp": "g"}, "vjp must be a Python function"),
    ],
)
def test_definitions_that_do_not_hold_together(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(tb.ArgumentError, match=text):
        scaled(**changes)


def test_it_is_a_custom_op_and_a_custom_op_takes_source(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = scaled()
    x = tb.asarray([1.0, -2.0], dtype=tb.float64)
    tested = tb.library.opcheck(scale, (x, 2.0))
    assert [name for name, outcome in tested.items() if not outcome.startswith("passed")] == ["schema"]
    scale.register_autograd(lambda ctx, g: (g * ctx.k, None), setup_context=lambda ctx, inputs, output: (
        setattr(ctx, "k", inputs[1] * 10 + float(output.sum()))
    ))  # fmt: skip
    leaf = x.requires_grad_()
    assert tb.grad(scale(leaf, 3.0).sum(), leaf)[0].tolist() == [27.0, 27.0]

    asked: list[SourceCall] = []

    def compile_kernel(call: SourceCall, index: int) -> Any:
        asked.append(call)
        return lambda values: (values[0], values[0])

    lend_compiler(monkeypatch, compile_kernel)

    def pair(x: tb.Tensor, n: int, k: float = 2.0, up: bool = True) -> tuple[tb.Tensor, tb.Tensor]:
        return x * k, x * n

    op = tb.library.custom_op("tests::pair", pair)
    try:
        op.register_kernel("refdev", tb.KernelSource(code="text", sizes=lambda x, n, k, up: (n,)))
        first, second = op(tb.asarray([1.0, 2.0], device="refdev"), 3)
        assert first.tolist() == second.tolist() == [1.0, 2.0]
        (call,) = asked
        assert (call.name, call.sizes, call.grid) == ("pair", (3,), (2,))
        assert call.scalars == (("n", tb.int64, 3), ("k", tb.float64, 2.0), ("up", tb.bool, True))
        assert [name for name, _, _ in call.results] == ["out0", "out1"]
    finally:
        tb.library.unregister("tests::pair")

    def total(xs: list[tb.Tensor]) -> tb.Tensor:
        return xs[0] + 1

    op = tb.library.custom_op("tests::total", total)
    try:
        with pytest.raises(tb.ArgumentError, match="source takes tensors, int, float and bool, and xs"):
            op.register_kernel("refdev", tb.KernelSource(code="text"))
    finally:
        tb.library.unregister("tests::total")
