"""Fusion: whole programs, counted by kernels, and run in C beside the eager result."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from fused import CPU, THIN, check, execute, program_of, record, spec, steps_by_name, with_gradients
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.dtypes import definition as dt
from tensorbus.errors import UnsupportedOpError
from tensorbus.lowering.ir.kernel_task import KernelLaunch
from tensorbus.lowering.ir.layout import packed
from tensorbus.lowering.program.lower import lower
from tensorbus.lowering.program.program import ParallelBatch, steps_of
from tensorbus.lowering.target import Target
from tensorbus.ops.definition import Spec

RNG = np.random.default_rng(0)
F = tb.nn.functional


def f(*shape: int) -> Any:
    return RNG.normal(size=shape).astype("f4")


def entropy(x: Any, target: Any) -> Any:
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
CASES: dict[str, tuple[Callable[..., Any], list[Any], list[str]]] = {
    "chain": (lambda x, a, b, c: F.gelu(x * a + b) * tb.tanh(c) - x, [f(1000)] * 4, ["tb_subtract"]),
    "several outputs": (shared_part, [f(100, 50), f(50)], ["tb_tanh_3"]),
    "gather": (
        lambda i, x, y: tb.exp(F.embedding(i, x)) * y, [RNG.integers(0, 9, (4, 7)), f(9, 5), f(5)],
        ["tb_multiply"],
    ),
    "softmax": (lambda x: tb.softmax(x, axis=-1), [f(100, 300)], ["tb_rows_divide"]),
    "short rows": (lambda x: tb.softmax(x, axis=-1), [f(100, 10)], ["tb_rows_divide"]),
    "log_softmax": (lambda x: tb.log_softmax(x, axis=-1), [f(100, 300)], ["tb_rows_subtract"]),
    "softmax, backward": (
        with_gradients(lambda x: tb.softmax(x, axis=-1), 1), [f(100, 300), f(100, 300)], ["tb_rows_multiply"]
    ),
    "layer norm": (
        lambda x, w, b: tb.layer_norm(x, 256, w, b), [f(*ROWS), f(*WEIGHT), f(*WEIGHT)], ["tb_rows_add"]
    ),
    "layer norm, backward": (
        with_gradients(lambda x, w, b: tb.layer_norm(x, 256, w, b), 3),
        [f(*ROWS), f(*WEIGHT), f(*WEIGHT), f(*ROWS)],
        ["tb_rows_multiply", "tb_sum_2_panels", "tb_sum_2_rest"],
    ),
    "an element of another row": (
        lambda i, x, y: x[i][:, None] + tb.softmax(y, axis=-1), [np.asarray([11, 6]), f(12), f(2, 6)],
        ["tb_rows_add"],
    ),
    "rms norm": (lambda x, w: F.rms_norm(x, 256, w), [f(*ROWS), f(*WEIGHT)], ["tb_rows_multiply"]),
    "cross entropy": (
        lambda x, t: F.cross_entropy(x, t), [f(64, 100), RNG.integers(0, 100, 64)],
        ["tb_rows_pick_sum_1"],
    ),
    "cross entropy, backward": (
        entropy, [f(64, 100), RNG.integers(0, 100, 64)], ["tb_sum", "tb_rows_subtract_sum_1"]
    ),
    "linear and gelu": (
        lambda x, w, b: F.gelu(F.linear(x, w, b)), [f(4, 32, 64), f(128, 64), f(128)],
        ["call matmul", "tb_multiply"],
    ),
    "linear and gelu, backward": (
        with_gradients(lambda x, w, b: F.gelu(F.linear(x, w, b)), 3),
        [f(4, 32, 64), f(128, 64), f(128), f(4, 32, 128)],
        ["call matmul", "tb_sum_3_panels", "tb_sum_3_rest", "call matmul", "call matmul"],
    ),
    "embedding, backward": (
        embedded, [RNG.integers(0, 50, (4, 32)), f(50, 64), f(4, 32, 64)],
        ["tb_gather", "tb_full", "tb_scatter_add"],
    ),
    "sums and a map of one operand": (
        lambda x: ((x * x).sum(), x.mean(), tb.exp(x)), [f(300, 300)], ["tb_sum_3_sum_3_rest"]
    ),
    "a map and its sum across rows": (
        activated, [f(300, 300), f(300, 300)], ["tb_sum_2_panels", "tb_sum_2_rest"]
    ),
    "attention": (
        lambda q, k, v: tb.scaled_dot_product_attention(q, k, v, is_causal=True), [f(2, 4, 32, 16)] * 3,
        ["tb_multiply", "call matmul", "tb_rows_divide", "call matmul"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_program_takes_few_kernels_and_is_right(name: str) -> None:
    function, arrays, steps = CASES[name]
    program = check(function, *arrays, tolerance=1e-4)
    assert steps_by_name(program) == steps, str(program)


def adam(*given: Any) -> tuple[Any, ...]:
    count = len(given) // 4
    result: list[Any] = []
    for p, g, m, v in zip(*(given[k * count : (k + 1) * count] for k in range(4)), strict=True):
        average, square = m * 0.9 + g * 0.1, v * 0.999 + g * g * 0.001
        result += [p - 0.01 * average / (tb.sqrt(square) + 1e-8), average, square]
    return tuple(result)


SHAPES = [(100, 30), (30,), (30, 50), (50,), (500, 10), (10,), (64, 32), (1000,)]
OVER = {3 * k + part: place * 8 + k for k in range(8) for part, place in enumerate((0, 2, 3))}


def test_an_optimizer_is_one_kernel_in_place() -> None:
    arrays = [np.abs(f(*s)) for _ in range(4) for s in SHAPES]
    program = check(adam, *arrays, replaces=OVER)
    assert steps_by_name(program) == ["tb_subtract_3"]
    assert len(steps_of(program.steps[0])) == 8
    assert program.replaceable == OVER


IN_PLACE: dict[str, Callable[..., Any]] = {
    "maps": lambda x, y: (x * y - tb.exp(x), x + y),
    "a sum on the way": lambda x, y: (x * y + 1, (x + y).sum()),
    "sums across rows": lambda x, y: (x * y + 1, (x - y).sum(axis=0)),
    "rows": lambda x, y: (tb.softmax(x * y, axis=1), tb.max(x, axis=1)),
    "rows, read again": lambda x, y: tb.softmax(x * y, axis=1) + x,
    "rows, stored last": lambda x, y: x * y - x.mean(axis=1, keepdims=True),
    "rows, at once": lambda x, y: (x * y, (x + y).sum(axis=1)),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_an_input_may_be_written_over_while_it_is_read(name: str) -> None:
    x, y = f(70, 90), f(70, 90)
    check(IN_PLACE[name], x, y, replaces={0: 0}, tolerance=1e-4)


def test_what_is_read_later_is_not_written_over() -> None:
    graph = record(lambda x, y: (x + 1, tb.cumulative_sum(x * y)), spec(100), spec(100))
    _, program = program_of(graph, replaces={0: 0})
    assert program.replaceable == {0: 0}
    assert steps_by_name(program)[-1] == "tb_add", "it waits for the other reader"
    turned = record(lambda x: tb.flip(x) + 1, spec(100))
    assert program_of(turned, replaces={0: 0})[1].replaceable == {}


def test_what_follows_a_product_at_its_own_elements_is_marked() -> None:
    graph = record(lambda x, w, b: F.gelu(F.linear(x, w, b)), spec(32, 64), spec(128, 64), spec(128))
    _, program = program_of(graph)
    (step,) = (s for item in program.steps for s in steps_of(item))
    assert step.epilogue_of == 0
    _, program = program_of(record(lambda x, w: tb.flip(tb.matmul(x, w), axis=0) + 1, spec(3, 4), spec(4, 5)))
    assert all(s.epilogue_of is None for item in program.steps for s in steps_of(item))


def test_costly_work_is_not_done_twice() -> None:
    def many(x: Any) -> Any:
        e = tb.exp(x)
        return e.sum(axis=0), e.sum(axis=1), tb.flip(e, axis=0), tb.cumulative_sum(e, axis=1)

    program = check(many, f(64, 64), tolerance=1e-4)
    text = str(program)
    assert text.count("exp(") == 1, text


def test_a_long_program_is_cut_into_kernels_of_bounded_size() -> None:
    def long(x: Any) -> Any:
        for k in range(600):
            x = tb.maximum(x * 0.999, -x) if k % 3 else x + 0.25
        return x

    program = check(long, f(40))
    assert len(steps_by_name(program)) > 1
    assert all(str(kernel).count("\n") < 600 for kernel in program.kernels())


def test_a_number_of_each_run_is_a_parameter() -> None:
    graph, program = program_of(record(lambda x, y: x * y + x, spec(50), spec()), scalars=(1,))
    x = f(50)
    for value in (2.0, -0.5):
        np.testing.assert_allclose(execute(program, graph, [x, value])[0], x * value + x, rtol=1e-6)


def test_equal_small_steps_run_together_and_others_in_their_order() -> None:
    def waits(x: Any, y: Any) -> Any:
        return tb.cumulative_sum(tb.cumulative_sum(x)), tb.cumulative_sum(y)

    program = check(waits, f(100), f(100), tolerance=1e-4)
    first, second = program.steps
    assert isinstance(first, KernelLaunch)
    assert isinstance(second, ParallelBatch)
    assert {id(s.launch.kernel) for s in second.steps} == {id(first.launch.kernel)}


@pytest.mark.parametrize("name", ["softmax", "layer norm, backward", "cross entropy, backward", "short rows"])
def test_light_items_share_rows(name: str) -> None:
    function, arrays, _ = CASES[name]
    graph = record(function, *(Spec(a.shape, dt.dtype(str(a.dtype))) for a in arrays))
    _, program = program_of(graph, THIN)
    rows = [s.launch for item in program.steps for s in steps_of(item) if "tb_rows" in s.launch.kernel.name]
    assert rows
    for launch in rows:
        assert ("barrier" in str(launch.kernel)) == (name != "short rows")
        assert launch.group == (launch.grid[0] if name != "short rows" else 0)


def test_an_op_that_nobody_can_generate_is_refused_without_calls() -> None:
    x = Node(op="input", attrs={"index": 0}, spec=spec(3, 3))
    root = Node(op="cholesky", inputs=(x,), spec=spec(3, 3))
    graph = Graph(inputs=(x,), outputs=(root,))
    with pytest.raises(UnsupportedOpError, match="cholesky"):
        lower(graph, [packed(0, (3, 3))], CPU)
    program = lower(graph, [packed(0, (3, 3))], CPU, library=frozenset())
    assert steps_by_name(program) == ["call cholesky"]


def test_rows_that_are_counted_are_read_after_they_are_made() -> None:
    """Where the count is a result as well it lies in a buffer, which another kernel fills."""

    def chosen(x: Any, index: Any) -> Any:
        rows = tb.arange(7, device=x.device)
        return tb.take_along_axis(x, index, axis=1), rows, tb.sum(x, axis=1) * rows

    check(chosen, f(7, 20), RNG.integers(0, 20, (7, 3)))


@pytest.mark.parametrize("target", [CPU, THIN])
def test_many_of_a_row_that_are_chosen_are_read_from_what_is_stored(target: Target) -> None:
    """A sum over what indices choose walks the row as well: it does not have all of the row at hand."""

    def chosen(x: Any, index: Any, choices: Any) -> Any:
        flat = x[0] - tb.reshape(tb.max(x[0]), (1,))
        rows = x - tb.broadcast_to(tb.reshape(tb.max(x, axis=1), (4, 1)), (4, 8))
        across = tb.sum(tb.take_along_axis(rows, choices, axis=1), axis=1)
        return tb.sum(tb.take(flat, index, axis=0)), flat, across, rows

    check(chosen, f(4, 8), RNG.integers(0, 8, 8), RNG.integers(0, 8, (4, 8)), target=target)


def test_kernels_that_are_joined_late_do_not_wait_for_each_other() -> None:
    """A product joins an early kernel, that one a later one, which then must not wait for the early one."""

    def late(x: Any, y: Any) -> Any:
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

    check(late, f(5, 40), f(5, 40))
    check(needs_later, f(5, 40), f(5, 40), f(5, 40))


SCRIPT = """
from test_fusion import CASES, adam, SHAPES
from fused import program_of, record, spec
from tensorbus import dtypes as dt
from tensorbus.ops.definition import Spec
for function, arrays, _ in CASES.values():
    junk = [object() for _ in range(hash(str(arrays)) % 1000)]
    print(program_of(record(function, *(Spec(a.shape, dt.dtype(str(a.dtype))) for a in arrays)))[1])
print(program_of(record(adam, *(spec(*s) for _ in range(4) for s in SHAPES)))[1])
"""


def test_equal_graphs_give_equal_programs_in_every_process() -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT], cwd=Path(__file__).parent, capture_output=True, text=True,
            check=True, env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(texts) == 1
