"""Arguments of a wrong kind or size: an error of tensorbus names the function, what was given, what is right.

The same class comes of the eager call and of the compiled one. ``tests/faults/argument_faults.py`` calls
every public function with arguments drawn at random.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorbus as tb

Call = Callable[[Any], Any]
Refusal = tuple[Call, type[Exception] | tuple[type[Exception], ...], tuple[str, ...]]
HUGE = 1 << 62


class Tensor:
    """What another library's tensor looks like."""

    __module__ = "torch"
    shape, ndim, dtype, device = (2, 3), 2, "torch.float32", "cpu"


class Used:
    """A DLPack producer whose capsule is always the same one."""

    def __init__(self) -> None:
        self.capsule = np.ones(3, np.float32).__dlpack__()

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def _read_twice(_: Any) -> Any:
    source = Used()
    return [tb.from_dlpack(source, device="cpu"), tb.from_dlpack(source, device="cpu")]


def _axis(
    name: str, function: Callable[..., Any]
) -> dict[str, tuple[Call, type[Exception], tuple[str, ...]]]:
    """Return what every function refuses that takes an axis and ``keepdims``."""
    return {
        f"{name}: keepdims of None": (
            lambda t: function(t.x, keepdims=None),
            tb.ArgumentError,
            (f"{name}: 'keepdims'", "True or False", "None"),
        ),
        f"{name}: keepdims of a tuple": (
            lambda t: function(t.x, keepdims=(0, 1)),
            tb.ArgumentError,
            (f"{name}: 'keepdims'", "True or False", "(0, 1)"),
        ),
        f"{name}: an axis of None in a list": (
            lambda t: function(t.x, axis=[None]),
            tb.ShapeError,
            (f"{name}:", "integer", "None"),
        ),
        f"{name}: an axis of an array": (
            lambda t: function(t.x, axis=np.array([0, 1])),
            tb.ShapeError,
            (f"{name}:", "integer"),
        ),
    }


WRONG: dict[str, Refusal] = {
    "stack of an ellipsis": (
        lambda t: tb.stack([t.x, ...]),
        tb.DtypeError,
        ("stack: needs tensors", "ellipsis", "asarray"),
    ),
    "stack of no sequence": (
        lambda t: tb.stack(3),
        tb.DtypeError,
        ("stack: 'xs'", "sequence of tensors", "got 3"),
    ),
    "concat of a nested list": (
        lambda t: tb.concat([t.x, [t.x]]),
        tb.DtypeError,
        ("concat: needs tensors", "list"),
    ),
    "repeat by an array": (
        lambda t: tb.repeat(t.x, np.array([1, 2])),
        tb.DtypeError,
        ("repeat: 'repeats'", "an integer, a sequence of integers or a tensor", "ndarray"),
    ),
    "repeat by None": (
        lambda t: tb.repeat(t.x, None),
        (tb.ArgumentError, tb.DtypeError),
        ("repeat: 'repeats'", "None"),
    ),
    "repeat by fractions": (
        lambda t: tb.repeat(t.x, [1.5] * 6),
        tb.DtypeError,
        ("repeat:", "integers", "float32"),
    ),
    "linspace of a shape": (
        lambda t: tb.linspace(0, 1, (0, 1), device=t.device),
        tb.ShapeError,
        ("linspace: 'num'", "an integer", "(0, 1)"),
    ),
    "eye of no rows": (
        lambda t: tb.eye((), device=t.device),
        tb.ShapeError,
        ("eye: 'n_rows'", "integer", "()"),
    ),
    "eye of fewer than none": (lambda t: tb.eye(-1, device=t.device), tb.ShapeError, ("eye:", ">= 0", "-1")),
    "a version of text": (
        lambda t: t.x.__dlpack__(max_version="x"),
        tb.ArgumentError,
        ("__dlpack__: 'max_version'", "tuple of two integers", "'x'"),
    ),
    "a device of text": (
        lambda t: t.x.__dlpack__(dl_device="cpu"),
        tb.ArgumentError,
        ("__dlpack__: 'dl_device'", "tuple of two integers", "'cpu'"),
    ),
    "a capsule read twice": (_read_twice, tb.ArgumentError, ("from_dlpack:", "cpu:0", "Used", "read once")),
    "broadcast_to a negative length": (
        lambda t: tb.broadcast_to(t.x[:1, :1].reshape(1), (-1,)),
        tb.ShapeError,
        ("broadcast_to:", "(1,)", "(-1,)"),
    ),
    "an assignment beyond and of no integer": (
        lambda t: t.byte.__setitem__(-1, 1e-3),
        tb.IndexingError,
        ("1 indices are too many", "()"),
    ),
    "an assignment of no integer": (
        lambda t: t.byte.__setitem__((), 1e-3),
        tb.DtypeError,
        ("0.001", "not a whole number", "int8"),
    ),
    "a tensor of PyTorch's": (
        lambda t: tb.add(t.x, Tensor()),
        tb.DtypeError,
        ("add: needs tensors", "Tensor, torch.Tensor", "asarray"),
    ),
    "... by an operator": (lambda t: t.x * Tensor(), tb.DtypeError, ("multiply: needs", "torch.Tensor")),
    "... in a list": (lambda t: tb.stack([t.x, Tensor()]), tb.DtypeError, ("stack: needs", "torch.Tensor")),
    "... as an index": (
        lambda t: t.x[Tensor()],
        tb.IndexingError,
        ("Tensor is no index", "integers, slices"),
    ),
    "a word as a condition": (
        lambda t: tb.where("yes", t.x, t.x),
        tb.DtypeError,
        ("where: needs tensors", "str"),
    ),
    "a type in the place of a number": (
        lambda t: tb.triu(t.x, int),
        tb.ArgumentError,
        ("triu: 'k'", "an integer", "type"),
    ),
    "a fraction of sections": (
        lambda t: tb.chunk(t.x, 1.5),
        tb.ArgumentError,
        ("chunk: 'chunks'", "an integer", "1.5"),
    ),
    "an inner op's text": (
        lambda t: tb.softmax(t.x, axis=5),
        tb.AxisError,
        ("softmax: axis 5 is out of range",),
    ),
    "a device of a number": (
        lambda t: tb.zeros(2, device=1.5),
        tb.DeviceError,
        ("zeros: 1.5 names no device",),
    ),
    "a dtype of a number": (
        lambda t: tb.ones_like(t.x, dtype=3),
        tb.DtypeError,
        ("ones_like: no dtype is called 3",),
    ),
    "backward of a list of numbers": (
        lambda t: tb.autograd.backward([1.0]),
        tb.DtypeError,
        ("backward: 'tensors'", "tuple of tensors", "list"),
    ),
    "the gradient of a text": (lambda t: tb.grad(t.x, "x"), tb.DtypeError, ("grad: 'inputs'", "got str")),
    "a number in the place of a function": (
        lambda t: tb.vmap(3),
        tb.ArgumentError,
        ("vmap: 'function'", "int"),
    ),
    "an alpha of bytes": (
        lambda t: t.x.clone().add_(t.x, alpha=b"x"),
        tb.ArgumentError,
        ("add_: 'alpha'", "a number", "b'x'"),
    ),
    "sort by an array": (
        lambda t: tb.sort(t.x, descending=np.ones(2)),
        tb.ArgumentError,
        ("sort: 'descending'", "True or False"),
    ),
    **{
        f"broadcast_shapes of {word}": (call, tb.ShapeError, ("broadcast_shapes:", "tuple of integers"))
        for word, call in {
            "None": lambda t: tb.broadcast_shapes(None),
            "a text": lambda t: tb.broadcast_shapes("ab", (1,)),
            "a fraction": lambda t: tb.broadcast_shapes((1.5,), (1,)),
            "a text in a tuple": lambda t: tb.broadcast_shapes(("a",), (1,)),
            "nested tuples": lambda t: tb.broadcast_shapes(((1,), (2,))),
            "a matrix": lambda t: tb.broadcast_shapes(np.ones((2, 3))),
        }.items()
    },
    "counts reset by an array": (
        lambda t: tb.fallback_counts(reset=np.ones(2)),
        tb.ArgumentError,
        ("fallback_counts: 'reset'", "True or False", "ndarray"),
    ),
    "a gradient asked for by an array": (
        lambda t: t.x.clone().requires_grad_(np.ones(2)),
        tb.ArgumentError,
        ("requires_grad_: 'requires_grad'", "True or False", "ndarray"),
    ),
    "... by a text": (
        lambda t: setattr(t.x.clone(), "requires_grad", "no"),
        tb.ArgumentError,
        ("requires_grad_: 'requires_grad'", "True or False", "'no'"),
    ),
    "history recorded by an array": (
        lambda t: tb.set_grad_enabled(np.ones(2)),
        tb.ArgumentError,
        ("set_grad_enabled: 'mode'", "True or False", "ndarray"),
    ),
    "a gradient of NumPy's": (
        lambda t: setattr(t.leaf, "grad", np.ones((2, 3))),
        tb.DtypeError,
        ("a gradient is a tensor or None", "ndarray", "asarray"),
    ),
    "a stream of text": (
        lambda t: t.x.__dlpack__(stream="a"),
        tb.ArgumentError,
        ("__dlpack__: 'stream' must be None", "'a'"),
    ),
    "tensor_split into more than memory": (
        lambda t: tb.tensor_split(t.x, HUGE),
        tb.ArgumentError,
        ("tensor_split:", "parts", str(HUGE)),
    ),
    "chunk of nothing into more than memory": (
        lambda t: tb.chunk(t.none, HUGE),
        tb.ArgumentError,
        ("chunk:", "parts", str(HUGE)),
    ),
    "topk of more than there are": (lambda t: tb.topk(t.x, 1 << 70), tb.TensorbusError, ("topk:", "3")),
    "round to huge places": (
        lambda t: tb.round(t.x, decimals=-(1 << 63) - 1),
        tb.ArgumentError,
        ("round: decimals", "308", str(-(1 << 63) - 1)),
    ),
    "a value of a list": (
        lambda t: tb.addcmul(t.x, 2.0, t.x, value=[1]),
        tb.ArgumentError,
        ("addcmul: 'value'", "a number or a tensor", "[1]"),
    ),
    "a rounding of an array": (
        lambda t: tb.divide(t.x, 2, rounding_mode=np.array([1, 2])),
        tb.ArgumentError,
        ("divide: rounding_mode", "'trunc' or 'floor'", "ndarray"),
    ),
    "a place for a matrix in a number": (
        lambda t: tb.scatter_add(t.x[0, 0], 0, tb.ones((1, 2), dtype="int64", device=t.device), t.x),
        tb.ShapeError,
        ("scatter_add:", "indices of shape (1, 2)", "same number of dimensions"),
    ),
    "betas of a number": (
        lambda t: tb.optim.Adam([t.leaf], betas=3),
        tb.ArgumentError,
        ("Adam: 'betas'", "tuple of 2 items", "got 3"),
    ),
    "a probability of text": (lambda t: tb.nn.Dropout("a"), tb.ArgumentError, ("Dropout: 'p'", "a number")),
    "modules of a number": (lambda t: tb.nn.ModuleList(3), tb.TensorbusError, ("ModuleList: ", "got 3")),
    "a schedule of a number": (
        lambda t: tb.optim.lr_scheduler.StepLR(3, 2),
        tb.ArgumentError,
        ("StepLR: 'optimizer'", "got 3"),
    ),
    "norms of a number": (
        lambda t: tb.nn.utils.clip_grad_norm_(3, 2),
        tb.TensorbusError,
        ("clip_grad_norm_: 'parameters'", "got 3"),
    ),
    "a cell that is to hold a list": (
        lambda t: t.x.clone().rebind([1]),
        tb.DtypeError,
        ("rebind: needs tensors", "list"),
    ),
    "a view of a text": (lambda t: t.x.view("ab"), tb.TensorbusError, ("view:",)),
    "a path of None": (lambda t: tb.load(None), tb.ArgumentError, ("load:", "None")),
    "no path to save to": (lambda t: tb.save({}, None), tb.ArgumentError, ("save:", "None")),
    "a path with a zero": (lambda t: tb.save({}, "a\0b"), tb.ArgumentError, ("save:", "null")),
    "an exporter without a place": (
        lambda t: tb.from_dlpack(SimpleNamespace(__dlpack__=None, __dlpack_device__=lambda: "cpu")),
        tb.ArgumentError,
        ("from_dlpack: SimpleNamespace.__dlpack_device__() must return two integers", "'cpu'"),
    ),
    **_axis("sum", tb.sum),
    **_axis("max", tb.max),
    **_axis("mean", tb.mean),
    **_axis("logsumexp", tb.logsumexp),
    **{
        f"{name} of huge lengths": (call, tb.ShapeError, (f"{name}:", "more than any device can hold"))
        for name, call in {
            "zeros": lambda t: tb.zeros((0, HUGE), device=t.device),
            "ones": lambda t: tb.ones((1 << 40, 0, 1 << 40), device=t.device),
            "full": lambda t: tb.full((0, 1 << 70), 1.0, device=t.device),
            "arange": lambda t: tb.arange(HUGE, device=t.device),
            "broadcast_to": lambda t: tb.broadcast_to(t.none, (0, HUGE)),
            "reshape": lambda t: tb.reshape(t.none, (0, HUGE)),
            "tile": lambda t: tb.tile(t.x, (HUGE, 1)),
            "repeat": lambda t: tb.repeat(t.x, HUGE),
            "pad": lambda t: tb.nn.functional.pad(t.x, (0, HUGE)),
            "diag_embed": lambda t: tb.diag_embed(t.x, HUGE),
            "rand": lambda t: tb.rand((0, HUGE), device=t.device),
            "fft": lambda t: tb.fft.fft(t.x, n=HUGE),
            "add": lambda t: tb.add(t.long, t.long.T),
        }.items()
    },
    **{
        f"{name} of 65 axes": (call, tb.ShapeError, ("a tensor has at most 64 dimensions, got 65",))
        for name, call in {
            "broadcast_to": lambda t: tb.broadcast_to(t.x[0, :1], (1,) * 65),
            "reshape": lambda t: t.x[0, :1].reshape((1,) * 65),
            "expand_dims": lambda t: tb.expand_dims(t.most, 0),
            "index": lambda t: t.most[None],
            "stack": lambda t: tb.stack([t.most, t.most]),
            "tensordot": lambda t: tb.tensordot(t.most, t.x[0], axes=0),
            "diag_embed": lambda t: tb.diag_embed(t.most),
            "take": lambda t: tb.take(t.most, tb.zeros((1, 1), dtype="int64", device=t.device), axis=3),
            "one_hot": lambda t: tb.nn.functional.one_hot(t.most.to("int64"), 3),
        }.items()
    },
}


def _arguments(device: str) -> Any:
    x = tb.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device)
    return SimpleNamespace(
        device=device, x=x, leaf=x.clone().requires_grad_(), none=tb.zeros((0, 1), device=device),
        most=tb.ones((1,) * 64, device=device),
    )  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", WRONG)
def test_wrong(device: str, name: str, compiled: bool) -> None:
    call, kinds, pieces = WRONG[name]
    t = _arguments(device)
    if "assignment" in name:
        t.byte = tb.zeros((), dtype="int8", device=device)
    if name.startswith("add of"):
        t.long = tb.broadcast_to(t.x[:1, :1], (1 << 40, 1))
    with pytest.raises(kinds) as caught:
        (tb.compile(lambda: call(t)) if compiled else lambda: call(t))()
    assert isinstance(caught.value, tb.TensorbusError)
    message = str(caught.value)
    assert all(piece in message for piece in pieces), message
    assert t.x.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


MISFITS: dict[str, tuple[Call, str]] = {
    "view": (lambda t: t.x.view(foo=1), "view(x, /, shape_or_dtype)"),
    "reshape": (lambda t: t.x.reshape(foo=1), "reshape(x, /, shape, *, copy=None)"),
    "to": (lambda t: t.x.to(foo=1), "to(x, target=None, dtype=None,"),
    "backward": (lambda t: t.leaf.sum().backward(foo=1), "backward(self, gradient=None"),
    "grad": (lambda t: tb.grad(t.leaf.sum(), t.leaf, foo=1), "grad(outputs, inputs, grad_outputs=None,"),
    "grad of nothing": (lambda t: tb.grad(), "grad(outputs, inputs, grad_outputs=None,"),
    "Linear": (lambda t: tb.nn.Linear(2, 3, foo=1), "Linear(in_features, out_features, bias=True"),
    "Linear of too many": (lambda t: tb.nn.Linear(*range(9)), "Linear(in_features, out_features, bias=True"),
    "Conv2d": (lambda t: tb.nn.Conv2d(1, 2), "Conv2d(in_channels, out_channels, kernel_size,"),
    "Conv2d of a subclass": (
        lambda t: type("Mine", (tb.nn.Conv2d,), {})(1, 2),
        "Conv2d(in_channels, out_channels, kernel_size,",
    ),
    "Tanh": (lambda t: tb.nn.Tanh(foo=1), "Tanh()"),
    "LazyConv2d": (lambda t: tb.nn.LazyConv2d(foo=1), "LazyConv2d(out_channels, kernel_size, stride=1"),
    "SGD": (lambda t: tb.optim.SGD([t.leaf], foo=1), "SGD(params, lr="),
    "Module.to": (lambda t: tb.nn.Linear(1, 1).to(foo=1), "to(*args, device=None, dtype=None)"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_call_that_does_not_fit_is_told_what_does(device: str, name: str) -> None:
    call, form = MISFITS[name]
    with pytest.raises(TypeError) as caught:
        call(_arguments(device))
    message = str(caught.value)
    assert message.count(f" It is called as {form}") == 1, message
    assert message.startswith(f"{form.partition('(')[0]}() "), message


def test_what_arguments_and_constructors_of_users_raise_is_theirs() -> None:
    def fails(_: Any) -> Any:
        raise KeyError("mine")

    class Layer(tb.nn.Linear):
        def __init__(self) -> None:
            raise TypeError("Layer.__init__() of mine")

    with pytest.raises(KeyError, match="mine"):
        tb.vmap(fails)(tb.ones(3))
    with pytest.raises(TypeError, match=r"^Layer.__init__\(\) of mine$"):
        Layer()


@pytest.mark.parametrize("wanted", ["foo", 3, [("a",)], object()])
def test_a_host_array_of_no_dtype_is_refused(wanted: Any) -> None:
    with pytest.raises(tb.DtypeError, match="__array__: 'dtype' must be None or a dtype"):
        tb.ones(3, device="cpu").__array__(wanted)


@pytest.mark.parametrize("number", [-(1 << 63) - 1, 1 << 64, 1 << 70])
@pytest.mark.parametrize("name", ["floor_divide", "add", "remainder", "less", "power", "maximum"])
def test_integers_beyond_64_bits_meet_floats_as_floats(device: str, name: str, number: int) -> None:
    x = tb.asarray([2.0, -3.0], device=device)
    call = getattr(tb, name)
    for run in (call, tb.compile(call)):
        np.testing.assert_array_equal(run(x, number).numpy(), call(x, float(number)).numpy())


@pytest.mark.parametrize("number", [1e39, -1e39, 10**300])
@pytest.mark.parametrize("name", ["floor_divide", "divide", "remainder", "maximum"])
def test_numbers_that_the_dtype_cannot_hold_are_infinite(device: str, name: str, number: float) -> None:
    x = tb.asarray([2.0, -3.0, 0.0, float("inf"), float("nan")], device=device)
    infinite = tb.asarray(float("inf") if number > 0 else -float("inf"), device=device)
    call = getattr(tb, name)
    for run in (call, tb.compile(call)):
        np.testing.assert_array_equal(run(x, number).numpy(), call(x, infinite).numpy())
        np.testing.assert_array_equal(run(number, x).numpy(), call(infinite, x).numpy())


def test_an_axis_may_be_a_list(device: str) -> None:
    x = _arguments(device).x
    for call in (tb.sum, tb.max, tb.mean, tb.logsumexp, tb.std, tb.count_nonzero):
        for axis in (0, (0,), (0, 1)):
            listed = [axis] if isinstance(axis, int) else list(axis)
            np.testing.assert_array_equal(call(x, axis=listed).numpy(), call(x, axis=axis).numpy())


def test_functions_name_themselves() -> None:
    """Every public function of ops is called by what tells its errors under its own name."""
    spaces = (tb, tb.nn.functional, tb.linalg, tb.fft, tb.special)
    helpers = {"as_shape", "broadcast_shapes", "explain", "from_dlpack", "is_tensor", "normalize_axis"}
    parts = re.compile(
        r"tensorbus[/\\](ops|nn[/\\]functional|special|linalg|fft|random|distributions|eager[/\\]torch_forms)\b"
    )
    handlers = ("call_errors.py", "definition.py", "eager/call.py")
    bare = [
        f"{space.__name__}.{name}"
        for space in spaces
        for name in dir(space)
        if hasattr(code := getattr(getattr(space, name), "__code__", None), "co_filename")
        and not name.startswith("_")
        and name not in helpers
        and parts.search(code.co_filename)
        and not code.co_filename.endswith(handlers)
    ]
    assert bare == []
