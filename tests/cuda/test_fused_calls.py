"""Products that add, and calls that put their results where others read them: programs, without a GPU."""

from __future__ import annotations

from typing import Any

import pytest
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.dtypes import definition as dt
from tensorbus.graph.passes.fuse_epilogue import fuse_activations, fuse_sums
from tensorbus.graph.passes.simplify import simplify
from tensorbus.lowering.codegen.render import render
from tensorbus.lowering.ir.kernel_task import LibraryCall
from tensorbus.lowering.ir.layout import Layout, packed
from tensorbus.lowering.ir.verify import verify
from tensorbus.lowering.library import Library
from tensorbus.lowering.program.lower import lower
from tensorbus.lowering.program.program import Program
from tensorbus.ops.definition import Spec
from tensorbus_cuda.dialect import dialect

CUDA = dialect(132)
HEADS, LENGTH, WIDTH = 4, 64, 16
ATTENTION, GRADIENTS = "scaled_dot_product_attention", "attention_gradients"
ATTRS = {"is_causal": True, "scale": 0.25, "enable_gqa": False}


def node(op: str, *inputs: Node, shape: tuple[int, ...], **attrs: Any) -> Node:
    if op in ("reshape", "broadcast_to", "full"):
        attrs["shape"] = shape
    return Node(op=op, inputs=inputs, attrs=attrs, spec=Spec(shape, dt.bfloat16))


def input_node(*shape: int) -> Node:
    return Node(op="input", spec=Spec(shape, dt.bfloat16))


def product(x: Node, w: Node) -> Node:
    return node("matmul", x, w, shape=(x.spec.shape[0], w.spec.shape[1]))


def order_of(call: Node, lies: Any) -> list[tuple[int, ...]] | None:
    """Results of attention lie with the axes of an operand whose rows come first."""
    if call.op not in (ATTENTION, GRADIENTS):
        return None
    (x,) = lies[:1] if call.op == ATTENTION else lies[2:3]
    order = tuple(sorted(range(4), key=lambda k: -x.strides[k]))
    return [order] * 3


def left(first: Node, second: Node) -> int:
    return LENGTH if (first.op, second.op) == (ATTENTION, GRADIENTS) else 0


def lowered(graph: Graph, orders: Any = order_of) -> Program:
    library = Library(
        frozenset({"matmul", "affine", ATTENTION, GRADIENTS}),
        CUDA.types,
        axis_orders=orders,
        side_output=left,
    )
    where: list[Layout | None] = [packed(k, x.spec.shape) for k, x in enumerate(graph.inputs)]
    program = lower(graph, where, CUDA.target, library=library)
    for kernel in program.kernels():
        verify(kernel)
    return program


def names(program: Program) -> list[str]:
    return [s.op if isinstance(s, LibraryCall) else s.launch.kernel.name for s in program.steps]


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_a_bias_and_a_residual_are_added_by_the_product(turned: bool, in_parts: bool) -> None:
    x, w, residual = input_node(64, 32), input_node(32, 48), input_node(2, 32, 48)
    parts = [input_node(16), input_node(32)] if in_parts else [input_node(48)]
    bias = node("concat", *parts, shape=(48,), axis=0) if in_parts else parts[0]
    seen = node("reshape", product(x, w), shape=(2, 32, 48))
    inner = node("add", *((bias, seen) if turned else (seen, bias)), shape=(2, 32, 48))
    out = node("add", residual, inner, shape=(2, 32, 48))
    graph = fuse_sums(Graph(inputs=(x, w, *parts, residual), outputs=(out,)), lambda _: True)
    results = [n for n in graph if n.op == "affine"]
    assert [tuple(i.spec.shape for i in n.inputs) for n in results] == [((64, 32), (32, 48), (48,), (64, 48))]
    assert graph.outputs[0].spec.shape == (2, 32, 48)
    assert names(lowered(graph)) == ["tb_concat"] * in_parts + ["affine"]


def test_a_product_that_is_read_elsewhere_stays() -> None:
    x, w, bias = input_node(64, 32), input_node(32, 48), input_node(48)
    y = product(x, w)
    out = node("add", y, bias, shape=(64, 48))
    graph = fuse_sums(Graph(inputs=(x, w, bias), outputs=(out, y)), lambda _: True)
    assert not [n for n in graph if n.op == "affine"]


@pytest.mark.parametrize("end", ["relu", "gelu_tanh"])
@pytest.mark.parametrize("has_row", [False, True])
def test_a_product_goes_on_as_what_follows_it(has_row: bool, end: str) -> None:
    x, w, bias = input_node(2, 32, 16), input_node(16, 48), input_node(48)
    sums = node("matmul", x, w, shape=(2, 32, 48))
    before = node("add", bias, sums, shape=(2, 32, 48)) if has_row else sums
    out = node(end, before, shape=(2, 32, 48))
    graph = fuse_activations(Graph(inputs=(x, w, bias), outputs=(out,)), lambda _: True)
    (results,) = [n for n in graph if n.op == "affine"]
    assert results.attrs == {"ends": end}
    assert [i.spec.shape for i in results.inputs] == [(64, 16), (16, 48)] + [(48,)] * has_row
    assert graph.outputs[0].spec.shape == (2, 32, 48)
    later = node("add", graph.outputs[0], input_node(2, 32, 48), shape=(2, 32, 48))
    whole = Graph(inputs=(x, w, bias, later.inputs[1]), outputs=(later,))
    assert [len(n.inputs) for n in fuse_sums(whole, lambda _: True) if n.op == "affine"] == [2 + has_row]


def test_what_is_read_before_its_end_and_what_is_not_served_stay() -> None:
    x, w, bias = input_node(32, 16), input_node(16, 48), input_node(48)
    sums = product(x, w)
    before = node("add", sums, bias, shape=(32, 48))
    out = node("relu", before, shape=(32, 48))
    for outputs, serves in (((out, before), True), ((out, sums), True), ((out,), False)):
        graph = fuse_activations(Graph(inputs=(x, w, bias), outputs=outputs), lambda _, serves=serves: serves)
        assert not [n for n in graph if n.op == "affine"]


def test_what_the_device_does_not_serve_and_what_would_be_stored_first_stay() -> None:
    x, w, other = input_node(64, 32), input_node(32, 48), input_node(64, 48)
    bias = input_node(48)
    root = node("exp", other, shape=(64, 48))
    one = node("add", product(x, w), root, shape=(64, 48))
    two = node("add", product(x, w), bias, shape=(64, 48))
    graph = Graph(inputs=(x, w, other, bias), outputs=(one, two))
    assert [n.op for n in fuse_sums(graph, lambda _: False)].count("matmul") == 2
    assert [n.op for n in fuse_sums(graph, lambda _: True)].count("affine") == 1


def apart(x: Node, k: int) -> Node:
    shape = (1, 2, HEADS, LENGTH, WIDTH)
    part = node("slice", x, shape=shape, start=(k, 0, 0, 0, 0), size=shape, step=(1,) * 5)
    return node("reshape", part, shape=shape[1:])


def attended() -> tuple[Graph, tuple[Node, Node, Node]]:
    """Return attention of what one product made, its derivative, and the gradient of the product."""
    wide = 3 * HEADS * WIDTH
    x, w, g = input_node(2 * LENGTH, 32), input_node(32, wide), input_node(2, HEADS, LENGTH, WIDTH)
    rows = node("reshape", product(x, w), shape=(2, LENGTH, 3, HEADS, WIDTH))
    parts = node("permute_dims", rows, shape=(3, 2, HEADS, LENGTH, WIDTH), axes=(2, 0, 3, 1, 4))
    qkv = [apart(parts, k) for k in range(3)]
    out = node(ATTENTION, *qkv, shape=g.spec.shape, **ATTRS)
    result = node(GRADIENTS, g, out, *qkv, shape=g.spec.shape, **ATTRS)
    zeros = node("full", shape=parts.spec.shape, value=0.0, dtype=dt.bfloat16)
    total: Node | None = None
    for k in (2, 1, 0):
        each = node("reshape", node("result", result, shape=g.spec.shape, index=k), shape=(1, *g.spec.shape))
        each = node("slice_update", zeros, each, shape=parts.spec.shape, start=(k, 0, 0, 0, 0), step=(1,) * 5)
        total = each if total is None else node("add", total, each, shape=parts.spec.shape)
    assert total is not None
    turned = node("permute_dims", total, shape=(2, LENGTH, 3, HEADS, WIDTH), axes=(1, 3, 0, 2, 4))
    back = node("reshape", turned, shape=(2 * LENGTH, wide))
    into_x = product(back, node("permute_dims", w, shape=(wide, 32), axes=(1, 0)))
    return simplify(Graph(inputs=(x, w, g), outputs=(out, into_x))), (x, w, g)


def test_parts_of_a_product_and_of_its_gradient_are_views() -> None:
    """No kernel copies: attention reads rows of the product, and writes those of the gradient."""
    program = lowered(attended()[0])
    assert names(program) == ["matmul", ATTENTION, GRADIENTS, "matmul"]
    _, attention, gradients, last = program.steps
    assert isinstance(attention, LibraryCall)
    assert isinstance(gradients, LibraryCall)
    assert isinstance(last, LibraryCall)
    row = 3 * HEADS * WIDTH
    strides = {x.strides for x in attention.inputs if isinstance(x, Layout)}
    assert strides == {(LENGTH * row, WIDTH, row, 1)}
    assert {x.strides for x in gradients.layouts} == strides
    assert [x.offset for x in gradients.layouts] == [0, HEADS * WIDTH, 2 * HEADS * WIDTH]
    assert len({*gradients.outputs}) == 1
    assert last.inputs[0] == Layout(gradients.outputs[0], (2 * LENGTH, row), (row, 1))
    assert [x.strides for x in attention.layouts] == [(LENGTH * HEADS * WIDTH, WIDTH, HEADS * WIDTH, 1)]


def test_attention_leaves_its_sums_for_the_derivative() -> None:
    program = lowered(attended()[0])
    _, attention, gradients, _ = program.steps
    assert isinstance(attention, LibraryCall)
    assert isinstance(gradients, LibraryCall)
    assert attention.side_output == gradients.side_input is not None
    assert program.sizes[attention.side_output] == (LENGTH, dt.float32)
    assert attention.side_output in program.frees[2]


def test_calls_whose_results_are_in_c_order_are_copied_together() -> None:
    program = lowered(attended()[0], orders=lambda call, lies: None)
    assert len(names(program)) > 4
    assert not any(s.layouts for s in program.steps if isinstance(s, LibraryCall))


def test_rows_apart_are_filled_with_their_gaps() -> None:
    """A gradient that is the same everywhere is stored in vectors, though its rows are odd."""
    w, scale = input_node(2003, 64), input_node(1, 1)
    filled = node("broadcast_to", scale, shape=(4096, 2003))
    half = node("multiply", filled, node("constant", shape=(), value=0.5), shape=(4096, 2003))
    graph = Graph(inputs=(w, scale), outputs=(product(half, w),))
    library = Library(
        frozenset({"matmul"}), CUDA.types, row_stride=lambda n, g: 0 if n.op == "matmul" else 2008
    )
    program = lower(graph, [packed(0, (2003, 64)), packed(1, (1, 1))], CUDA.target, library=library)
    step, _ = program.steps
    assert step.launch.grid == (4096 * 2008 // 8,)
    assert "tb_move<16>(out" in render(step.launch.kernel, CUDA)


@pytest.mark.parametrize(
    ("start", "total", "vectors"), [(0, 4006, True), (2003, 4011, True), (2003, 4006, False)]
)
def test_a_part_of_longer_rows_goes_on_in_the_gaps(start: int, total: int, vectors: bool) -> None:
    """As the gradient of logits of some classes; where the longer rows end there, it is made one by one."""
    x, w, v = input_node(128, 64), input_node(64, 2003), input_node(2003, 64)
    row = Node(op="input", spec=Spec((128,), dt.int64))
    column = Node(
        op="iota", attrs={"length": total, "start": 0, "step": 1, "dtype": dt.int64},
        spec=Spec((total,), dt.int64),
    )  # fmt: skip
    each = Node(op="reshape", inputs=(row,), attrs={"shape": (128, 1)}, spec=Spec((128, 1), dt.int64))
    hot = Node(op="equal", inputs=(column, each), spec=Spec((128, total), dt.bool_))
    one, zero = (node("constant", shape=(), value=value) for value in (1.0, 0.0))
    whole = node("where", hot, one, zero, shape=(128, total))
    part = node("slice", whole, shape=(128, 2003), start=(0, start), size=(128, 2003), step=(1, 1))
    out = product(node("subtract", product(x, w), part, shape=(128, 2003)), v)
    graph = Graph(inputs=(x, w, v, row), outputs=(out,))
    library = Library(
        frozenset({"matmul"}), CUDA.types,
        row_stride=lambda n, g: 2008 if n.spec.shape[-1:] == (2003,) else 0,
    )  # fmt: skip
    where = [packed(k, n.spec.shape) for k, n in enumerate(graph.inputs)]
    _, step, _ = lower(graph, where, CUDA.target, library=library).steps
    assert step.choice.name == ("pointwise by vector accesses" if vectors else "pointwise")


def test_many_indices_are_ranked_and_each_row_has_one_writer() -> None:
    x, value = input_node(5000, 64), input_node(1000, 64)
    index = Node(op="input", spec=Spec((1000,), dt.int64))
    out = node("scatter", x, value, index, shape=(5000, 64), mode="add")
    program = lowered(Graph(inputs=(x, value, index), outputs=(out,)))
    assert names(program)[1:] == ["tb_scatter_rows", "tb_scatter_rank", "tb_scatter_add_ranked"]


def test_what_is_computed_and_cut_up_for_a_call_is_one_buffer() -> None:
    x, bias = input_node(LENGTH, 3 * HEADS * WIDTH), input_node(3 * HEADS * WIDTH)
    both = node("add", node("exp", x, shape=x.spec.shape), bias, shape=x.spec.shape)
    parts = node("reshape", both, shape=(1, LENGTH, 3, HEADS, WIDTH))
    turned = node("permute_dims", parts, shape=(3, 1, HEADS, LENGTH, WIDTH), axes=(2, 0, 3, 1, 4))
    operands = []
    for k in range(3):
        cut = node(
            "slice", turned, shape=(1, 1, HEADS, LENGTH, WIDTH), start=(k, 0, 0, 0, 0),
            size=(1, 1, HEADS, LENGTH, WIDTH), step=(1, 1, 1, 1, 1),
        )  # fmt: skip
        operands.append(node("reshape", cut, shape=(1, HEADS, LENGTH, WIDTH)))
    call = node(ATTENTION, *operands, shape=(1, HEADS, LENGTH, WIDTH), **ATTRS)
    program = lowered(Graph(inputs=(x, bias), outputs=(call,)))
    kernel, steps = program.steps
    assert isinstance(steps, LibraryCall)
    assert len({layout.slot for layout in steps.inputs if isinstance(layout, Layout)}) == 1
    assert not isinstance(kernel, LibraryCall)


def test_a_row_that_many_rows_need_is_computed_once() -> None:
    x, w = input_node(1, 256), input_node(4096, 256)
    row = x
    for _ in range(8):
        row = node("multiply", row, x, shape=x.spec.shape)
    wide = node("multiply", row, w, shape=w.spec.shape)
    total = node("sum", wide, shape=(4096,), axis=(1,), keepdims=False)
    assert len(lowered(Graph(inputs=(x, w), outputs=(total,))).steps) == 2
