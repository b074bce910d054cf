"""Programs that fuse: tests/core/lowering looks at what they become, tests/cpu at what they compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorbus as tb
from fused import CPU, THIN, program_of, record, spec, steps_by_name, with_gradients
from tensorbus.backend_api import KernelBuilder, Schedule, index_expr, parallel_loops
from tensorbus.backend_interface.graph import Graph
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.ir.kernel_task import LaunchList
from tensorbus.lowering.ir.layout import packed
from tensorbus.lowering.program.lower import lower
from tensorbus.lowering.program.program import Program
from tensorbus.lowering.program.verify import verify_program
from tensorbus.lowering.schedules.schedule import ScheduleRequest, Verdict
from tensorbus.lowering.target import Target
from tensorbus.ops.definition import Spec

F = tb.nn.functional


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand: drawn only where a program runs."""

    spec: Spec
    draw: Callable[[np.random.Generator], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedProgram:
    """A function of tensors, its operands, and what it is lowered for."""

    function: Callable[..., Any]
    operands: tuple[Operand, ...]
    replaces: Mapping[int, int] | None = None
    target: Target = CPU
    has_library: bool = True

    @property
    def specs(self) -> list[Spec]:
        return [x.spec for x in self.operands]

    def arrays(self) -> list[Any]:
        """Return the operands, the same at each call."""
        generator = np.random.default_rng(0)
        return [x.draw(generator).astype(x.spec.dtype.name) for x in self.operands]


def program(function: Callable[..., Any], *operands: Operand, **options: Any) -> FusedProgram:
    return FusedProgram(function=function, operands=operands, **options)


def f(*shape: int, scale: float = 1.0) -> Operand:
    """Return normal numbers."""
    return Operand(spec(*shape), lambda rng: rng.normal(size=shape) * scale)


def positive(*shape: int) -> Operand:
    return Operand(spec(*shape), lambda rng: np.abs(rng.normal(size=shape)))


def chances(*shape: int) -> Operand:
    return Operand(spec(*shape), lambda rng: rng.uniform(0.1, 0.9, size=shape))


def number(value: float) -> Operand:
    return Operand(spec(), lambda rng: np.asarray(value))


def indices(count: int, *shape: int, dtype: dt.DType = dt.int64) -> Operand:
    return Operand(Spec(shape, dtype), lambda rng: rng.integers(0, count, shape))


def bytes_(*shape: int) -> Operand:
    return Operand(Spec(shape, dt.int8), lambda rng: rng.integers(-128, 128, shape))


def classes(count: int, *shape: int, ignored: int = -100) -> Operand:
    """Return indices of which every seventh is one that losses ignore."""

    def draw(rng: np.random.Generator) -> Any:
        result = rng.integers(0, count, shape)
        result.reshape(-1)[::7] = ignored
        return result

    return Operand(Spec(shape, dt.int64), draw)


def mask(*shape: int) -> Operand:
    return Operand(Spec(shape, dt.bool_), lambda rng: rng.normal(size=shape) > -1)


# Fusion in general.


def entropy_backward(x: Any, target: Any) -> Any:
    x.requires_grad_()
    loss = F.cross_entropy(x, target)
    loss.backward()
    return loss, x.grad


def embedded(index: Any, table: Any, g: Any) -> Any:
    table.requires_grad_()
    out = F.embedding(index, table)
    out.backward(g)
    return out, table.grad


def shared_part(x: Any, y: Any) -> Any:
    z = tb.exp(x * y) + 1
    return z, z * x, tb.tanh(z)


def activated(x: Any, y: Any) -> Any:
    g = tb.where(y > 0, x, 0.0)
    return g, g.sum(axis=0)


ROWS, WEIGHT = (6, 16, 256), (256,)
FUSION = {
    "chain": program(
        lambda x, a, b, c: F.gelu(x * a + b) * tb.tanh(c) - x, f(1000), f(1000), f(1000), f(1000)
    ),
    "several outputs": program(shared_part, f(100, 50), f(50)),
    "gather": program(
        lambda i, x, y: tb.exp(F.embedding(i, x)) * y, indices(9, 4, 7), f(9, 5), f(5)
    ),
    "softmax": program(lambda x: tb.softmax(x, axis=-1), f(100, 300)),
    "short rows": program(lambda x: tb.softmax(x, axis=-1), f(100, 10)),
    "log_softmax": program(lambda x: tb.log_softmax(x, axis=-1), f(100, 300)),
    "softmax, backward": program(
        with_gradients(lambda x: tb.softmax(x, axis=-1), 1), f(100, 300), f(100, 300)
    ),
    "layer norm": program(lambda x, w, b: tb.layer_norm(x, 256, w, b), f(*ROWS), f(*WEIGHT), f(*WEIGHT)),
    "layer norm, backward": program(
        with_gradients(lambda x, w, b: tb.layer_norm(x, 256, w, b), 3),
        f(*ROWS), f(*WEIGHT), f(*WEIGHT), f(*ROWS),
    ),
    "an element of another row": program(
        lambda i, x, y: x[i][:, None] + tb.softmax(y, axis=-1), indices(12, 2), f(12), f(2, 6)
    ),
    "rms norm": program(lambda x, w: F.rms_norm(x, 256, w), f(*ROWS), f(*WEIGHT)),
    "cross entropy": program(lambda x, t: F.cross_entropy(x, t), f(64, 100), indices(100, 64)),
    "cross entropy, backward": program(entropy_backward, f(64, 100), indices(100, 64)),
    "linear and gelu": program(
        lambda x, w, b: F.gelu(F.linear(x, w, b)), f(4, 32, 64), f(128, 64), f(128)
    ),
    "linear and gelu, backward": program(
        with_gradients(lambda x, w, b: F.gelu(F.linear(x, w, b)), 3),
        f(4, 32, 64), f(128, 64), f(128), f(4, 32, 128),
    ),
    "embedding, backward": program(embedded, indices(50, 4, 32), f(50, 64), f(4, 32, 64)),
    "sums and a map of one operand": program(
        lambda x: ((x * x).sum(), x.mean(), tb.exp(x)), f(300, 300)
    ),
    "a map and its sum across rows": program(activated, f(300, 300), f(300, 300)),
    "attention": program(
        lambda q, k, v: tb.scaled_dot_product_attention(q, k, v, is_causal=True),
        f(2, 4, 32, 16), f(2, 4, 32, 16), f(2, 4, 32, 16),
    ),
}  # fmt: skip


def adam(*args: Any) -> tuple[Any, ...]:
    count = len(args) // 4
    result: list[Any] = []
    for p, g, m, v in zip(*(args[k * count : (k + 1) * count] for k in range(4)), strict=True):
        average, square = m * 0.9 + g * 0.1, v * 0.999 + g * g * 0.001
        result += [p - 0.01 * average / (tb.sqrt(square) + 1e-8), average, square]
    return tuple(result)


SHAPES = [(100, 30), (30,), (30, 50), (50,), (500, 10), (10,), (64, 32), (1000,)]
OVER = {3 * k + part: place * 8 + k for k in range(8) for part, place in enumerate((0, 2, 3))}


def of_two(function: Callable[..., Any]) -> FusedProgram:
    return program(function, f(70, 90), f(70, 90), replaces={0: 0})


IN_PLACE = {
    "an optimizer": program(adam, *(positive(*s) for _ in range(4) for s in SHAPES), replaces=OVER),
    "maps": of_two(lambda x, y: (x * y - tb.exp(x), x + y)),
    "a sum on the way": of_two(lambda x, y: (x * y + 1, (x + y).sum())),
    "sums across rows": of_two(lambda x, y: (x * y + 1, (x - y).sum(axis=0))),
    "rows": of_two(lambda x, y: (tb.softmax(x * y, axis=1), tb.max(x, axis=1))),
    "rows, read again": of_two(lambda x, y: tb.softmax(x * y, axis=1) + x),
    "rows, stored last": of_two(lambda x, y: x * y - x.mean(axis=1, keepdims=True)),
    "rows, at once": of_two(lambda x, y: (x * y, (x + y).sum(axis=1))),
}


def costly(x: Any) -> Any:
    e = tb.exp(x)
    return e.sum(axis=0), e.sum(axis=1), tb.flip(e, axis=0), tb.cumulative_sum(e, axis=1)


def long(x: Any) -> Any:
    for k in range(600):
        x = tb.maximum(x * 0.999, -x) if k % 3 else x + 0.25
    return x


def waits(x: Any, y: Any) -> Any:
    return tb.cumulative_sum(tb.cumulative_sum(x)), tb.cumulative_sum(y)


def counted_rows(x: Any, index: Any) -> Any:
    """Return results of which one, the count of rows, lies in a buffer that another kernel fills."""
    rows = tb.arange(7, device=x.device)
    return tb.take_along_axis(x, index, axis=1), rows, tb.sum(x, axis=1) * rows


def chosen_of_a_row(x: Any, index: Any, choices: Any) -> Any:
    """Return sums over what indices choose: they loop over the row too, and do not have all of it at hand."""
    flat = x[0] - tb.reshape(tb.max(x[0]), (1,))
    rows = x - tb.broadcast_to(tb.reshape(tb.max(x, axis=1), (4, 1)), (4, 8))
    across = tb.sum(tb.take_along_axis(rows, choices, axis=1), axis=1)
    return tb.sum(tb.take(flat, index, axis=0)), flat, across, rows


def late(x: Any, y: Any) -> Any:
    """Join a product with an early kernel, and that with a later one, which need not wait for it."""
    first = x + 1
    between = tb.sort(first, axis=1)
    beside = y * 2
    return first, between, beside, first * y, between + beside


def needs_later(x: Any, y: Any, z: Any) -> Any:
    first = x + 1
    other = tb.sort(y, axis=1)
    between, beside = other * z, z - 3
    joined = first * between
    last = tb.sort(tb.exp(joined), axis=1)
    return first, between, joined, last, last + beside, tb.sort(beside, axis=0) * x


def layers(count: int) -> Callable[..., Any]:
    def model(x: Any, *weights: Any) -> Any:
        for w in weights[:count]:
            x = x + tb.softmax(tb.exp(x * 0.5) @ w, axis=1)
        return x

    return model


ORDER = {
    "costly work": program(costly, f(64, 64)),
    "a long program": program(long, f(40)),
    "equal steps": program(waits, f(100), f(100)),
    "rows that are counted": program(counted_rows, f(7, 20), indices(20, 7, 3)),
    "many of a row": program(chosen_of_a_row, f(4, 8), indices(8, 8), indices(8, 4, 8)),
    "many of a row, by work-items": program(
        chosen_of_a_row, f(4, 8), indices(8, 8), indices(8, 4, 8), target=THIN
    ),
    "joined late": program(late, f(5, 40), f(5, 40)),
    "joined before it is needed": program(needs_later, f(5, 40), f(5, 40), f(5, 40)),
    "two layers": program(layers(2), f(64, 64), f(64, 64, scale=0.1), f(64, 64, scale=0.1)),
    "four layers": program(layers(4), f(64, 64), *[f(64, 64, scale=0.1)] * 4),
}

_TWO = (f(7, 40), f(7, 40))
SHARED_KERNELS = {
    "of two buffers": program(lambda a, b: (tb.exp(a) * b).sum(axis=1), *_TWO),
    "of one buffer": program(lambda a, b: (tb.exp(a) * a).sum(axis=1), *_TWO),
    "beside each other": program(
        lambda a, b, c: ((tb.exp(a) * b).sum(axis=1), (tb.exp(a) * c).sum(axis=1)), *_TWO, f(7, 40)
    ),
    "in turns": program(
        lambda a, b, c: ((tb.exp(a) * b).sum(axis=1), (tb.exp(b) * c).sum(axis=1)), *_TWO, f(7, 40)
    ),
}

# Column normalization.


def centered(x: Any) -> Any:
    top = x.max(axis=(0, 1), keepdims=True)
    return x - x.mean(axis=(0, 1), keepdims=True) * tb.exp(top), top


def normed(x: Any, w: Any, b: Any) -> Any:
    return F.batch_norm(x, None, None, w, b, training=True)


COLUMNS = {
    "softmax of columns": program(lambda x: tb.softmax(x, axis=0), f(90, 200)),
    "softmax of a middle axis": program(lambda x: tb.softmax(x, axis=1), f(6, 40, 70)),
    "softmax of columns, backward": program(
        with_gradients(lambda x: tb.softmax(x, axis=0), 1), f(90, 200), f(90, 200)
    ),
    "two results": program(
        lambda x: (tb.log_softmax(x, axis=1), tb.logsumexp(x, axis=1)), f(4, 10, 160)
    ),
    "short last axes": program(lambda x: tb.log_softmax(x, axis=1), f(4, 10, 16, 16)),
    "two axes": program(centered, f(8, 6, 97)),
    "batch norm of images": program(normed, f(8, 16, 14, 14), f(16), f(16)),
    "batch norm of images, backward": program(
        with_gradients(normed, 3), f(8, 16, 14, 14), f(16), f(16), f(8, 16, 14, 14)
    ),
    "batch norm of columns": program(normed, f(256, 64), f(64), f(64)),
    "batch norm, evaluated": program(
        F.batch_norm, f(8, 16, 14, 14), f(16), positive(16), f(16), f(16)
    ),
    "standard scores": program(lambda x: (x - x.mean(axis=0)) / x.std(axis=0), f(300, 70)),
    "conditions": program(
        lambda x: tb.where((x > 2).any(axis=0), x.max(axis=0) - x, x), f(100, 70)
    ),
}  # fmt: skip

# Epilogues of the last task.


def entropy(**options: Any) -> Callable[..., Any]:
    return lambda x, t, *weight: F.cross_entropy(x, t, *weight, **options)


def with_loss(x: Any, t: Any) -> Any:
    x.requires_grad_()
    loss = F.cross_entropy(x, t)
    loss.backward()
    return loss, x.grad


def logits_step(h: Any, w: Any, t: Any) -> Any:
    for x in (h, w):
        x.requires_grad_()
    loss = F.cross_entropy(h @ w, t)
    loss.backward()
    return loss, h.grad, w.grad


X, T = f(300, 100), classes(100, 300)
EPILOGUES = {
    "cross entropy": program(entropy(), X, T),
    "cross entropy, sum": program(entropy(reduction="sum"), X, T),
    "cross entropy, none": program(entropy(reduction="none"), X, T),
    "cross entropy, another class ignored": program(
        entropy(ignore_index=3), X, classes(100, 300, ignored=3)
    ),
    "cross entropy, smoothed": program(entropy(label_smoothing=0.1), X, T),
    "cross entropy, weighted": program(entropy(), X, T, chances(100)),
    "cross entropy, weighted and smoothed": program(entropy(label_smoothing=0.2), X, T, chances(100)),
    "cross entropy, probabilities": program(entropy(), X, chances(300, 100)),
    "cross entropy, probabilities, sum": program(entropy(reduction="sum"), X, chances(300, 100)),
    "cross entropy, probabilities, smoothed": program(
        entropy(label_smoothing=0.1), X, chances(300, 100), f(100)
    ),
    "cross entropy of one": program(entropy(), f(1, 100), indices(100, 1)),
    "cross entropy of short rows": program(entropy(), f(300, 5), classes(5, 300)),
    "cross entropy of many rows": program(entropy(), f(30_000, 40), classes(40, 30_000)),
    "cross entropy of images": program(entropy(), f(4, 7, 16, 16), classes(7, 4, 16, 16)),
    "log_softmax, then nll": program(lambda x, t: F.nll_loss(tb.log_softmax(x, axis=-1), t), X, T),
    "bce": program(F.binary_cross_entropy, chances(300, 100), chances(300, 100)),
    "bce of logits": program(F.binary_cross_entropy_with_logits, X, chances(300, 100)),
    "mse": program(F.mse_loss, X, f(300, 100)),
    "mse of many": program(F.mse_loss, f(700, 1000), f(700, 1000)),
    "group norm": program(lambda x, w, b: F.group_norm(x, 4, w, b), f(3, 16, 14, 14), f(16), f(16)),
    "group norm of vectors": program(
        lambda x, w, b: F.group_norm(x, 2, w, b), f(30, 160), f(160), f(160)
    ),
    "softmax of what a mask leaves": program(
        lambda x, m: tb.softmax(tb.where(m, x, float("-inf")), axis=-1), f(2, 4, 60, 60), mask(60, 60)
    ),
    "softmax of scores and a mask": program(
        lambda x, m: tb.softmax(x * 0.125 + m, axis=-1), f(2, 4, 60, 60), f(60, 60)
    ),
}  # fmt: skip
LOSSES = {
    "the loss and its gradient": program(with_loss, X, T),
    "logits": program(logits_step, f(256, 64), f(64, 1001), classes(1001, 256)),
    "read meanwhile": program(lambda x: (tb.softmax(x, axis=-1).sum(axis=-1) * 2).sum() + x, X),
    **{
        f"{name}, backward": replace(
            EPILOGUES[name],
            function=with_gradients(EPILOGUES[name].function, 1),
            operands=(*EPILOGUES[name].operands, number(1.5)),
        )
        for name in ("mse", "bce of logits")
    },
}

# Products of computed operands: each a sum of rows or columns.

V, W, SCALE = f(96), f(70, 96), f(96)
VECTORS = {
    "matrix and vector": program(lambda w, v: (w * 2 + 1) @ v, W, V),
    "scaled integers and vector": program(
        lambda q, s, v: (q.to(tb.float32) * s) @ v, bytes_(70, 96), SCALE, V
    ),
    "vector and matrix": program(lambda v, w: v @ tb.exp(w.mT), V, W),
    "row and matrix": program(lambda v, w: v[None] @ (w.mT - 3), V, W),
    "batches of columns": program(lambda w, v: (w[None] * v[:4, None, None]) @ v[:, None], W, V),
    "vector and batches": program(lambda w, v: v @ (w[None] * v[:4, None, None]).mT, W, V),
    "vector and vector": program(lambda v, s: (v * 2) @ tb.sin(s), V, SCALE),
}  # fmt: skip


def without_library(function: Callable[..., Any], *operands: Operand) -> FusedProgram:
    return program(function, *operands, has_library=False)


GENERATED_VECTORS = {
    "matrix and vector": without_library(lambda w, v: w @ v, W, V),
    "vector and matrix": without_library(lambda v, w: v @ w.mT, V, W),
    "row and matrix": without_library(lambda v, w: v[None] @ w.mT, V, W),
    "columns": without_library(lambda w, v: w.mT @ v[:70], W, V),
    "batches": without_library(lambda w, v: v[None, None] @ tb.reshape(w, (7, 10, 96)).mT, W, V),
    "vector and vector": without_library(lambda v, s: v @ s, V, SCALE),
}

# Values that backward computes again.

SIDE = 512


def trained(act: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a hidden layer whose gradient needs the result: its backward runs behind two products."""

    def step(x: Any, w: Any) -> Any:
        x.requires_grad_()
        out = act(x) @ w
        (out * out).sum().backward()
        return out, x.grad

    return step


RECOMPUTED = {
    name: program(trained(act), f(SIDE, SIDE, scale=0.1), f(SIDE, SIDE, scale=0.1), target=THIN)
    for name, act in {
        "gelu": F.gelu, "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
        "silu": F.silu, "mish": F.mish,
    }.items()
}  # fmt: skip


# A schedule that a target brings.


def halves(request: ScheduleRequest, target: Target) -> Verdict:
    single = request.single(target)
    if single is not True:
        return single
    shape = request.task.root.spec.shape
    return True if len(shape) == 1 and shape[0] % 2 == 0 else "it is no vector of even length"


def build_halves(request: ScheduleRequest, launches: LaunchList) -> None:
    task = request.task
    b = KernelBuilder(f"halves_{task.root.op}")
    inliner, slots = task.inliner(b)
    count = task.root.spec.shape[0] // 2
    half = b.size("half", count)
    (first,), loops = parallel_loops(b, [half], [count])
    out = b.buffer("out", task.root.spec.dtype, writes=True)
    for at in (first, index_expr.add(first, half)):
        with inliner.scope():
            b.store(out, at, inliner.value(task.root, (at,)))
    launches.add(b.finish(loops), {**slots, "out": task.out})


HALVES = Schedule(
    name="halves", about="two elements of a vector at a time", kinds=frozenset({"pointwise"}),
    applies=halves, build=build_halves,
)  # fmt: skip
TOY = replace(CPU, schedules=(HALVES,))
OF_A_TOY = {
    name: program(lambda x, y: tb.exp(x) * y, f(length), f(length), target=TOY)
    for name, length in (("an even length", 1000), ("an odd length", 999))
}


def lowered(case: FusedProgram) -> tuple[Graph, Program]:
    """Return the simplified graph of a program, and what it is lowered to."""
    graph, program = program_of(
        record(case.function, *case.specs),
        case.target,
        replaces=dict(case.replaces) if case.replaces else None,
    )
    if not case.has_library:
        layouts = [packed(k, x.shape) for k, x in enumerate(case.specs)]
        program = verify_program(lower(graph, layouts, case.target, library=frozenset()), layouts)
    return graph, program


def steps_of_case(case: FusedProgram) -> list[str]:
    """Return the steps that a program takes."""
    return steps_by_name(lowered(case)[1])
