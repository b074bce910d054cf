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
}


def _arguments(device: str) -> Any:
    x = tb.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device)
    return SimpleNamespace(device=device, x=x, none=tb.zeros((0, 1), device=device))


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
    said = str(caught.value)
    assert all(piece in said for piece in pieces), said
    assert t.x.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


@pytest.mark.parametrize("number", [-(1 << 63) - 1, 1 << 64, 1 << 70])
@pytest.mark.parametrize("name", ["floor_divide", "add", "remainder", "less", "power", "maximum"])
def test_integers_beyond_64_bits_meet_floats_as_floats(device: str, name: str, number: int) -> None:
    x = tb.asarray([2.0, -3.0], device=device)
    call = getattr(tb, name)
    for run in (call, tb.compile(call)):
        np.testing.assert_array_equal(run(x, number).numpy(), call(x, float(number)).numpy())


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
