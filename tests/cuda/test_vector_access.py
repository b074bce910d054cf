"""Schedules whose work-items load vectors and shuffle registers: what they write."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.codegen.render import render
from tensorbus.lowering.ir.kernel_task import LibraryCall
from tensorbus.lowering.ir.layout import Layout, packed
from tensorbus.lowering.ir.verify import verify
from tensorbus.lowering.library import Library
from tensorbus.lowering.program.lower import lower
from tensorbus.lowering.program.program import Program
from tensorbus.lowering.target import Target
from tensorbus.ops.definition import Spec
from tensorbus_cuda.dialect import OPTIONS, dialect

CUDA = dialect(132)
WITHOUT_COUNTERS = replace(CUDA.target, workgroup_counters=0)
"""As if groups could not count each other."""
NVCC = shutil.which("nvcc")


def node(op: str, *inputs: Node, shape: tuple[int, ...], dtype: Any = dt.bfloat16, **attrs: Any) -> Node:
    return Node(op=op, inputs=inputs, attrs=attrs, spec=Spec(shape, dtype))


def input_node(shape: tuple[int, ...], dtype: Any = dt.bfloat16) -> Node:
    return Node(op="input", spec=Spec(shape, dtype))


def lowered(
    out: Node, *inputs: Node, layouts: Mapping[int, Layout] | None = None, library: Library | None = None,
    target: Target = CUDA.target,
) -> Program:  # fmt: skip
    where = [(layouts or {}).get(k, packed(k, x.spec.shape)) for k, x in enumerate(inputs)]
    own = library or Library(frozenset(), CUDA.types)
    program = lower(Graph(inputs=inputs, outputs=(out,)), where, target, library=own)
    for kernel in program.kernels():
        verify(kernel)
    return program


def sources(program: Program) -> list[str]:
    return [render(k, CUDA).removeprefix(CUDA.prologue) for k in program.kernels()]


def biased(rows: int, length: int) -> tuple[Node, Node, Node]:
    x, bias = input_node((rows, length)), input_node((length,))
    return node("tanh", node("add", x, bias, shape=(rows, length)), shape=(rows, length)), x, bias


def reduced(
    op: str, shape: tuple[int, ...], axis: tuple[int, ...], dtype: Any = dt.float32, of: Any = None,
    target: Target = CUDA.target,
) -> Program:  # fmt: skip
    x = input_node(shape, of or dtype)
    left = tuple(n for k, n in enumerate(shape) if k not in axis)
    return lowered(node(op, x, shape=left, dtype=dtype, axis=axis, keepdims=False), x, target=target)


def test_maps_move_sixteen_bytes_at_once() -> None:
    x = input_node((512, 768))
    (text,) = sources(lowered(node("add", x, x, shape=(512, 768)), x))
    assert text.count("tb_move<16>") == 2


def test_functions_of_narrow_floats_are_made_of_two_vectors() -> None:
    (text,) = sources(lowered(*biased(512, 768)))
    assert text.count("tb_move<32>") == 3
    assert not re.search(r"x0\[|x1\[|out\[", text)


def test_rows_that_do_not_divide_are_made_one_by_one() -> None:
    (text,) = sources(lowered(*biased(512, 769)))
    assert "tb_move" not in text


def test_an_operand_from_somewhere_inside_a_block_is_read_one_by_one() -> None:
    """Nobody knows where it begins until the launch."""
    out, x, bias = biased(512, 768)
    (text,) = sources(lowered(out, x, bias, layouts={0: Layout(0, (512, 768), (768, 1), 0, 0)}))
    assert text.count("tb_move<32>") == 2
    assert "x0[" in text


def test_heads_are_concatenated_in_vectors() -> None:
    """Positions are taken apart once for all of a vector."""
    x = input_node((12, 512, 64))
    turned = node("permute_dims", x, shape=(512, 12, 64), axes=(1, 0, 2))
    spec = Spec((512, 768), dt.bfloat16)
    joined = Node(op="reshape", inputs=(turned,), attrs={"shape": spec.shape}, spec=spec)
    (text,) = sources(lowered(node("add", joined, joined, shape=spec.shape), x))
    before, loop = text.split("#pragma unroll")
    assert text.count("tb_move<16>") == 2
    assert "tb_modulo" in before
    assert "tb_modulo" not in loop


@pytest.mark.parametrize(("length", "barriers"), [(512, 0), (4096, 2)])
def test_rows_are_joined_in_registers(length: int, barriers: int) -> None:
    (text,) = sources(reduced("sum", (2048, length), (1,)))
    assert "tb_shuffle_xor" in text
    assert text.count("__syncthreads") == barriers


@pytest.mark.parametrize("length", [512, 4096])
def test_places_are_found_as_sums_are(length: int) -> None:
    """In 32 bits; what an item asks of its neighbours stands before any condition, behind which some wait."""
    (text,) = sources(reduced("argmax", (2048, length), (1,), dt.int64, of=dt.float32))
    assert "tb_move<16>" in text
    swaps = [line for line in text.splitlines() if "tb_shuffle_xor" in line]
    assert len(swaps) == 2 * 5
    assert all(
        re.fullmatch(r" *const (float|int) other_\d+ = tb_shuffle_xor\(\w+, \d+\);", line) for line in swaps
    )


def test_places_in_columns_are_found_in_vectors_of_them() -> None:
    first, rest = sources(
        reduced("argmin", (8192, 768), (0,), dt.int64, of=dt.float32, target=WITHOUT_COUNTERS)
    )
    assert "tb_move<16>" in first
    assert "__syncthreads" in first
    assert "__syncthreads" in rest


def test_a_place_and_what_is_there_are_found_in_one_walk() -> None:
    x, y = input_node((2048, 1024), dt.float32), input_node((2048, 1024), dt.float32)
    z = node("multiply", x, y, shape=(2048, 1024), dtype=dt.float32)
    attrs = {"axis": (1,), "keepdims": False}
    results = (
        node("argmax", z, shape=(2048,), dtype=dt.int64, **attrs),
        node("max", z, shape=(2048,), dtype=dt.float32, **attrs),
    )
    where = [packed(k, (2048, 1024)) for k in range(2)]
    library = Library(frozenset(), CUDA.types)
    program = lower(Graph(inputs=(x, y), outputs=results), where, CUDA.target, library=library)
    assert len(program.steps) == 1


def test_columns_are_summed_in_vectors_of_them() -> None:
    first, rest = sources(reduced("sum", (8192, 768), (0,), target=WITHOUT_COUNTERS))
    assert "tb_move<16>" in first
    assert "__syncthreads" in first
    assert "__syncthreads" in rest


@pytest.mark.parametrize(
    ("op", "shape", "axis"),
    [
        ("sum", (8192, 768), (0,)), ("argmin", (8192, 768), (0,)), ("sum", (8, 4096, 96), (1,)),
        ("sum", (8192, 5004), (0, 1)), ("argmax", (70_000,), (0,)), ("max", (64, 50_256), (1,)),
    ],
)  # fmt: skip
def test_the_last_group_joins_what_others_have_found(
    op: str, shape: tuple[int, ...], axis: tuple[int, ...]
) -> None:
    dtype = dt.int64 if op.startswith("arg") else dt.float32
    (text,) = sources(reduced(op, shape, axis, dtype, of=dt.float32))
    assert "tb_move<16>" in text
    assert text.count("tb_arrive(") == 2  # what it is, and its call
    assert "float *part0" in text  # without a promise that nobody else writes there
    first = sources(reduced(op, shape, axis, dtype, of=dt.float32, target=WITHOUT_COUNTERS))[0]
    assert "tb_arrive(" not in first


def test_everything_is_reduced_by_rows_first() -> None:
    program = reduced("sum", (8192, 5003), (0, 1), target=WITHOUT_COUNTERS)
    grids = [step.launch.grid for step in program.steps]
    assert grids == [(256, 8192), (512,)]


@pytest.mark.parametrize("shape", [(1 << 20,), (70000,), (1, 70000)])
def test_a_place_in_everything_is_found_in_rows_first(shape: tuple[int, ...]) -> None:
    program = reduced("argmax", shape, (len(shape) - 1,), dt.int64, of=dt.float32, target=WITHOUT_COUNTERS)
    first, rest = [step.launch for step in program.steps]
    assert first.group == rest.group == 256 or first.group == 32
    assert first.grid[1] * 32 >= first.grid[0]


def test_channels_are_summed_by_rows_first() -> None:
    """An item to a channel would be few of them, with long leaps between what neighbours read."""
    first = reduced("sum", (32, 64, 56, 56), (0, 2, 3)).steps[0].launch
    assert first.group == 256
    assert first.grid == (256, 32 * 64)


def test_narrow_sums_by_stages_are_rounded_once() -> None:
    """Rows may come to more than the dtype holds where all of them do not."""
    first, rest = sources(reduced("sum", (1024, 256), (0, 1), dt.float16, target=WITHOUT_COUNTERS))
    assert "float *__restrict__ out" in first
    assert "unsigned short *__restrict__ out" in rest
    (whole,) = sources(reduced("sum", (1024, 256), (0, 1), dt.float16))
    assert "float *part0" in whole
    assert "unsigned short *__restrict__ out" in whole


def test_pieces_of_long_rows_are_read_side_by_side() -> None:
    launch = reduced("sum", (100, 1 << 20), (1,)).steps[0].launch
    items, pieces = launch.grid
    assert items == launch.group == 256
    assert pieces > 100
    assert pieces % 100 == 0


def test_rows_of_odd_products_lie_apart() -> None:
    """The call makes them so, and others read them there."""
    x, w = input_node((4096, 64)), input_node((64, 2003))
    y = node("matmul", x, w, shape=(4096, 2003))
    out = node("add", y, y, shape=(4096, 2003))
    library = Library(frozenset({"matmul"}), CUDA.types, row_stride=lambda node, x: 2008)
    program = lowered(out, x, w, library=library)
    call, step = program.steps
    assert isinstance(call, LibraryCall)
    assert call.row_stride == 2008
    assert program.sizes[call.outputs[0]][0] == 4096 * 2008
    assert 2008 in step.launch.values


@pytest.mark.skipif(NVCC is None, reason="there is no nvcc to compile CUDA C++ with")
def test_they_compile(tmp_path: Path) -> None:
    texts = sources(lowered(*biased(512, 768)))
    for dtype in (dt.bool_, dt.int64, dt.float16, dt.float64, dt.complex64):
        for op in ("any", "all") if dtype is dt.bool_ else ("sum",):
            texts += sources(reduced(op, (2048, 1024), (1,), dtype))
            texts += sources(reduced(op, (2048, 1024), (0,), dtype))
    for of in (dt.uint8, dt.int64, dt.float16, dt.float64):
        for axis in (0, 1):
            texts += sources(reduced("argmax", (2048, 1024), (axis,), dt.int64, of=of))
        texts += sources(reduced("argmin", (1 << 20,), (0,), dt.int64, of=of))
    for length in (2048, 70_001):
        x = input_node((4, length), dt.bool_)
        for op, kind in (("sort", dt.bool_), ("argsort", dt.int64)):
            attrs = {"axis": 1, "descending": False, "stable": True}
            texts += sources(lowered(node(op, x, shape=(4, length), dtype=kind, **attrs), x))
    parts = []
    for number, text in enumerate(texts):
        head, kernel, body = re.split(r'extern "C" (__global__ void __launch_bounds__\(.*?\)\)) ', text)
        parts.append(f"namespace n{number} {{\n{head}\n{kernel} k_{body}}}\n")
    source = tmp_path / "kernels.cu"
    source.write_text(CUDA.prologue + "".join(parts))
    command = [str(NVCC), *OPTIONS, "--cubin", "-arch=sm_90", "-o", str(tmp_path / "made"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("length", "launches"), [(60, 1), (2048, 1), (4096, 1), (4104, 3), (1 << 20, 3)])
def test_booleans_are_parted_by_one_kernel_where_a_group_has_the_row(length: int, launches: int) -> None:
    """By a workgroup that reads vectors, counts them by registers, and has memory of two bytes an element."""
    x = input_node((64, length), dt.bool_)
    order = node("argsort", x, shape=(64, length), dtype=dt.int64, axis=1, descending=True, stable=True)
    texts = sources(lowered(order, x))
    assert len(texts) == launches
    assert "tb_move<" in texts[-1]
    assert re.search(r"__shared__ unsigned short ordered_\d+\[(\d+)\]", texts[-1])


def test_windows_are_written_out_and_not_taken_apart() -> None:
    """The places of a window are constants, and the images and channels before it one axis."""
    x = input_node((32, 64, 56, 56), dt.float32)
    attrs = {"size": (2, 2), "stride": (2, 2), "dilation": (1, 1)}
    cut = node("windows", x, shape=(32, 64, 28, 28, 2, 2), dtype=dt.float32, **attrs)
    shape = (32, 64, 28, 28, 4)
    flat = Node(op="reshape", inputs=(cut,), attrs={"shape": shape}, spec=Spec(shape, dt.float32))
    out = node("max", flat, shape=shape[:-1], dtype=dt.float32, axis=(4,), keepdims=False)
    (text,) = sources(lowered(out, x))
    assert text.count("#pragma unroll") == 2
    assert "tb_quotient" not in text


@pytest.mark.parametrize(("length", "count"), [(4096, 4096), (100, 7), (5000, 300)])
@pytest.mark.parametrize("mode", ["set", "add"])
def test_scatters_along_rows_put_no_indices_in_order(mode: str, length: int, count: int) -> None:
    x, v = input_node((32, length), dt.float32), input_node((32, count), dt.float32)
    i = input_node((32, count), dt.int64)
    rows = node("iota", shape=(32,), dtype=dt.int64, length=32, start=0, step=1)
    rows = node("reshape", rows, shape=(32, 1), dtype=dt.int64)
    rows = node("broadcast_to", rows, shape=(32, count), dtype=dt.int64)
    out = node("scatter", x, v, rows, i, shape=(32, length), dtype=dt.float32, mode=mode)
    steps = lowered(out, x, v, i).steps
    names = [step.launch.kernel.name for step in steps]
    copied = ["tb_input"] if mode == "add" and length == 5000 else []  # rows that find no room
    assert names == [*copied, f"tb_scatter_{mode}_along"]


def test_scatters_by_other_rows_are_put_in_order() -> None:
    x, v = input_node((32, 64), dt.float32), input_node((32, 64), dt.float32)
    i, j = input_node((32, 64), dt.int64), input_node((32, 64), dt.int64)
    out = node("scatter", x, v, j, i, shape=(32, 64), dtype=dt.float32, mode="add")
    assert not any("along" in s.launch.kernel.name for s in lowered(out, x, v, i, j).steps)
