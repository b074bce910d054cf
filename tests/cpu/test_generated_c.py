"""The code generator, in plain C: a dialect written here, compiled by the system's compiler, beside NumPy.

It is also the shortest example of a dialect, and of what has to stand around one.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.backend_interface.protocols import Call
from tensorbus.backend_interface.strided_array import StridedArray
from tensorbus.dtypes import definition as dt
from tensorbus.errors import UnsupportedDtypeError
from tensorbus.kernels.from_dialect import from_dialect
from tensorbus.lowering.codegen.c_expressions import CASTS, EXPRESSIONS
from tensorbus.lowering.codegen.dialect import Dialect, Helper, TypeRule
from tensorbus.lowering.ir.builder import Launch, RuntimeArg
from tensorbus.lowering.ir.layout import packed
from tensorbus.lowering.program.lower import lower
from tensorbus.lowering.target import Target
from tensorbus.ops.definition import Spec

from error_bounds import assert_within, gamma, of_product, of_sum, unit

TYPES = {
    dt.bool_: TypeRule(storage="uint8_t", register="bool", unsigned="uint8_t"),
    dt.int32: TypeRule(storage="int32_t", register="int32_t", unsigned="uint32_t"),
    dt.int64: TypeRule(storage="int64_t", register="int64_t", unsigned="uint64_t", suffix="LL"),
    dt.uint8: TypeRule(storage="uint8_t", register="uint8_t", unsigned="uint8_t"),
    dt.uint32: TypeRule(storage="uint32_t", register="uint32_t", unsigned="uint32_t", suffix="u"),
    dt.uint64: TypeRule(storage="uint64_t", register="uint64_t", unsigned="uint64_t", suffix="ULL"),
    dt.float32: TypeRule(storage="float", register="float", unsigned="uint32_t", math="f", suffix="f"),
    dt.float64: TypeRule(storage="double", register="double", unsigned="uint64_t"),
    dt.complex64: TypeRule(storage="tb_c64", register="tb_c64"),
    dt.complex128: TypeRule(storage="tb_c128", register="tb_c128"),
}
PROLOGUE = """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
typedef struct { float x, y; } tb_c64;
typedef struct { double x, y; } tb_c128;
"""
VECTOR = "typedef {T} {T}_{lanes} __attribute__((vector_size({lanes} * sizeof({T}))));"
LOAD = Helper(
    "load",
    "tb_load_{T}_{lanes}({p} + ({i}))",
    "#ifndef V_{T}_{lanes}\n#define V_{T}_{lanes}\n"
    + VECTOR
    + """
#endif
static inline {T}_{lanes} tb_load_{T}_{lanes}(const {T} *p) {{
  {T}_{lanes} v;
  memcpy(&v, p, sizeof v);
  return v;
}}""",
)
STORE = Helper(
    "some",
    "tb_store_{T}_{lanes}({p} + ({i}), {v}, {n})",
    """\
static inline void tb_store_{T}_{lanes}({T} *p, {T}_{lanes} v, int64_t n) {{
  for (int64_t k = 0; k < {lanes} && k < n; ++k) p[k] = v[k];
}}""",
)
SATURATE = Helper(
    "to_integer",
    "tb_{S}_from_{F}({0})",
    """\
static inline {T} tb_{S}_from_{F}({R} x) {{
  if (isnan(x)) return 0;
  const double top = ldexp(1, {W} - (({T})-1 < 0)), low = ({T})-1 < 0 ? -top : 0;
  return x >= top ? ({T})(({T})-1 < 0 ? ((({U})1 << ({W} - 1)) - 1) : ({U})-1)
       : x < low ? ({T})(({T})-1 < 0 ? ({U})1 << ({W} - 1) : 0) : ({T})x;
}}""",
)
REPORT = "if ({value} < 0 || {value} >= {limit}) {{ {p}[0] = {code}; {p}[1] = {value}; {p}[2] = {limit}; }}"
DIALECT = Dialect(
    name="C",
    types=TYPES,
    index=TypeRule(storage="int64_t", register="int64_t", unsigned="uint64_t"),
    expressions={**EXPRESSIONS, "fma": {**EXPRESSIONS["fma"], "float": "({0} * {1} + {2})"}},
    casts={**CASTS, ("float", "int"): SATURATE, ("float", "uint"): SATURATE},
    kernel="void {name}({arguments})",
    task="void {name}({arguments})",
    buffer="{const}{T} *{name}",
    vector_type="{T}_{lanes}",
    vector_load=LOAD,
    vector_store="memcpy({p} + ({i}), &(({V}[1]){{{v}}})[0], sizeof({V}))",
    vector_store_some=STORE,
    splat="({0} + ({V}){{}})",
    report=REPORT,
    prologue=PROLOGUE,
    target=Target(tasks_to_fill=4, work_items_to_fill=64, lanes=8),
)
C_TYPES: dict[dt.DType, Any] = {
    dt.float32: ctypes.c_float,
    dt.float64: ctypes.c_double,
    dt.uint8: ctypes.c_uint8,
}


class ToyCompiler:
    """Buffers are NumPy arrays of bytes; a launch calls the function."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.built: dict[str, Any] = {}
        self.reports = np.zeros(3, np.int64)

    def dialect(self, index: int) -> Dialect:
        return DIALECT

    def describe(self, index: int) -> str:
        return "toy:0"

    def allocate(self, nbytes: int, index: int) -> Any:
        return np.zeros(nbytes, np.uint8)

    def errors(self, index: int) -> Any:
        return self.reports

    def error_code(self, op: str) -> int:
        return 7

    def prepare(
        self, source: str, launch: Launch, index: int
    ) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        function = self.built.get(source)
        if function is None:
            path = self.folder / f"k{len(self.built)}.c"
            path.write_text(source)
            library = path.with_suffix(".so")
            compiler = shutil.which("cc") or "gcc"
            flags = ["-O1", "-w", "-shared", "-fPIC", "-ffp-contract=off"]
            subprocess.run([compiler, *flags, str(path), "-o", str(library), "-lm"], check=True)
            function = self.built[source] = getattr(ctypes.CDLL(str(library)), launch.kernel.name)

        def run(buffers: Sequence[Any], late: Sequence[Any]) -> None:
            rest = iter(late)
            operands: list[Any] = [None if b is None else b.ctypes.data_as(ctypes.c_void_p) for b in buffers]
            for param, value in zip(launch.kernel.params, launch.values, strict=True):
                kind = C_TYPES.get(param.dtype, ctypes.c_int64)
                operands.append(kind(next(rest) if isinstance(value, RuntimeArg) else value))
            function(*operands)

        return run


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> ToyCompiler:
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("needs a C compiler")
    return ToyCompiler(tmp_path_factory.mktemp("toy"))


def put(array: Any) -> StridedArray:
    data = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8).copy()
    return StridedArray.contiguous(data, array.shape, dt.dtype(str(array.dtype)))


def get(value: StridedArray) -> Any:
    kind = np.dtype(value.dtype.name)
    if value.size == 0:
        return np.zeros(value.shape, kind)
    flat = value.buffer.view(kind)[value.offset :]
    return np.lib.stride_tricks.as_strided(
        flat, value.shape, [s * kind.itemsize for s in value.strides]
    ).copy()


def run(toy: ToyCompiler, op: str, *arrays: Any, shape: tuple[int, ...] | None = None, **attrs: Any) -> Any:
    values = [put(a) for a in arrays]
    dtypes = tuple(v.dtype for v in values)
    out = attrs.get("dtype") or (dt.int64 if op.startswith("arg") else dtypes[0])
    attrs = {name: value for name, value in attrs.items() if op == "cast" or name != "dtype"}
    shapes = None if shape is None else tuple(v.shape for v in values)
    call = Call(op=op, dtypes=dtypes, shapes=shapes, attrs=attrs, out_dtype=out, out_shape=shape, index=0)
    kernel: Any = from_dialect(toy)[op]
    return get(kernel.prepare(call)(*values))


RNG = np.random.default_rng(0)


def test_elementwise(toy: ToyCompiler) -> None:
    x, y = RNG.normal(size=(4, 5)).astype("f4"), RNG.normal(size=5).astype("f4")
    np.testing.assert_array_equal(run(toy, "multiply", x, y), x * y)
    assert_within(run(toy, "tanh", x), np.tanh(x.astype("f8")), gamma(2, "float32") * abs(np.tanh(x)))
    i = np.array([7, -7, 0, -(2**31)], "i4")
    np.testing.assert_array_equal(
        run(toy, "floor_divide", i, np.array([2, 2, 0, -1], "i4")), [3, -4, 0, -(2**31)]
    )
    wild = np.array([np.nan, np.inf, -np.inf, 1e20, -5.5, 300.0])
    np.testing.assert_array_equal(run(toy, "cast", wild, dtype=dt.uint8), [0, 255, 0, 255, 0, 255])
    top = 2**31 - 1
    np.testing.assert_array_equal(run(toy, "cast", wild, dtype=dt.int32), [0, top, -top - 1, top, -5, 300])


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((6,), (0,)), ((3, 40), (1,)), ((40, 3), (0,)), ((9, 7, 50), (0, 2)), ((70000,), (0,)), ((0, 3), (0,))],
)
def test_reductions(toy: ToyCompiler, shape: tuple[int, ...], axis: tuple[int, ...]) -> None:
    x = RNG.normal(size=shape)
    out = tuple(n for k, n in enumerate(shape) if k not in axis)
    got = run(toy, "sum", x, shape=out, axis=axis, keepdims=False)
    assert_within(got, x.sum(axis=axis), 2 * of_sum(x, axis, "float64"))
    if len(axis) == 1 and x.size:
        got = run(toy, "argmax", x, shape=out, axis=axis, keepdims=False)
        np.testing.assert_array_equal(got, x.argmax(axis[0]))


@pytest.mark.parametrize(
    ("a", "b"), [((3, 4), (4, 5)), ((17, 9), (9, 40)), ((2, 3, 4), (4, 6)), ((2, 3000), (3000, 2))]
)
def test_matmul(toy: ToyCompiler, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = RNG.normal(size=a), RNG.normal(size=b)
    assert_within(run(toy, "matmul", x, y, shape=(x @ y).shape), x @ y, 2 * of_product(x, y, "float64"))
    i, j = RNG.integers(-9, 9, a), RNG.integers(-9, 9, b)
    np.testing.assert_array_equal(run(toy, "matmul", i, j, shape=(i @ j).shape), i @ j)


def test_scan_gather_and_scatter(toy: ToyCompiler) -> None:
    x = RNG.normal(size=(5, 3000))
    bound = 2 * gamma(3000, "float64") * abs(x).cumsum(1)
    assert_within(run(toy, "cumulative_sum", x, shape=x.shape, axis=1), x.cumsum(1), bound)
    i = np.array([4, 0, 0])
    np.testing.assert_array_equal(run(toy, "gather", x, i, shape=(3, 3000)), x[i])
    wanted = x.copy()
    np.add.at(wanted, i, x[:3])
    np.testing.assert_array_equal(run(toy, "scatter", x, x[:3], i, shape=x.shape, mode="add"), wanted)
    run(toy, "gather", x, np.array([1, 5]), shape=(2, 3000))
    assert toy.reports.tolist() == [7, 5, 5]


COMPLEX = {
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "negative": np.negative,
    "conj": np.conj, "square": np.square,
}  # fmt: skip


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_complex_numbers_need_no_complex_type(toy: ToyCompiler, name: str) -> None:
    x, y = ((RNG.normal(size=(20, 3)) + 1j * RNG.normal(size=(20, 3))).astype(name) for _ in range(2))

    def check(got: Any, wanted: Any) -> None:
        assert_within(got, wanted, 2 * gamma(8, name) * (1 + abs(wanted)))  # their operands are about 1

    for op, reference in COMPLEX.items():
        check(run(toy, op, x), reference(x.astype("c16")))
    for op, reference in (("multiply", np.multiply), ("divide", np.divide), ("power", np.power)):
        check(run(toy, op, x, y), reference(x.astype("c16"), y))
    got = run(toy, "sum", x, shape=(3,), axis=(0,), keepdims=False)
    assert_within(got, x.astype("c16").sum(0), 2 * of_sum(x, 0, name))
    got = run(toy, "matmul", x, y.T, shape=(20, 20))
    assert_within(got, x.astype("c16") @ y.T, 2 * of_product(x, y.T, name))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("shape", [(7,), (300,), (3, 400), (20000,), (60, 5)])
def test_sorting_is_stable_and_puts_nan_last(
    toy: ToyCompiler, shape: tuple[int, ...], descending: bool
) -> None:
    x = RNG.integers(-5, 5, shape).astype("f8")
    x.reshape(-1)[::7] = np.nan
    x.reshape(-1)[1::5] = -0.0
    flipped = np.flip(x, 0) if descending else x
    order = np.argsort(flipped, axis=0, kind="stable")
    wanted = shape[0] - 1 - np.flip(order, 0) if descending else order
    call = {"shape": shape, "axis": 0, "descending": descending}
    np.testing.assert_array_equal(run(toy, "argsort", x, **call, dtype=dt.int64), wanted)
    ordered = np.take_along_axis(x, wanted, 0)
    got = run(toy, "sort", x, **call)
    np.testing.assert_array_equal(got, ordered)
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(ordered[ordered == 0]))


@pytest.mark.parametrize(("rows", "count"), [(50, 40), (50, 5000), (4000, 5000)])
@pytest.mark.parametrize("mode", ["set", "add", "multiply", "min", "max"])
def test_scatter_goes_through_the_indices_in_order(
    toy: ToyCompiler, rows: int, count: int, mode: str
) -> None:
    x, value = RNG.normal(size=(rows, 3)), RNG.normal(size=(count, 3))
    i = RNG.integers(0, rows, count)
    wanted = x.copy()
    if mode == "set":
        wanted[i] = value
    else:
        names = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}
        names[mode].at(wanted, i, value)
    np.testing.assert_array_equal(run(toy, "scatter", x, value, i, shape=x.shape, mode=mode), wanted)


def test_scans(toy: ToyCompiler) -> None:
    x = RNG.normal(size=(3, 5000))
    for op, reference in (
        ("cumulative_prod", np.multiply), ("cumulative_max", np.maximum), ("cumulative_min", np.minimum),
        ("logcumsumexp", np.logaddexp),
    ):  # fmt: skip
        wanted = reference.accumulate(x, axis=1)
        places = np.arange(1, 5001)
        roundings = 0 * places if op in ("cumulative_max", "cumulative_min") else places
        bound = (
            2
            * np.expm1(8 * np.sqrt(4 * roundings) * unit("float64"))
            * (abs(wanted) + (op == "logcumsumexp"))
        )
        assert_within(run(toy, op, x, shape=x.shape, axis=1), wanted, bound)


def test_one_program_serves_every_size(toy: ToyCompiler) -> None:
    for op, shapes in (("exp", [(7,), (3, 4), (2, 3, 4)]), ("sum", [(2, 5), (9, 3), (4, 31)])):
        built = -1
        for shape in shapes:
            x = RNG.normal(size=shape)
            if op == "sum":
                run(toy, op, x, shape=shape[:1], axis=(1,), keepdims=False)
            else:
                run(toy, op, x)
            assert built in (-1, len(toy.built)), f"{op} was compiled again for shape {shape}"
            built = len(toy.built)


def test_equal_lengths_by_chance_are_no_structure(toy: ToyCompiler) -> None:
    def concat(*rows: int) -> None:
        arrays = [RNG.normal(size=(n, 4)) for n in rows]
        got = run(toy, "concat", *arrays, shape=(sum(rows), 4), axis=0)
        np.testing.assert_array_equal(got, np.concatenate(arrays))

    concat(2, 3, 5)
    built = len(toy.built)
    concat(4, 4, 4)
    concat(8, 2, 4)
    assert len(toy.built) == built


def test_a_chain_is_one_kernel() -> None:
    x = Node(op="input", attrs={"index": 0}, spec=Spec((8, 4), dt.float32))
    row = Node(op="input", attrs={"index": 1}, spec=Spec((4,), dt.float32))
    scaled = Node(op="multiply", inputs=(x, row), spec=x.spec)
    padded = Node(
        op="pad",
        inputs=(scaled,),
        attrs={"low": (1, 0), "high": (0, 0), "value": 0},
        spec=Spec((9, 4), dt.float32),
    )
    total = Node(
        op="sum", inputs=(padded,), attrs={"axis": (1,), "keepdims": False}, spec=Spec((9,), dt.float32)
    )
    program = lower(Graph(inputs=(x, row), outputs=(total,)), [packed(0, (8, 4)), packed(1, (4,))], Target())
    assert len(program.steps) == 1
    assert "x0[" in str(program)
    assert "x1[" in str(program)


def test_a_dtype_that_the_dialect_lacks_is_refused(toy: ToyCompiler) -> None:
    call = Call(
        op="add",
        dtypes=(dt.float16,) * 2,
        shapes=None,
        attrs={},
        out_dtype=dt.float16,
        out_shape=None,
        index=0,
    )
    kernel: Any = from_dialect(toy)["add"]
    with pytest.raises(UnsupportedDtypeError, match="add: toy:0 has no float16"):
        kernel.prepare(call)
