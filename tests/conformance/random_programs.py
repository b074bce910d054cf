"""Programs drawn at random: some ten to thirty ops on a few values, several of which are shown.

A program is drawn once, with values at hand, and is then a plain function of its inputs: the same ops on the
same operands. ``str`` of it is its text.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorbus as tb

F = tb.nn.functional
LENGTHS = (1, 2, 3, 5, 7, 8, 16, 17, 33, 64, 129)
MAX_ELEMENTS = 20_000
"""Elements of a value."""
Op = Callable[..., Any]

UNARY: dict[str, Op] = {
    "tanh": tb.tanh, "sin": tb.sin, "half": lambda x: x * 0.5, "negative": lambda x: -x, "abs": tb.abs,
    "sigmoid": tb.sigmoid, "sqrt": lambda x: tb.sqrt(tb.abs(x) + 1), "gelu": F.gelu,
    "exp": lambda x: tb.exp(-tb.abs(x)), "inverse": lambda x: 1 / (1 + x * x), "relu": F.relu,
    "clip": lambda x: tb.clip(x, -0.7, 0.9), "floor": lambda x: tb.floor(x * 8) / 8,
}  # fmt: skip
BINARY: dict[str, Op] = {
    "add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "multiply": lambda x, y: x * tb.tanh(y),
    "maximum": tb.maximum, "minimum": tb.minimum, "divide": lambda x, y: x / (1 + tb.abs(y)),
    "where": lambda x, y: tb.where(x > 0.1234, y, x),
}  # fmt: skip
ALONG: dict[str, Op] = {
    "softmax": tb.softmax, "log_softmax": tb.log_softmax, "flip": tb.flip, "sort": tb.sort,
    "cumulative_sum": lambda x, axis: tb.cumulative_sum(x, axis=axis) * max(x.shape[axis], 1) ** -0.5,
    "chosen": lambda x, axis: tb.take_along_axis(x, tb.argsort(x, axis=axis), axis=axis),
    "largest": lambda x, axis: tb.take_along_axis(x, tb.argmax(x, axis=axis, keepdims=True), axis=axis),
    "centred": lambda x, axis: x - tb.mean(x, axis=axis, keepdims=True),
    "normalized": lambda x, axis: x / (tb.std(x, axis=axis, keepdims=True) + 0.1),
    "repeated": lambda x, axis: tb.repeat(x, 2, axis=axis),
    "doubled": lambda x, axis: tb.concat([x, x * 0.5], axis=axis),
    "row": tb.expand_dims,
}  # fmt: skip
REDUCED: dict[str, Op] = {
    "sum": lambda x, axis, keepdims: tb.sum(x, axis=axis, keepdims=keepdims) * 0.1, "mean": tb.mean,
    "max": tb.max, "min": tb.min, "var": tb.var, "logsumexp": tb.logsumexp,
    "prod": lambda x, axis, keepdims: tb.prod(
        (0.5 + tb.sigmoid(x)) ** 0.1, axis=axis, keepdims=keepdims
    ),
}  # fmt: skip


@dataclass
class Program:
    """``steps`` are functions of values so far, by their numbers; ``shown`` the numbers of the results.

    ``heads`` tell of the inputs. Nothing of NumPy is in it: it is to be captured.
    """

    heads: list[str]
    steps: list[tuple[str, Op, tuple[int, ...]]] = field(default_factory=list)
    shown: list[int] = field(default_factory=list)
    gradients: bool = False

    def run(self, *args: Any) -> tuple[Any, ...]:
        """Return the results, and the gradients of the inputs of floats where these are wanted."""
        args = tuple(x.clone() for x in args)
        leaves = [x.requires_grad_() for x in args if self.gradients and x.dtype.is_floating]
        values = [x.clone() for x in args] if leaves else list(args)  # leaves refuse writes
        for _, step, numbers in self.steps:
            values.append(step(*[values[k] for k in numbers]))
        results = [values[k] for k in self.shown]
        if not leaves:
            return tuple(results)
        terms = [tb.mean(x * tb.cos(x * 0.3)) for x in results if x.requires_grad and x.size]
        if terms:
            sum(terms[1:], terms[0]).backward()
        return (*[x.detach() for x in results], *[x.grad for x in leaves if x.grad is not None])

    def __str__(self) -> str:
        lines = [f"v{k} = {head}" for k, head in enumerate(self.heads)]
        lines += [
            f"v{len(self.heads) + k} = {text}({', '.join(f'v{n}' for n in numbers)})"
            for k, (text, _, numbers) in enumerate(self.steps)
        ]
        shown = ", ".join(f"v{k}" for k in self.shown)
        return "\n".join([*lines, f"return {shown}{', and gradients' if self.gradients else ''}"])


class _Drawing:
    def __init__(self, seed: int, dtype: str) -> None:
        self.random = random.Random(seed)
        rng = np.random.default_rng(seed)
        a, b, c = (self.random.choice(LENGTHS) for _ in range(3))
        shapes = [(a, b), (b, c), (b,), (a, 1), (2, a, b)]
        floats = [rng.normal(size=s).astype(dtype) for s in shapes if math.prod(s) <= MAX_ELEMENTS]
        self.inputs = [*floats, rng.integers(0, 50, self.random.choice((3, 7, 20)))]
        self.program = Program([f"input {x.shape} {x.dtype}" for x in self.inputs])
        self.values = [tb.asarray(x) for x in self.inputs]
        self.index = len(floats)

    def pick(self, fits: Callable[[Any], bool] = lambda x: True) -> int | None:
        """Return the number of a value of floats, of the later ones more often."""
        results = [k for k, x in enumerate(self.values) if x.dtype.is_floating and x.size and fits(x)]
        return results[-1 - min(int(self.random.expovariate(0.3)), len(results) - 1)] if results else None

    def add(self, text: str, op: Op, *numbers: int | None) -> None:
        """Add a step, if there are operands for it and its result is not too large."""
        operands = [k for k in numbers if k is not None]
        if len(operands) < len(numbers):
            return
        result = op(*[self.values[k] for k in operands])
        if result.size <= MAX_ELEMENTS and result.ndim < 5:
            self.program.steps.append((text, op, tuple(operands)))
            self.values.append(result)
        elif any(result is self.values[k] for k in operands):
            raise AssertionError("a change in place keeps sizes")

    def axis(self, k: int | None) -> int:
        return self.random.randrange(self.values[k].ndim) if k is not None else 0

    def draw(self) -> None:
        kinds = (
            self.unary, self.binary, self.binary, self.along, self.along, self.reduced, self.reduced,
            self.moved, self.moved, self.cut, self.cut, self.product, self.gathered, self.written,
            self.written, self.changed,
        )  # fmt: skip
        self.random.choice(kinds)()

    def unary(self) -> None:
        name = self.random.choice([*UNARY])
        self.add(name, UNARY[name], self.pick())

    def binary(self) -> None:
        name, first = self.random.choice([*BINARY]), self.pick()
        shape = self.values[first].shape if first is not None else ()
        self.add(name, BINARY[name], first, self.pick(lambda x: _meets(shape, x.shape)))

    def along(self) -> None:
        name, x = self.random.choice([*ALONG]), self.pick(lambda x: x.ndim > 0)
        axis, op = self.axis(x), ALONG[name]
        self.add(f"{name} {axis}", lambda x: op(x, axis=axis), x)

    def reduced(self) -> None:
        name, x = self.random.choice([*REDUCED]), self.pick(lambda x: x.ndim > 0)
        rank, keepdims, op = (
            self.values[x].ndim if x is not None else 1,
            self.random.random() < 0.5,
            REDUCED[name],
        )
        axes = tuple(sorted(self.random.sample(range(rank), self.random.randint(1, rank))))
        self.add(f"{name} {axes} {keepdims}", lambda x: op(x, axis=axes, keepdims=keepdims), x)

    def moved(self) -> None:
        x, shift = self.pick(lambda x: x.ndim > 0), self.random.randint(-4, 4)
        shape, axis = self.values[x].shape if x is not None else (1,), self.axis(x)
        order = tuple(self.random.sample(range(len(shape)), len(shape)))
        moves: dict[str, Op] = {
            f"permute {order}": lambda x: tb.permute_dims(x, order), "flat": lambda x: tb.reshape(x, (-1,)),
            f"roll {shift} {axis}": lambda x: tb.roll(x, shift, axis=axis),
            "joined": lambda x: tb.reshape(x, (shape[0] * shape[-1], -1) if len(shape) > 1 else (1, -1)),
            f"pad {abs(shift)}": lambda x: F.pad(x, (abs(shift), 1)),
            "lower": lambda x: tb.tril(x, k=shift) if x.ndim > 1 else x * 1,
        }  # fmt: skip
        name = self.random.choice([*moves])
        self.add(name, moves[name], x)

    def cut(self) -> None:
        x = self.pick(lambda x: x.ndim > 0)
        key = tuple(self.key(n) for n in (self.values[x].shape if x is not None else ()))
        self.add(f"cut {key}", lambda x: x[key], x)

    def key(self, n: int) -> Any:
        if (kind := self.random.random()) < 0.4:
            return slice(None)
        if kind < 0.5:
            return self.random.randrange(-n, n)
        begin = self.random.randrange(n)
        step = self.random.choice((1, 1, 2, 3))
        turned = slice(None, begin - 1 if begin else None, -step)
        return slice(begin, self.random.randint(begin + 1, n), step) if kind < 0.8 else turned

    def product(self) -> None:
        x = self.pick(lambda x: x.ndim > 1)
        n = self.values[x].shape[-1] if x is not None else 0
        y = self.pick(lambda y: y.ndim == 2 and n in y.shape)
        turned = y is not None and self.values[y].shape[0] != n
        self.add(f"product {turned}", lambda x, y: (x @ (y.T if turned else y)) * n**-0.5, x, y)

    def gathered(self) -> None:
        x = self.pick(lambda x: x.ndim > 0)
        axis = self.axis(x)
        n = self.values[x].shape[axis] if x is not None else 1
        self.add(f"take {axis}", lambda x, i: tb.take(x, i % n, axis=axis), x, self.index)

    def written(self) -> None:
        """Write to a copy: rows by a slice, by an index, by a mask, or sums at indices."""
        x = self.pick(lambda x: x.ndim > 0)
        n = self.values[x].shape[0] if x is not None else 1
        begin, step, other = self.random.randrange(n), self.random.choice((1, 2)), self.random.randrange(n)

        def sliced(x: Any, i: Any) -> Any:
            x[begin::step] = x[other] * 0.5
            return x

        def indexed(x: Any, i: Any) -> Any:
            x[i[0] % n] += 0.5
            return x

        def masked(x: Any, i: Any) -> Any:
            x[x > 0.37] = -1.0
            return x

        def rows(x: Any, i: Any) -> Any:
            x[tb.sum(x, axis=tuple(range(1, x.ndim))) > 0.2] = 0.3
            return x

        def added(x: Any, i: Any) -> Any:
            return tb.index_add(x, 0, i[:1] % n, x[other : other + 1])

        op = self.random.choice((sliced, indexed, masked, rows, added))
        text = f"{op.__name__} {begin} {step} {other}"
        self.add(text, lambda x, i: op(x.clone(), i), x, self.index)

    def changed(self) -> None:
        """Change an earlier value in its place."""
        first = len(self.inputs)
        late = {id(x) for x in self.values[first:]}
        x = self.pick(lambda x: id(x) in late)
        shape = self.values[x].shape if x is not None else ()

        def plus(x: Any, y: Any) -> Any:
            x += 0.5 * y
            return x

        fits = lambda y: y.ndim <= len(shape) and _meets(shape, y.shape) and _met(shape, y.shape) == shape  # noqa: E731
        self.add("plus in place", plus, x, self.pick(fits))


def _met(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return np.broadcast_shapes(tuple(a), tuple(b))


def _meets(a: Sequence[int], b: Sequence[int]) -> bool:
    try:
        return math.prod(_met(a, b)) <= MAX_ELEMENTS
    except ValueError:
        return False


def drawn(seed: int, dtype: str = "float64") -> tuple[Program, list[Any]]:
    """Return the program of a seed, whose values of floats have this dtype, and arrays to give it."""
    drawing = _Drawing(seed, dtype)
    for _ in range(drawing.random.randint(8, 30)):
        drawing.draw()
    program, result = drawing.program, range(len(drawing.inputs), len(drawing.values))
    few = drawing.random.sample(result, min(len(result), drawing.random.randint(1, 5)))
    program.shown = sorted({*few, result[-1]})
    program.gradients = drawing.random.random() < 0.4
    return program, drawing.inputs
