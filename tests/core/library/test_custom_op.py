"""Custom ops: what the annotations say, and that calls are those of an op on every device, in every mode."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor, library, plugins
from tensorbus.backend_api import hookimpl
from tensorbus.dtypes.definition import DType
from tensorbus.ops.definition import table

from error_bounds import assert_alike

DEVICES = ["cpu", "refdev"]
NAMES: list[str] = []


def scaled() -> Any:
    """Return ``x * k``, with a derivative."""

    @library.custom_op("t::scaled")
    def scaled(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.k = inputs[1]

    scaled.register_autograd(lambda ctx, g: (g * ctx.k, None), setup_context=setup)
    return scaled


def mixed() -> Any:
    """Return an op of every kind of argument, and a list of results."""

    @library.custom_op("t::mixed")
    def mixed(
        xs: list[Tensor],
        y: Tensor | None = None,
        *,
        axes: tuple[int, ...] = (0,),
        times: int = 1,
        flag: bool = False,
        how: str = "plus",
        dtype: DType | None = None,
        pair: tuple[int, int] | None = None,
        ys: Sequence[Tensor] | None = None,
        weights: Sequence[float] = (1.0,),
        switches: list[bool] | None = None,
        names: tuple[str, str] = ("x", "y"),
    ) -> list[Tensor]:
        extra = 0 if y is None else y * weights[-1]
        outs = [x.sum(axis=axes) * times + (extra if how == "plus" else -extra) for x in xs]
        outs += [x * -1 if flag else x * 1 for x in ys or ()]
        return outs if dtype is None else [x.to(dtype) for x in outs]

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.inputs, ctx.count = inputs[:9], len(output)
        assert inputs[9:] == ((1.0,), None, ("x", "y"))

    def backward(ctx: Any, grads: list[Tensor]) -> Any:
        xs, y, axes, times, flag, how, *_, ys = ctx.inputs
        assert len(grads) == ctx.count == len(xs) + len(ys or ())
        wide = [
            tb.broadcast_to(tb.expand_dims(g, axis=axes), x.shape) for x, g in zip(xs, grads, strict=False)
        ]
        total = sum(grads[1 : len(xs)], start=grads[0]) * (1 if how == "plus" else -1)
        rest = [g * (-1 if flag else 1) for g in grads[len(xs) :]]
        return (
            [g * times for g in wide], None if y is None else total, None, None, None, None, None, None,
            None if ys is None else rest, None, None, None,
        )  # fmt: skip

    mixed.register_autograd(backward, setup_context=setup)
    return mixed


def accumulate() -> Any:
    """Return an op that adds to its first arguments in place, and returns how much."""

    @library.custom_op("t::accumulate", mutates_args=("x", "rest"))
    def accumulate(x: Tensor, by: Tensor, rest: list[Tensor]) -> Tensor:
        x += by
        for each in rest:
            each[...] = each * by
        return by * 1

    return accumulate


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_mutated_views_show_no_element_twice(compiled: bool) -> None:
    op = accumulate()

    def call(pick: Any) -> Any:
        x = tb.zeros(4)
        one, other = pick(x)
        op(one, tb.ones(()), [other])
        return x

    run = tb.compile(call) if compiled else call
    assert run(lambda x: (x[:2], x[2:])).tolist() == [1.0, 1.0, 0.0, 0.0]
    assert run(lambda x: (x[::2], x[1::2])).tolist() == [1.0, 0.0, 1.0, 0.0]
    for pick, error in (
        (lambda x: (x[:3], x[2:]), "may show the same elements"),
        (lambda x: (x, x[2:]), "may show the same elements"),
        (lambda x: (x[1:], x[1:][:1]), "may show the same elements"),
        (lambda x: (x.reshape((2, 2)), x.reshape((4, 1))), "may show the same elements"),
        (lambda x: (x, x), "the same tensor was passed"),
    ):
        with pytest.raises(tb.ArgumentError, match=error):
            run(pick)


def test_a_function_of_values_needs_no_fake_in_eager_code() -> None:
    """Its kernel says the shapes; programs ask for a rule, and shapes that values decide are refused."""
    calls = []

    @library.custom_op("t::reads")
    def reads(x: Tensor, fail: bool = False) -> tuple[Tensor, Tensor]:
        if fail:
            raise LookupError("its own")
        values = x.numpy()
        calls.append(tb.is_grad_enabled())
        return tb.asarray(values[values > 0]), tb.asarray(np.sin(values))

    reads.register_autograd(
        lambda ctx, _, g: (g * tb.cos(ctx.saved_tensors[0]), None),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )
    x = tb.asarray([0.5, -1.0, 2.0]).requires_grad_()
    positive, sines = reads(x)
    assert positive.tolist() == [0.5, 2.0]
    sines.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == tb.cos(x.detach()).tolist()
    assert calls == [False, False]
    assert reads(x + 0.25)[1].shape == (3,)
    assert len(calls) == 3
    with pytest.raises(LookupError, match="its own"):
        reads(tb.ones(5), fail=True)
    with pytest.raises(tb.ShapeError, match="shapes follow from those of the arguments"):
        reads(-x)
    with pytest.raises(tb.UnsupportedOpError, match="register_fake"):
        tb.compile(lambda x: reads(x)[1], fullgraph=True)(x)
    with pytest.raises(tb.UnsupportedOpError, match="register_fake"):
        tb.vmap(reads)(tb.ones((2, 3)))


@pytest.mark.parametrize("device", DEVICES)
def test_calls_of_every_kind_agree_eagerly_compiled_batched_and_differentiated(device: str) -> None:
    x = tb.asarray([[1.0, 2.0], [3.0, 4.5]], dtype=tb.float64, device=device)
    y = tb.asarray([0.5, -1.0], dtype=tb.float64, device=device)
    whole = {"schema", "fake", "batching", "compile", "gradients"}
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
        (scaled(), (x, 3), {}),
        (mixed(), ([x], y), {"axes": [1], "how": "minus"}),
        (mixed(), ([x, x * 2],), {"times": 3, "flag": True, "ys": (y,), "pair": (1, 2)}),
    ]
    for op, args, kwargs in calls:
        outcomes = library.opcheck(op, args, kwargs)
        assert set(outcomes) == whole
        assert set(outcomes.values()) == {"passed"}, outcomes
    outs = library.get_op("t::mixed")([x, x], y, times=2, dtype=tb.float32)
    assert [out.tolist() for out in outs] == [[8.5, 12.0]] * 2
    assert outs[0].dtype is tb.float32


@pytest.mark.parametrize("device", DEVICES)
def test_mutated_arguments_are_rebound_and_no_other_tensor_changes(device: str) -> None:
    op = accumulate()
    assert set(library.opcheck(op, (tb.ones(3, device=device), tb.ones(3, device=device), [])).values()) == {
        "passed", "skipped: no derivative is registered",
    }  # fmt: skip

    def step(x: Tensor, by: Tensor, z: Tensor) -> Tensor:
        returned = op(x, by, [z])
        return returned + x + z

    for run in (step, tb.compile(step, fullgraph=True)):
        x, z = tb.asarray([1.0, 2.0], device=device), tb.asarray([5.0, 6.0], device=device)
        by, other = tb.asarray([10.0, 20.0], device=device), x.clone()
        whole = tb.zeros((2, 2), device=device)
        run(whole[0], by, z.clone())
        assert whole.tolist() == [[10.0, 20.0], [0.0, 0.0]]
        for turn in (1, 2):
            total = run(x, by, z)
            assert x.tolist() == [1.0 + 10 * turn, 2.0 + 20 * turn]
            assert z.tolist() == [5.0 * 10**turn, 6.0 * 20**turn]
            assert total.tolist() == (by + x + z).tolist()
        assert other.tolist() == [1.0, 2.0]
    rows, steps = tb.ones((2, 3), device=device), tb.full((2, 3), 4.0, device=device)
    with pytest.warns(tb.func.LoopWarning, match="has no batching rule"):
        result = tb.vmap(lambda x, by: (op(x, by, []), x)[1])(rows, steps)
    assert result.tolist() == [[5.0] * 3] * 2
    with pytest.raises(tb.ArgumentError, match="same tensor was passed for two"):
        op(by, x, [by])
    with pytest.raises(tb.AutogradError, match="leaf"):
        op(tb.ones(2, device=device).requires_grad_(), by, [])
    with pytest.raises(tb.ArgumentError, match="mutates its arguments has no derivative"):
        op.register_autograd(lambda ctx, g: g)


def test_gradients_of_the_second_order_and_compiled_ones() -> None:
    @library.custom_op("t::cube")
    def cube(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * x * x, x.to(tb.int32)

    def backward(ctx: Any, g: Tensor, _: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        assert ctx.needs_input_grad == (True,)
        return g * x * x * 3

    cube.register_autograd(backward, setup_context=lambda ctx, i, o: ctx.save_for_backward(*i))

    def second(x: Tensor) -> Tensor:
        (dx,) = tb.grad(cube(x)[0].sum(), x, create_graph=True)
        (ddx,) = tb.grad(dx.sum(), x)
        return ddx

    for run in (second, tb.compile(second)):
        assert run(tb.asarray([1.0, 2.0]).requires_grad_()).tolist() == [6.0, 12.0]
    x = tb.asarray([1.0, 2.0])
    x.requires_grad_()
    cube.register_autograd(lambda ctx, *grads: (None, None))
    with pytest.raises(tb.AutogradError, match=r"backward returned 2 gradient\(s\); one for each of x"):
        cube(x)[0].sum().backward()


def test_a_function_that_needs_values_says_its_shapes_and_stays_on_its_device() -> None:
    @library.custom_op("t::sine", device_types="cpu")
    def sine(x: Tensor) -> Tensor:
        return tb.asarray(np.sin(x.numpy()), device="cpu")

    x = tb.asarray([[0.25, 0.5]], device="cpu")
    there = tb.asarray([[0.25, 0.5]], device="refdev")
    for run, y in ((tb.compile(lambda x: sine(x) * 1, fullgraph=True), x), (sine, there)):
        with pytest.raises(tb.UnsupportedOpError, match=r"t::sine: the shapes .* register_fake"):
            run(y)
    sine.register_fake(lambda x: (x.shape, x.dtype))
    assert_alike(sine(x), tb.sin(x), roundings=2)
    doubled = tb.compile(lambda x: sine(x) * 2, dynamic=True, fullgraph=True)
    for n in (2, 3, 5):
        wide = tb.ones((1, n), device="cpu")
        assert_alike(doubled(wide), tb.sin(wide) * 2, roundings=2)
    for run in (sine, tb.compile(lambda x: sine(x) * 1, fullgraph=True)):
        with pytest.raises(tb.UnsupportedOpError, match=r"t::sine: no kernel on refdev.*register_kernel"):
            run(there)
        with tb.fallback("allow"):
            tb.fallback_counts(reset=True)
            assert run(there).device == there.device
            assert tb.fallback_counts()["t::sine", "refdev"].calls == 1
    sine.register_kernel("refdev")(lambda x: x * 0)  # what was decided before is decided anew
    assert sine(there).tolist() == [[0.0, 0.0]]
    sine.register_kernel(["refdev"], lambda x: x.numpy())
    with pytest.raises(tb.ShapeError, match="returned a ndarray as result 0"):
        sine(there)
    sine.register_fake(lambda x: (x.shape[:1], x.dtype))
    with pytest.raises(tb.ShapeError, match=r"returned float32\[1, 2\].*rule says float32\[1\]"):
        sine(x)


def test_results_that_are_views_of_arguments_are_copied() -> None:
    @library.custom_op("t::tail")
    def tail(x: Tensor) -> Tensor:
        return x[1:]

    x = tb.arange(4, dtype=tb.float32, device="cpu")
    assert tail(x).tolist() == tail(x).tolist() == [1.0, 2.0, 3.0]
    assert tail(x)._value.base is None
    assert tail(tb.arange(4, device="refdev"))._value.buffer is not x._value


def test_the_batching_rule_that_is_registered_comes_first() -> None:
    op, seen = scaled(), []

    @op.register_vmap
    def rule(info: Any, in_dims: Any, x: Tensor, k: float) -> Any:
        seen.append((info.batch_size, in_dims, x.shape))
        return op(x, k).T, 1

    x = tb.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert tb.vmap(op, in_dims=1)(x).tolist() == (x.T * 2).tolist()
    assert seen == [(2, (0, None), (2, 3))]
    op.register_vmap(lambda info, in_dims, x, k: (x[0], None))
    assert tb.vmap(op)(x).tolist() == [[1.0, 2.0]] * 3
    op.register_vmap(lambda info, in_dims, x, k: x)
    with pytest.raises(tb.ArgumentError, match=r"returns \(outputs, out_dims\)"):
        tb.vmap(op)(x)
    assert tb.vmap(scaled())(tb.ones((0, 2))).shape == (0, 2)


def test_autocast_casts_to_what_is_registered() -> None:
    op = scaled()
    x = tb.ones(2)
    for cast_inputs, expected in [("narrow", tb.bfloat16), ("wide", tb.float32), (tb.float16, tb.float16)]:
        op.register_autocast(cast_inputs)
        with tb.autocast(tb.bfloat16):
            assert op(x).dtype is expected
        assert op(x).dtype is tb.float32
    with pytest.raises(tb.ArgumentError, match="floating"):
        op.register_autocast(tb.int32)


def test_scalars_are_told_apart_by_sign_and_type() -> None:
    op = scaled()
    x = tb.ones(1)
    for k in (0.0, -0.0, 1, True, 1.0, 0.0):
        for _ in range(2):
            assert str(op(x, k).item()) == str(float(k))

    @library.custom_op("t::typed")
    def typed(x: Tensor, k: int) -> Tensor:
        assert type(k) is int
        return x * k

    assert [typed(x, k).item() for k in (True, 1, True)] == [1.0] * 3
    compiled = tb.compile(lambda x, k: op(x, k), fullgraph=True)
    assert [compiled(x, k).item() for k in (2.0, 3.0, 2.0)] == [2.0, 3.0, 2.0]
    assert op.schema.name == "t::scaled"
    assert str(op.schema) == "t::scaled(x: Tensor, k: float = 2.0) -> Tensor"


def annotated(text: str) -> Any:
    """Return a function with the given parameters and result."""
    scope: dict[str, Any] = {"Tensor": Tensor, "Sequence": Sequence}
    exec(f"def f{text}: ...", scope)
    return scope["f"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(x) -> Tensor", "'x' has no annotation"),
        ("(n: int) -> Tensor", "needs a tensor among"),
        ("(x: dict) -> Tensor", "annotated with dict"),
        ("(x: Tensor) -> None", "returns nothing and mutates nothing"),
        ("(x: Tensor)", "no annotation"),
        ("(x: Tensor) -> int", "what it returns"),
        ("(*x: Tensor) -> Tensor", "any number of arguments"),
        ("(x: Tensor, k: int = None) -> Tensor", r"must say `\| None`"),
        ("(x: Tensor, _k: int) -> Tensor", "underscore"),
        ("(x: Missing) -> Tensor", "'Missing' .* names nothing"),
    ],
)
def test_annotations_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(tb.ArgumentError, match=message):
        library.custom_op("t::wrong", annotated(text))


def test_wrong_calls_and_names() -> None:
    op, x = scaled(), tb.ones(2)
    calls: list[tuple[Any, Any, str]] = [
        (lambda: op(3), tb.DtypeError, "t::scaled: x must be a tensor, got int"),
        (lambda: op(x, x), tb.DtypeError, "k must be a float, got a tensor.*item"),
        (lambda: op(x, "a"), tb.DtypeError, "k must be a float, got 'a' of str"),
        (lambda: op(), TypeError, "missing 1 required"),
        (lambda: mixed()([]), tb.ArgumentError, "none of xs, y, ys holds a tensor"),
        (lambda: mixed()(x), tb.DtypeError, "xs must be a list of tensors"),
        (lambda: mixed()([x], pair=(1,)), tb.DtypeError, "pair must be a tuple of 2 int"),
        (lambda: mixed()([x], flag=1), tb.DtypeError, "flag must be a bool"),
        (lambda: library.custom_op("scaled", scaled), tb.ArgumentError, "namespace::name"),
        (lambda: library.custom_op("t::scaled", annotated("(x: Tensor) -> Tensor")), tb.PluginError,
         "already defined by"),
        (lambda: library.custom_op("t::m", annotated("(x: Tensor) -> None"), mutates_args=("y",)),
         tb.ArgumentError, "names 'y'; it may name x"),
        (lambda: library.get_op("add"), tb.ArgumentError, "is no custom op"),
        (lambda: library.get_op("t::none"), tb.UnsupportedOpError, "no op is called 't::none'"),
        (lambda: library.unregister("t::none"), tb.ArgumentError, "no custom op"),
        (lambda: op.register_fake(3), tb.ArgumentError, "takes a function"),
        (lambda: op.register_kernel("no type", op), tb.ArgumentError, "names no device type"),
    ]  # fmt: skip
    for call, error, message in calls:
        with pytest.raises(error, match=message):
            call()


def test_a_module_that_is_loaded_again_defines_its_op_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "reloaded_op.py"
    text = (
        "import tensorbus as tb\n"
        "@tb.library.custom_op('t::again')\n"
        "def f(x: tb.Tensor) -> tb.Tensor: return x * "
    )
    file.write_text(text + "2\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("reloaded_op")
    compiled = tb.compile(lambda x: library.get_op("t::again")(x) + 0)
    assert compiled(tb.ones(1)).item() == 2.0
    file.write_text(text + "33\n", encoding="utf-8")
    importlib.reload(module)
    assert library.get_op("t::again")(tb.ones(1)).item() == 33.0
    assert compiled(tb.ones(1)).item() == 33.0
    del sys.modules["reloaded_op"]


class _Plugin:
    @hookimpl
    def tensorbus_ops(self) -> Any:
        return [scaled()]


def test_a_plugin_defines_a_custom_op() -> None:
    assert "t::scaled" not in table
    plugins.register_plugin("scaling", _Plugin())
    try:
        op = library.get_op("t::scaled")
        assert op(tb.ones(1)).item() == 2.0
    finally:
        plugins.unregister_plugin("scaling")


@pytest.mark.parametrize("device", DEVICES)
def test_a_program_of_open_lengths_calls_kernels_with_those_that_there_are(device: str) -> None:
    @library.custom_op("t::rows")
    def rows(x: tb.Tensor) -> tb.Tensor:
        return x.sum(axis=1)

    rows.register_fake(lambda x: ((x.shape[0],), x.dtype))
    compiled = tb.compile(lambda x: rows(x * 2) + 1, dynamic=True)
    for n in (2, 4, 4, 7, 300, 3):
        assert compiled(tb.ones((n, 3), device=device)).tolist() == [7.0] * n


SHAPED_BY_OPS: dict[str, Any] = {
    "a product": lambda x: x @ x.T, "a shape": lambda x: tb.reshape(x, (x.shape[0] * 3,)),
    "joined": lambda x: tb.concat([x, x]), "cut": lambda x: x[1:, ::2], "summed": lambda x: x.sum(axis=0),
    "sorted": lambda x: tb.sort(x, axis=0), "added up": lambda x: tb.cumulative_sum(x, axis=0),
    "broadcast": lambda x: tb.broadcast_to(x[:, None], (x.shape[0], 2, 3)),
    "attention": lambda x: tb.nn.functional.scaled_dot_product_attention(x, x, x),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPED_BY_OPS)
def test_a_shape_rule_by_ops_keeps_lengths_open(name: str) -> None:
    """The function without values, as a fake is: its ops look at lengths and need no certain one."""

    @library.custom_op("t::shaped")
    def shaped(x: tb.Tensor) -> tb.Tensor:
        result: tb.Tensor = SHAPED_BY_OPS[name](x * 2)
        return result

    compiled = tb.compile(lambda x: shaped(x + 1) + 1, dynamic=True, fullgraph=True)
    for n in (5, 7, 9):
        x = tb.reshape(tb.arange(3 * n, dtype=tb.float32), (n, 3)) / 10
        right = SHAPED_BY_OPS[name]((x + 1) * 2) + 1
        assert compiled(x).shape == right.shape
        assert tb.max(tb.abs(compiled(x) - right)) < 1e-4
    assert compiled.recompiles == []
