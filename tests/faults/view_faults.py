"""Random views of views, and writes through any of them, held to one flat array of NumPy after each step.

Where a device lends its memory, arrays that it was lent to are among them.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import tensorbus as tb

from program_faults import _key, devices
from registry import fault

_DTYPES: Final = ("float32", "float32", "int64", "complex64", "bool")
_MOST_WINDOWS: Final = 12
"""How many tensors are watched at most: some are let go of before others come."""


@dataclass(frozen=True, slots=True)
class Window:
    """A tensor, or an array that its memory was lent to, that shows elements of the base.

    ``places`` are where its elements lie in ``elements``, the base's flat array or the real or imaginary
    parts of it; ``how`` tells by which ops it came.
    """

    shown: Any
    places: Any
    elements: Any
    takes_writes: bool
    how: str

    def wanted(self) -> Any:
        """Return what it has to show."""
        return self.elements[self.places]


def _view_ops(draw: random.Random, window: Window) -> dict[str, Callable[[Any], Any]]:
    """Return ops by name that view a tensor of this window, and that select the same of an array."""
    shape, rank = window.places.shape, window.places.ndim
    key, order = _key(draw, shape), tuple(draw.sample(range(rank), rank))
    ops: dict[str, Callable[[Any], Any]] = {
        f"[{key}]": lambda x: x[key],
        f"permute_dims({order})": lambda x: tb.permute_dims(x, order) if _of(x) is tb else x.transpose(order),
        "[None]": lambda x: x[None],
        "broadcast_to": lambda x: _of(x).broadcast_to(x, (2, *shape)),
    }
    flat = window.places.reshape(-1)
    if flat.size and (np.diff(flat) == 1).all():
        lengths = draw.choice([(-1,), (1, *shape), tuple(n for n in shape if n != 1)])
        ops[f"reshape({lengths})"] = lambda x: x.reshape(lengths)
    if 1 in shape:
        ops["squeeze"] = lambda x: _of(x).squeeze(x, axis=shape.index(1))
    if rank:
        first, second = draw.randrange(rank), draw.randrange(rank)
        ops[f"moveaxis({first}, {second})"] = lambda x: _of(x).moveaxis(x, first, second)
        ops[f"expand_dims({first})"] = lambda x: _of(x).expand_dims(x, axis=first)
        if shape[first]:
            row = draw.randrange(shape[first])
            size = draw.randrange(1, shape[first] + 1)
            ops[f"unstack({first})[{row}]"] = lambda x: (
                tb.unstack(x, axis=first)[row] if _of(x) is tb else np.take(x, row, first)
            )
            ops[f"split({size}, {first})[0]"] = lambda x: (
                tb.split(x, size, first)[0] if _of(x) is tb else np.take(x, range(size), first)
            )
    if rank >= 2:
        offset = draw.randrange(-1, 2)
        ops[f"diagonal({offset})"] = lambda x: x.diagonal(offset)
    return ops


def _of(x: Any) -> Any:
    return tb if isinstance(x, tb.Tensor) else np


def _view(draw: random.Random, window: Window) -> Window:
    """Return a window made by a random view op of one."""
    if window.elements.dtype.kind == "c" and draw.random() < 0.4:
        if draw.random() < 0.3:
            elements, places = window.elements.view(window.elements.real.dtype), window.places[..., None]
            shown, how = tb.view_as_real(window.shown), f"view_as_real({window.how})"
            return replace(window, shown=shown, elements=elements, places=2 * places + [0, 1], how=how)
        part = draw.choice(["real", "imag"])
        elements = getattr(window.elements, part)
        shown = getattr(window.shown, part)
        return replace(window, shown=shown, elements=elements, how=f"{window.how}.{part}")
    name, op = draw.choice(list(_view_ops(draw, window).items()))
    takes_writes = window.takes_writes and name != "broadcast_to"
    return Window(op(window.shown), op(window.places), window.elements, takes_writes, f"{window.how}.{name}")


_LENDING: Final[dict[str, Callable[[Any], Any]]] = {
    "asarray": np.asarray,
    "from_dlpack": np.from_dlpack,
    **({"memoryview": lambda x: np.asarray(memoryview(x))} if sys.version_info >= (3, 12) else {}),
}


def _lent(draw: random.Random, window: Window) -> Window:
    """Return a window whose array lies in the memory of a tensor on cpu."""
    name, lend = draw.choice(list(_LENDING.items()))
    return replace(window, shown=lend(window.shown), how=f"{name}({window.how})")


def _write(draw: random.Random, window: Window, others: list[Window]) -> str:
    """Write through a window, into the base's array too; return in words what was written."""
    x, places, elements = window.shown, window.places, window.elements
    number = draw.randrange(2) if elements.dtype.kind == "b" else draw.randrange(-9, 10)
    key: Any = _key(draw, places.shape)
    if draw.random() < 0.3:
        key = np.random.default_rng(draw.getrandbits(32)).random(places.shape) < 0.5
    how = draw.choice(["number", "row", "window", "fill", "change"])
    where = places[key]
    if how == "row":
        row = np.arange(where.size).reshape(where.shape).astype(elements.dtype)
        x[key] = tb.asarray(row, device=x.device) if _of(x) is tb else row
        elements[where] = row
        return f"[{key}] = {row.tolist()}"
    if how == "window":
        fitting = [
            other
            for other in others
            if other.places.shape == where.shape and other.elements.dtype == elements.dtype
        ]
        if fitting:
            other = draw.choice(fitting)
            values = other.wanted()
            x[key] = other.shown if _of(x) is _of(other.shown) else values
            elements[where] = values
            return f"[{key}] = {other.how}"
    if how == "fill":
        x.fill_(number) if _of(x) is tb else x.fill(number)
        elements[places] = number
        return f".fill_({number})"
    if how == "change" and elements.dtype.kind != "b":
        x += number
        elements[places] = elements[places] + number
        return f" += {number}"
    x[key] = number
    elements[where] = number
    return f"[{key}] = {number}"


def _refuses(window: Window, what: str) -> None:
    try:
        window.shown[...] = 1
    except (tb.TensorbusError, ValueError):
        return
    raise AssertionError(f"{window.how} takes writes after {what}")


def _check(windows: list[Window], log: list[str]) -> None:
    for window in windows:
        actual = window.shown.numpy() if _of(window.shown) is tb else window.shown
        wanted = window.wanted()
        if actual.shape != wanted.shape or actual.dtype != wanted.dtype or not np.array_equal(actual, wanted):
            steps = "\n  ".join(log)
            raise AssertionError(
                f"{window.how} shows {actual.tolist()} in place of {wanted.tolist()} after\n  {steps}"
            )


def _base(draw: random.Random) -> tuple[Any, str]:
    """Return random elements, and their dtype and shape in words."""
    shape = tuple(draw.choice([0, 1, 2, 3, 4, 5]) for _ in range(draw.randrange(4)))
    dtype = draw.choice(_DTYPES)
    values = np.random.default_rng(draw.getrandbits(32)).integers(0, 9, shape).astype(dtype)
    return values, f"base of {dtype} {shape}"


def _window_of(x: Any, values: Any) -> Window:
    """Return the window that shows all of a base."""
    return Window(x, np.arange(values.size).reshape(values.shape), values.reshape(-1).copy(), True, "base")


def _steps(
    draw: random.Random, windows: list[Window], log: list[str], count: int, *, lends: bool, look: bool
) -> None:
    """Make ``count`` views, arrays that memory is lent to, and writes; ``look`` at all after each."""
    for _ in range(count):
        if len(windows) > _MOST_WINDOWS or (len(windows) > 1 and draw.random() < 0.08):
            gone = windows.pop(draw.randrange(len(windows)))
            log.append(f"{gone.how} is let go of")
            del gone
        window = draw.choice(windows)
        tensor = _of(window.shown) is tb
        if lends and tensor and window.takes_writes and draw.random() < 0.15:
            windows.append(_lent(draw, window))
            log.append(windows[-1].how)
        elif tensor and draw.random() < 0.45:
            windows.append(_view(draw, window))
            log.append(windows[-1].how)
        elif window.takes_writes:
            log.append(f"{window.how}{_write(draw, window, windows)}")
        elif look and window.places.size:
            _refuses(window, "; ".join(log))
        if look:
            _check(windows, log)


@fault("views.writes", trials=4)
def writes(draw: random.Random) -> None:
    """Writes to any view are seen in all that show the same elements, and nowhere else."""
    device = draw.choice(devices())
    values, words = _base(draw)
    windows = [_window_of(tb.asarray(values, device=device), values)]
    log = [f"{words} on {device}"]
    _steps(draw, windows, log, draw.randrange(4, 24), lends=device == "cpu", look=True)


@fault("views.compiled", trials=1)
def compiled(draw: random.Random) -> None:
    """A compiled function that views its operand and writes to it leaves there, and returns, the same.

    What it returns are views still, and so are those that there were before the call.
    """
    device = draw.choice(devices())
    values, words = _base(draw)
    seed, count, before = draw.getrandbits(32), draw.randrange(2, 10), draw.random() < 0.5

    def steps(window: Window, log: list[str]) -> list[Window]:
        windows = [window]
        _steps(random.Random(seed), windows, log, count, lends=False, look=False)
        return windows

    def run(x: Any) -> tuple[Any, ...]:
        return tuple([window.shown for window in steps(_window_of(x, values), [])])

    function = tb.compile(run)
    for number in range(2):
        x, log = tb.asarray(values, device=device), [f"{words} on {device}, call {number}"]
        base = _window_of(x, values)
        windows = [base, *([replace(base, shown=x[...], how="view from before")] if before else [])]
        results = function(x)
        eager = steps(replace(base, shown=tb.asarray(values, device=device)), log)
        windows += [replace(w, shown=result) for w, result in zip(eager, results, strict=True)]
        _check(windows, log)
        for _ in range(2):
            window = draw.choice(windows)
            if window.takes_writes:
                log.append(f"then {window.how}{_write(draw, window, windows)}")
                _check(windows, log)
