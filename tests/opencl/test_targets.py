"""The schedules for many thin cores, which a graphics processor gets, on whatever device is there."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from fused import THIN, program_of, record, spec
from tensorbus.backend_interface.protocols import Call
from tensorbus.decompose.tracer import graph_of_op
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.codegen.render import render
from tensorbus.lowering.ir.layout import packed as packed_layout
from tensorbus.lowering.program.lower import lower
from tensorbus.lowering.program.program import steps_of
from tensorbus.nn.attention import create_block_mask, flex_attention
from tensorbus.nn.attention.score_capture import capture
from tensorbus.ops.definition import Spec

from error_bounds import assert_alike, assert_within, gamma, of_sum
from opencl_bench import Bench, numpy_dtype


def thin_bench(**more: Any) -> Bench:
    pytest.importorskip("pyopencl", reason="the opencl device needs PyOpenCL")
    from tensorbus.backend_api import Target, from_dialect
    from tensorbus_opencl import device

    class Thin(device.Unit):
        def _target(self) -> Target:
            return Target(
                tasks_to_fill=256, work_items_to_fill=4096, lanes=4, row_per_task=False, tile_rows=4, **more
            )

    bench = Bench()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "Unit", Thin)
        bench.runtime = device.OpenclRuntime()
    bench.kernels = from_dialect(bench.runtime.compiler)
    return bench


@pytest.fixture(scope="module")
def thin() -> Bench:
    return thin_bench()


@pytest.fixture(scope="module")
def packed() -> Bench:
    """A device whose items move sixteen bytes at once."""
    return thin_bench(vector_bytes=16)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((5000, 3), (0,)), ((3, 5000), (1,)), ((300000,), (0,)), ((40, 3, 50), (0, 2)), ((7, 9), (1,))],
)
def test_reductions(thin: Bench, shape: tuple[int, ...], axis: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=shape)
    result = thin.run("sum", x, axis=axis, keepdims=False)
    assert_within(result, x.sum(axis=axis), 2 * of_sum(x, axis, "float64"))
    np.testing.assert_array_equal(thin.run("max", x, axis=axis, keepdims=False), x.max(axis=axis))
    if len(axis) == 1:
        x = np.round(x * 4)
        np.testing.assert_array_equal(thin.run("argmax", x, axis=axis[0], keepdims=False), x.argmax(axis[0]))


@pytest.mark.parametrize("name", ["f4", "f2", "f8", "i1", "u8"])
@pytest.mark.parametrize(("shape", "axis"), [((100, 515), 1), ((100, 32), 1), ((90, 7), 1), ((600, 40), 0)])
def test_places_are_those_of_the_first(thin: Bench, shape: tuple[int, int], axis: int, name: str) -> None:
    """Among equals, of NaN, and where no element is better than what the search begins with."""
    x = np.random.default_rng(0).integers(0, 4, shape).astype(name)
    rows = x if axis else x.T
    if x.dtype.kind == "f":
        rows[3, 5:] = rows[4, -2:] = np.nan
        rows[5], rows[6] = -np.inf, np.inf
    else:
        rows[5], rows[6] = np.iinfo(name).min, np.iinfo(name).max
    np.testing.assert_array_equal(thin.run("argmax", x, axis=axis, keepdims=False), x.argmax(axis))
    np.testing.assert_array_equal(thin.run("argmin", x, axis=axis, keepdims=False), x.argmin(axis))


@pytest.mark.parametrize("name", ["f4", "f2", "i4"])
@pytest.mark.parametrize("sizes", [(5, 7, 9), (64, 64, 64), (33, 2000, 3), (1, 10, 30), (130, 17, 66)])
def test_matmul(thin: Bench, sizes: tuple[int, int, int], name: str) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-3, 4, (2, a, b)).astype(name) for a, b in ((m, k), (k, n)))
    np.testing.assert_array_equal(thin.run("matmul", x, y), (x.astype("i8") @ y.astype("i8")).astype(name))
    turned = thin.put(np.ascontiguousarray(y.transpose(0, 2, 1)))
    turned = thin.prepare("permute_dims", (turned,), axes=(0, 2, 1))(turned)
    np.testing.assert_array_equal(
        thin.run("matmul", x, turned), (x.astype("i8") @ y.astype("i8")).astype(name)
    )


def test_scan_and_scatter(thin: Bench) -> None:
    x = np.random.default_rng(0).normal(size=(50, 3000))
    for axis in (0, 1):
        bound = 2 * gamma(x.shape[axis], "float64") * abs(x).cumsum(axis)
        assert_within(thin.run("cumulative_sum", x, axis=axis), x.cumsum(axis), bound)
    i = np.random.default_rng(0).integers(0, 50, 400)
    wanted = np.zeros((50, 3000))
    np.add.at(wanted, i, x[i])
    bound = 2 * gamma(len(i), "float64") * abs(wanted).max()
    assert_within(thin.run("scatter", wanted * 0, x[i], i, mode="add"), wanted, bound)


@pytest.mark.parametrize("name", ["f4", "f2", "f8", "i1", "u2", "i4", "i8"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((49,), 0), ((64, 3), 0), ((5, 1000), 1), ((2, 4097, 2), 1), ((70_003,), 0)]
)
@pytest.mark.parametrize("descending", [False, True])
def test_rows_are_sorted_stably(
    thin: Bench, shape: tuple[int, ...], axis: int, name: str, descending: bool
) -> None:
    draw = np.random.default_rng(5)
    x = draw.integers(0 if name[0] == "u" else -90, 90, shape).astype(name)
    if x.dtype.kind == "f":
        x = x / x.dtype.type(8)
        x.reshape(-1)[draw.integers(0, x.size, 9)] = draw.choice([np.nan, np.inf, -np.inf, -0.0], 9)
    if descending:
        back = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
        wanted = x.shape[axis] - 1 - np.flip(back, axis)
    else:
        wanted = np.argsort(x, axis=axis, kind="stable")
    attrs = {"axis": axis, "descending": descending}
    np.testing.assert_array_equal(thin.run("argsort", x, **attrs), wanted)
    np.testing.assert_array_equal(thin.run("sort", x, **attrs), np.take_along_axis(x, wanted, axis))


@pytest.mark.full
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((49,), 0), ((64, 3), 0), ((5, 1000), 1), ((2, 4097, 2), 1), ((3, 4096), 1), ((70_003,), 0),
     ((2, 8192), 1), ((3, 20_001), 1), ((131_072,), 0)],
)  # fmt: skip
@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 1.0])
@pytest.mark.parametrize("device", ["thin", "packed"])
def test_booleans_are_parted_stably(
    request: pytest.FixtureRequest, device: str, shape: tuple[int, ...], axis: int, share: float
) -> None:
    bench = request.getfixturevalue(device)
    x = np.random.default_rng(7).random(shape) < share
    for descending in (False, True):
        attrs = {"axis": axis, "descending": descending}
        wanted = np.argsort(x ^ descending, axis=axis, kind="stable")
        np.testing.assert_array_equal(bench.run("argsort", x, **attrs), wanted)
        actual = bench.run("sort", x, **attrs)
        np.testing.assert_array_equal(actual, np.take_along_axis(x, wanted, axis))


@pytest.mark.parametrize("name", ["i2", "f8", "i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("many", ["spread", "one row", "few rows", "neighbours"])
@pytest.mark.parametrize("mode", ["add", "multiply", "min", "max", "set"])
@pytest.mark.parametrize(("limit", "width"), [(1, ()), (7, ()), (3000, ()), (50, (3,)), (400, (2, 5))])
def test_many_indices(
    thin: Bench, limit: int, width: tuple[int, ...], mode: str, many: str, name: str
) -> None:
    """More than a piece of a run is made of, and rows that nothing names; in one step and one by one."""
    draw, count = np.random.default_rng(2), 5003
    index = {
        "spread": draw.integers(0, limit, count),
        "one row": np.full(count, limit // 2),
        "few rows": draw.choice(draw.integers(0, limit, 3), count),
        "neighbours": np.sort(draw.integers(0, limit, count)),
    }[many]
    x = draw.integers(-3, 4, (limit, *width)).astype(name)
    value = draw.choice([-1, 1], (count, *width)) * draw.integers(
        1, 2 if mode == "multiply" else 9, (count, *width)
    )
    value = value.astype(name)
    wanted = x.copy()
    if mode == "set":
        wanted[index] = value  # of equal indices, NumPy takes the last
    else:
        ufuncs = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}
        ufuncs[mode].at(wanted, index, value)
    np.testing.assert_array_equal(thin.run("scatter", x, value, index, mode=mode), wanted)


@pytest.mark.full
def test_many_indices_of_two_axes_and_sums_of_floats(thin: Bench) -> None:
    draw = np.random.default_rng(1)
    i, j, value = draw.integers(0, 30, (40, 50)), draw.integers(0, 2, (40, 50)), draw.normal(size=(40, 50))
    wanted = np.zeros((30, 2))
    np.add.at(wanted, (i, j), value)
    actual = thin.run("scatter", np.zeros((30, 2)), value, i, j, mode="add")
    assert_within(actual, wanted, 2 * gamma(2000 // 60, "float64") * abs(value).sum() / 60)
    single = [thin.run("scatter", np.zeros(2, "f4"), value.astype("f4").ravel(), j.ravel(), mode="add")]
    single.append(thin.run("scatter", np.zeros(2, "f4"), value.astype("f4").ravel(), j.ravel(), mode="add"))
    np.testing.assert_array_equal(*single)
    terms = abs(value).sum() / 2
    assert_within(single[0], [value[j == 0].sum(), value[j == 1].sum()], gamma(1000, "float32") * terms)


@pytest.mark.parametrize("shape", [(262_147,), (1, 100_003), (3, 70_001), (5, 20_000)])
def test_few_long_rows(thin: Bench, shape: tuple[int, ...]) -> None:
    """Groups of items take pieces of them, and other groups join what these come to."""
    draw, axis = np.random.default_rng(9), len(shape) - 1
    many = draw.integers(-9, 9, shape).astype("i4")
    x = draw.normal(size=shape)
    for op, wanted in (("max", x.max(axis)), ("min", x.min(axis))):
        np.testing.assert_array_equal(thin.run(op, x, axis=(axis,), keepdims=False), wanted)
    actual = thin.run("sum", x, axis=(axis,), keepdims=False)
    assert_within(actual, x.sum(axis), 2 * of_sum(x, axis, "float64"))
    np.testing.assert_array_equal(thin.run("sum", many, axis=(axis,), keepdims=False), many.sum(axis))
    for op, actual in (("argmax", many.argmax(axis)), ("argmin", many.argmin(axis))):
        np.testing.assert_array_equal(thin.run(op, many, axis=axis, keepdims=False), actual)
        same = np.full(shape, -np.inf if op == "argmax" else np.inf)
        np.testing.assert_array_equal(thin.run(op, same, axis=axis, keepdims=False), actual * 0)
        same[..., -3:] = np.nan
        np.testing.assert_array_equal(
            thin.run(op, same, axis=axis, keepdims=False), actual * 0 + shape[-1] - 3
        )


@pytest.mark.parametrize("shape", [(262_147,), (1, 100_003), (3, 70_001), (5, 20_000)])
def test_scans_of_few_long_rows(thin: Bench, shape: tuple[int, ...]) -> None:
    draw, axis = np.random.default_rng(9), len(shape) - 1
    many = draw.integers(-9, 9, shape).astype("i8")
    x = draw.normal(size=shape)
    np.testing.assert_array_equal(thin.run("cumulative_sum", many, axis=axis), many.cumsum(axis))
    bound = 2 * gamma(shape[axis], "float64") * abs(x).cumsum(axis)
    assert_within(thin.run("cumulative_sum", x, axis=axis), x.cumsum(axis), bound)
    np.testing.assert_array_equal(thin.run("cumulative_max", x, axis=axis), np.maximum.accumulate(x, axis))
    result = thin.run("logcumsumexp", x, axis=axis)  # a logarithm is off by what its number is, relatively
    assert_within(result, np.logaddexp.accumulate(x, axis), 2 * gamma(4 * shape[axis], "float64"))
    signs = np.where(x < 0, -1, 1)
    np.testing.assert_array_equal(thin.run("cumulative_prod", signs, axis=axis), signs.cumprod(axis))


@pytest.mark.parametrize("name", "bool int8 uint16 int32 int64 float8_e4m3fn float16 bfloat16 float32 float64"
                         " complex64 complex128".split())  # fmt: skip
def test_maps_and_columns_in_vectors(packed: Bench, name: str) -> None:
    """Of every width: what is read, and what is written where that is of another. All sums are exact."""
    draw, dtype = np.random.default_rng(4), dt.dtype(name)
    kind = numpy_dtype(dtype)
    x, y = ((draw.integers(0, 3, (272, 512)) * (draw.random((272, 512)) > 0.99)).astype(kind) for _ in "xy")
    operands = [packed.put(a, dtype) for a in (x, y)]
    np.testing.assert_array_equal(packed.run("equal", *operands), x == y)
    if name != "bool":
        np.testing.assert_array_equal(packed.run("add", *operands), x + y)
        total = packed.run("sum", operands[0], axis=(0,), keepdims=False)
        np.testing.assert_array_equal(total.astype("c16"), x.astype("c16").sum(0))


def test_vectors_are_loaded_whole() -> None:
    from tensorbus_opencl.dialect import dialect

    target = replace(THIN, vector_bytes=16)
    _, program = program_of(record(lambda x: x + x, spec(512, 1024)), target)
    (step,) = [step for item in program.steps for step in steps_of(item)]
    source = render(step.launch.kernel, dialect(half=True, double=False, target=target))
    assert source.count("tb_read_16(") == 2, "the function, and its call"
    assert source.count("tb_write_16(") == 2
    assert "(__global const uint4 *)from" in source


def test_no_variable_is_a_half_where_the_device_has_none() -> None:
    """The standard allows pointers to halves only, without cl_khr_fp16."""
    from tensorbus_opencl.dialect import dialect

    target = replace(THIN, vector_bytes=16)
    halves = spec(512, 1024, dtype=dt.float16)
    for function in (lambda x: x + x, lambda x: x.sum(axis=0), lambda x: tb.sort(x, axis=1)):
        _, program = program_of(record(function, halves), target)
        for step in (step for item in program.steps for step in steps_of(item)):
            source = render(step.launch.kernel, dialect(half=False, double=False, target=target))
            assert not re.search(r"\bhalf\d*\s+\w+\s*[\[=;]", source), source


@pytest.mark.parametrize("block", [None, 32], ids=["no mask", "blocks"])
@pytest.mark.parametrize("shape", [(2, 4, 1, 500, 24), (1, 2, 3, 97, 5), (1, 2, 1, 20, 8)], ids=str)
def test_few_queries_of_many_keys(thin: Bench, shape: tuple[int, ...], block: int | None) -> None:
    """The keys are cut, and the parts are joined: of some nothing counts, and of one query nothing at all."""
    batch, heads, queries, keys, width = shape
    rng = np.random.default_rng(0)
    q = rng.normal(size=(batch, heads, queries, width)).astype("f4")
    k, v = (rng.normal(size=(batch, heads // 2, keys, n)).astype("f4") for n in (width, 7))

    def mask(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (j % 200 < 90) & (i != 2)

    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return s - 0.01 * j * (h + 1)

    cpu = tb.Device("cpu", 0)
    blocks = None
    operands = [q, k, v]
    if block is not None:
        blocks = create_block_mask(mask, None, None, queries, keys, device=cpu, BLOCK_SIZE=block)
        operands.append(blocks.blocks.numpy())
    specs = [Spec(x.shape, dt.dtype(str(x.dtype))) for x in operands]
    attrs: dict[str, Any] = {
        "program": capture(score, mask if block else None, dt.float32, cpu).program, "scale": 0.25,
        "enable_gqa": True, "block_size": (block, block) if block else None, "visits": None,
    }  # fmt: skip
    call = Call(
        op="flex_attention", dtypes=tuple(s.dtype for s in specs), shapes=tuple(s.shape for s in specs),
        attrs=attrs, out_dtype=dt.float32, out_shape=(batch, heads, queries, 7), index=0,
    )  # fmt: skip
    result = thin.kernels["flex_attention"].prepare(call)(*[thin.put(x) for x in operands])
    inputs = [tb.asarray(x, device=cpu) for x in (q, k, v)]
    right = flex_attention(*inputs, score, blocks, 0.25, enable_gqa=True, return_lse=True)
    for actual, exact in zip(result, right, strict=True):
        assert_alike(thin.get(actual), exact.numpy(), keys + 16)  # sums of a row of scores, and of each
    target = thin.runtime.unit(0).dialect.target
    layouts = [packed_layout(n, s.shape) for n, s in enumerate(specs)]
    chosen = lower(graph_of_op("flex_attention", specs, attrs), layouts, target).schedules()
    assert ("parts of the keys, then joined: queries are too few" in chosen) is (keys > 64)
