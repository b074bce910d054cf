"""Public functions called with arguments drawn at random, most of them of a wrong kind.

What a function refuses it refuses by an error of tensorbus's that names it, or by Python's own of a call that
does not fit the signature; a raw error from within is a fault, and so is one that names what nobody called.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from types import FunctionType
from typing import Any, Final

import numpy as np
import tensorbus as tb
from tensorbus.ops.definition import table

from registry import fault

_CHANGES_SETTINGS: Final = frozenset(
    "set_default_device set_default_dtype set_matmul_precision set_num_threads set_grad_enabled"
    " manual_seed".split()
)
_OF_PROGRAMS: Final = frozenset("compile kernel explain save load checkpoint vmap grad backward".split())
"""What takes functions and files; and modules' own machinery, which nobody calls."""
_INTERNAL: Final = frozenset(
    "lazy_exports provide with_form suggest as_shape broadcast_shapes normalize_axis fallback_counts".split()
)


_CONSTRUCTED: Final = (tb.nn.Module, tb.optim.Optimizer)


class Tensor:
    """What another library's tensor looks like."""

    __module__ = "torch"
    shape, ndim, dtype, device = (2, 3), 2, "torch.float32", "cpu"


@cache
def _functions() -> list[tuple[str, Callable[..., Any]]]:
    """Return the public functions by the names that their errors should have."""
    spaces = (tb, tb.nn.functional, tb.linalg, tb.fft, tb.special)
    known: dict[int, tuple[str, Callable[..., Any]]] = {}
    for space in spaces:
        for name in dir(space):
            function = getattr(space, name)
            skipped = name.startswith("_") or name in _CHANGES_SETTINGS | _OF_PROGRAMS | _INTERNAL
            if isinstance(function, FunctionType) and not skipped:
                known.setdefault(id(function), (function.__name__, function))
    return sorted(known.values(), key=lambda item: item[0])


@cache
def _methods() -> list[tuple[str, Callable[..., Any]]]:
    """Return the methods of tensors that are no functions of the main namespace, by their names."""
    skipped = {"backward", "register_hook", "register_post_accumulate_grad_hook", "map_", "apply_"}
    known = {name for name, _ in _functions()}
    methods = {
        name: getattr(tb.Tensor, name)
        for name in dir(tb.Tensor)
        if not name.startswith("_") and name not in skipped | known and callable(vars(tb.Tensor).get(name))
    }
    own = {m.__name__: m for m in methods.values() if isinstance(m, FunctionType)}  # not second names
    return sorted(own.items())


def _tensors(device: str) -> list[Any]:
    x = tb.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device)
    square = tb.eye(3, device=device) * 2 + 1
    index = tb.asarray([[0, 1, 2], [1, 0, 2]], device=device)
    image = tb.ones((1, 2, 5, 5), device=device)
    none = tb.zeros((0, 3), device=device)
    return [x, square, x[0], index, x > 2, x.sum(), none, image]


def _others(draw: random.Random, x: Any) -> list[Any]:
    n = draw.choice([-7, -1, 0, 1, 2, 1 << 20, 1 << 62, 1 << 70, -(1 << 63) - 1])
    return [
        None, n, float(n), n / 3, (n,), [n], (0, n), [x, n], (x, None), [x, x], (), [], [[]], "a", "same",
        b"x", True, 1j, float("nan"), float("inf"), ..., slice(None), {}, {1, 2}, object(), int, range(3),
        tb.float32, "float32", np.float32(2), np.int64(1), np.ones((2, 3)), np.array([1, 2]), Tensor(),
        lambda z: z,
    ]  # fmt: skip


def _arguments(
    draw: random.Random, function: Callable[..., Any], device: str
) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments that the signature takes, of which one at least is drawn from everything."""
    tensors = _tensors(device)
    parameters = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    wrong = draw.randrange(max(len(parameters), 1))
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for place, parameter in enumerate(parameters):
        anything = [*tensors, *_others(draw, tensors[0])]
        if parameter.kind is parameter.VAR_POSITIONAL:
            args.extend(draw.choices(anything, k=draw.randrange(3)))
            continue
        optional = parameter.default is not parameter.empty
        if optional and place != wrong and draw.random() < 0.7:
            value = parameter.default
        else:
            value = draw.choice(anything if place == wrong or optional else tensors)
        if parameter.kind is parameter.KEYWORD_ONLY:
            kwargs[parameter.name] = value
        else:
            args.append(value)
    return args, kwargs


def _spoken_of(text: str) -> Iterator[str]:
    """Yield the op that an error's text begins with, if any."""
    word = text.partition(":")[0].partition("(")[0]
    if word in table:
        yield word


@fault("arguments.methods", trials=3)
def methods(draw: random.Random) -> None:
    """Forty methods, each called on a tensor with one argument at least that is drawn from everything."""
    device = draw.choice(["cpu", "cpu", "refdev"])
    for name, method in draw.choices(_methods(), k=40):
        args, kwargs = _arguments(draw, method, device)
        itself = draw.choice(_tensors(device))
        _check(name, method, [itself, *args[1:]], kwargs, device)


@fault("arguments.keywords", trials=3)
def keywords(draw: random.Random) -> None:
    """Functions, methods and classes called with a keyword that they do not have, which their errors name."""
    classes = [
        (name, getattr(space, name))
        for space in (tb.nn, tb.optim)
        for name in dir(space)
        if isinstance(getattr(space, name), type) and issubclass(getattr(space, name), _CONSTRUCTED)
    ]
    for name, function in draw.choices([*_functions(), *_methods(), *classes], k=40):
        args, kwargs = [], {}
        if name not in dict(classes):
            args, kwargs = _arguments(draw, function, "cpu")
            args[:1] = [draw.choice(_tensors("cpu"))]
        try:
            function(*args, **kwargs, nonsense=1)
        except Exception as error:
            message = str(error)
            named = (
                name in message or getattr(function, "__name__", name) in message
            )  # of which it is a second name
            asked = isinstance(error, TypeError) and "nonsense" in message
            if not asked and not (named and isinstance(error, (TypeError, tb.TensorbusError))):
                raise AssertionError(f"{name}(*{args!r}, **{kwargs!r}, nonsense=1): {error!r}") from error
        else:
            parameters = inspect.signature(function).parameters.values()
            assert any(p.kind is p.VAR_KEYWORD for p in parameters), f"{name} takes nonsense=1"


@fault("arguments.wrong", trials=3)
def wrong(draw: random.Random) -> None:
    """Forty functions, each called with one argument drawn from everything at least."""
    device = draw.choice(["cpu", "cpu", "refdev"])
    for name, function in draw.choices(_functions(), k=40):
        args, kwargs = _arguments(draw, function, device)
        _check(name, function, args, kwargs, device)


def _check(
    name: str, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], device: str
) -> None:
    """Call a function; raise ``AssertionError`` where its error is not as it should be."""
    call = f"{name}(*{args!r}, **{kwargs!r}) on {device}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(*args, **kwargs)
    except Exception as error:
        problem = _problem(name, [*args, *kwargs.values()], error)
        if problem is not None:
            raise AssertionError(f"{call}: {error!r} {problem}") from error
    with contextlib.suppress(tb.IndexingError):  # of an index that the device read later: no other call's
        tb.Device(device, 0).synchronize()


def _problem(name: str, args: list[Any], error: Exception) -> str | None:
    """Return what is wrong with an error that a function raised; None: it is as it should be."""
    text = str(error)
    if isinstance(error, tb.TensorbusError):
        if "failed with" in text:
            return "comes from a kernel"
        others = [op for op in _spoken_of(text) if op != name and not text.startswith(f"{op}(")]
        return "names another function" if others and not any(map(callable, args)) else None
    called = [name, *(f.__qualname__ for f in args if isinstance(f, FunctionType))]
    refused = type(error) is TypeError and any(f"{one}()" in text for one in called)
    if isinstance(error, (BufferError, MemoryError)) or refused:
        return None
    return "is not tensorbus's own"
