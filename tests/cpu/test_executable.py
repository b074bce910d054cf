"""Compiled programs on cpu: one call of C for each run, whatever stands in the program."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import plugins
from tensorbus.backend_interface.compilation import CompileRequest
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.dtypes import definition as dt
from tensorbus.dtypes.definition import DType
from tensorbus.errors import IndexingError
from tensorbus.ops.definition import Spec, table

from error_bounds import assert_within, gamma, of_product, of_sum

RNG = np.random.default_rng(5)


def input_node(k: int, *shape: int, dtype: DType = dt.float32, scalar: bool = False) -> Node:
    attrs = {"index": k, "scalar": True} if scalar else {"index": k}
    return Node(op="input", attrs=attrs, spec=Spec(shape, dtype))


def apply(name: str, *inputs: Node, **attrs: Any) -> Node:
    spec = table[name].specs(tuple(x.spec for x in inputs), attrs)[0]
    return Node(op=name, inputs=inputs, attrs=attrs, spec=spec)


def number(value: float, dtype: DType = dt.float32) -> Node:
    return Node(op="constant", attrs={"value": value}, spec=Spec((), dtype))


def compiled(inputs: tuple[Node, ...], *outputs: Node, replaces: Mapping[int, int] | None = None) -> Any:
    lowering = plugins.backend("cpu").lowering()
    assert lowering is not None
    order = CompileRequest(graph=Graph(inputs=inputs, outputs=outputs), index=0, replaces=replaces or {})
    return lowering.compile(order)


def floats(*shape: int) -> Any:
    return RNG.normal(size=shape).astype("f4")


def holds(actual: Any, a: Any, b: Any) -> None:
    """Hold a product of matrices against that in float64, which has an error of its own."""
    assert_within(actual, a.astype("f8") @ b.astype("f8"), 2 * of_product(a, b, actual.dtype))


def step() -> Any:
    """Return ``w - 0.5 * g``, which takes the place of ``w``."""
    w, g = input_node(0, 1000), input_node(1, 1000)
    new = apply("subtract", w, apply("multiply", g, number(0.5)))
    return compiled((w, g), new, replaces={0: 0})


def test_results_are_those_of_numpy() -> None:
    x, y = input_node(0, 7, 5), input_node(1, 5)
    run = compiled(
        (x, y), apply("multiply", apply("add", x, y), y), apply("sum", x, axis=(1,), keepdims=False)
    )
    a, b = floats(7, 5), floats(5)
    product, total = run([a, b])
    np.testing.assert_array_equal(product, (a + b) * b)
    assert_within(total, a.astype("f8").sum(1), of_sum(a, 1, "float32"))


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T.copy().T, lambda x: np.repeat(x, 2, axis=1)[:, ::2], lambda x: x[::-1].copy()[::-1],
        lambda x: np.frombuffer(b"." + x.tobytes(), np.uint8)[1:].view("f4").reshape(x.shape),
    ],
    ids=["transposed", "strided", "backwards", "unaligned"],
)  # fmt: skip
def test_inputs_come_in_any_layout(view: Any) -> None:
    x = input_node(0, 6, 4)
    run = compiled(
        (x,), apply("add", x, number(1.0)), apply("matmul", x, apply("permute_dims", x, axes=(1, 0)))
    )
    a = floats(6, 4)
    for _ in range(2):
        more, square = run([view(a)])
        np.testing.assert_array_equal(more, a + 1)
        holds(square, a, a.T)
        np.testing.assert_array_equal(run([a])[0], a + 1)


def test_more_layouts_than_are_kept() -> None:
    x = input_node(0, 2, 3)
    run = compiled((x,), apply("add", x, number(1.0)))
    for gap in range(1, 14):
        wide = floats(2, 3 * gap)
        np.testing.assert_array_equal(run([wide[:, ::gap]])[0], wide[:, ::gap] + 1)


def test_results_may_be_inputs_views_and_equal() -> None:
    x = input_node(0, 4, 6)
    turned = apply("permute_dims", x, axes=(1, 0))
    double = apply("add", x, x)
    run = compiled((x,), x, turned, double, double, apply("permute_dims", double, axes=(1, 0)))
    a = floats(4, 6)
    same, flipped, first, second, other = run([a])
    np.testing.assert_array_equal(same, a)
    np.testing.assert_array_equal(flipped, a.T)
    np.testing.assert_array_equal(first, a + a)
    np.testing.assert_array_equal(second, a + a)
    np.testing.assert_array_equal(other, (a + a).T)


def test_results_outlive_the_next_run() -> None:
    x = input_node(0, 3)
    run = compiled((x,), apply("add", x, x))
    first = run([np.array([1, 2, 3], "f4")])[0]
    run([np.array([7, 8, 9], "f4")])
    np.testing.assert_array_equal(first, [2, 4, 6])


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (dt.float32, 0.5),
        (dt.float32, 3),
        (dt.int32, -7),
        (dt.uint8, 200),
        (dt.int64, 1 << 40),
        (dt.bool_, True),
    ],
)
def test_numbers_come_anew_with_each_run(dtype: DType, value: Any) -> None:
    x, s = input_node(0, 5, dtype=dtype), input_node(1, dtype=dtype, scalar=True)
    name = "logical_xor" if dtype is dt.bool_ else "add"
    run = compiled((x, s), apply(name, x, s))
    a = np.zeros(5, dtype.name)
    for v in (value, type(value)(1)):
        np.testing.assert_array_equal(run([a, v])[0], np.full(5, v, dtype.name))


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 64, 64), (64, 64, 1), (3, 0, 4), (5, 7, 9), (130, 70, 200), (1, 900, 700), (700, 900, 1)],
)
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64])
@pytest.mark.parametrize("turned", [(), (0,), (1,), (0, 1)])
def test_products(m: int, k: int, n: int, dtype: DType, turned: tuple[int, ...]) -> None:
    shapes = [(k, m) if 0 in turned else (m, k), (n, k) if 1 in turned else (k, n)]
    x, y = (input_node(j, *shape, dtype=dtype) for j, shape in enumerate(shapes))
    sides = [apply("permute_dims", v, axes=(1, 0)) if j in turned else v for j, v in enumerate((x, y))]
    run = compiled((x, y), apply("matmul", *sides))
    a, b = (RNG.normal(size=shape).astype(dtype.name) for shape in shapes)
    (out,) = run([a, b])
    assert out.shape == (m, n)
    holds(out, a.T if 0 in turned else a, b.T if 1 in turned else b)


@pytest.mark.parametrize(
    ("x", "y"), [((4, 1, 9, 8), (3, 8, 6)), ((5, 40, 30), (30, 20)), ((1, 7, 6), (5, 6, 4))]
)
def test_stacks_of_products_broadcast(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    a, b = input_node(0, *x), input_node(1, *y)
    run = compiled((a, b), apply("matmul", a, b))
    left, right = floats(*x), floats(*y)
    holds(run([left, right])[0], left, right)


@pytest.mark.parametrize(
    ("lead", "m", "k", "n"), [((), 1, 64, 64), ((), 300, 200, 400), ((), 700, 300, 1), ((3, 5), 64, 70, 90)]
)
def test_what_follows_a_product_goes_on_with_its_tiles(lead: Any, m: int, k: int, n: int) -> None:
    x, y, bias = input_node(0, *lead, m, k), input_node(1, *lead, k, n), input_node(2, n)
    inner = apply("maximum", apply("add", apply("matmul", x, y), bias), number(0.0))
    run = compiled((x, y, bias), apply("multiply", inner, inner))
    a, b, c = floats(*lead, m, k), floats(*lead, k, n), floats(n)
    exact = np.maximum(a.astype("f8") @ b + c, 0)
    off = of_product(a, b, "float32", extra=4) + gamma(2, "float32") * np.abs(c)
    assert_within(run([a, b, c])[0], exact**2, off * (2 * exact + off) + gamma(1, "float32") * exact**2)


def test_a_chain_of_products_in_one_arena() -> None:
    x, w = input_node(0, 256, 256), input_node(1, 256, 256)
    value = x
    for _ in range(6):
        value = apply("tanh", apply("matmul", value, w))
    run = compiled((x, w), value)
    a, b = floats(256, 256), floats(256, 256) / 16
    exact, off = a.astype("f8"), np.zeros_like(a, "f8")
    for _ in range(6):  # tanh lets no error grow, and adds its own
        off = off @ np.abs(b) + of_product(np.abs(exact) + off, b, "float32")
        exact = np.tanh(exact @ b)
        off += gamma(2, "float32")
    for _ in range(5):
        assert_within(run([a, b])[0], exact, off)


def test_a_weight_replaced_by_its_own_product() -> None:
    w, x = input_node(0, 300, 300), input_node(1, 300, 300)
    new = apply("add", apply("matmul", x, w), w)
    run = compiled((w, x), new, replaces={0: 0})
    cell, b = [floats(300, 300)], floats(300, 300) / 30
    for _ in range(4):
        before = cell[0].copy()
        cell[0] = run([cell[0], b])[0]
        off = of_product(b, before, "float32") + gamma(1, "float32") * np.abs(before)
        assert_within(cell[0], b.astype("f8") @ before + before, off)


def test_kernels_of_python_stand_between_compiled_steps() -> None:
    x = input_node(0, 4, 4)
    inner = apply("inv", apply("add", x, number(1.0)))
    run = compiled((x,), apply("multiply", inner, number(2.0)), inner)
    a = floats(4, 4) + 4 * np.eye(4, dtype="f4")
    doubled, plain = run([a])
    wide = a.astype("f8") + 1
    inverse = np.linalg.inv(wide)
    size = np.abs(inverse) @ np.abs(wide) @ np.abs(inverse)  # LU: Higham, Accuracy and Stability, chapter 14
    assert_within(plain, inverse, gamma(3 * 4 + 1, "float32") * size)
    np.testing.assert_array_equal(doubled, plain * 2)


def test_an_error_of_a_kernel_of_python_is_that_of_the_eager_op() -> None:
    x = input_node(0, 3, 3)
    run = compiled((x,), apply("add", apply("cholesky", x), x))
    good, bad = np.eye(3, dtype="f4"), -np.eye(3, dtype="f4")
    with pytest.raises(tb.errors.LinAlgError, match="cholesky"):
        run([bad])
    np.testing.assert_array_equal(run([good])[0], good + good)


def test_state_is_updated_in_its_place() -> None:
    run = step()
    cell = [floats(1000)]
    wanted, g, address = cell[0].copy(), floats(1000), cell[0].ctypes.data
    for _ in range(3):
        cell[0] = run([cell[0], g])[0]
        wanted -= np.float32(0.5) * g
        np.testing.assert_array_equal(cell[0], wanted)
        assert cell[0].ctypes.data == address


@pytest.mark.parametrize("hold", [lambda w: w, lambda w: w[1:], memoryview, lambda w: w.reshape(10, 100)])
def test_state_that_somebody_else_holds_is_left_alone(hold: Any) -> None:
    run = step()
    cell = [floats(1000)]
    before, g = cell[0].copy(), floats(1000)
    held = hold(cell[0])
    new = run([cell[0], g])[0]
    np.testing.assert_array_equal(cell[0], before)
    np.testing.assert_array_equal(new, before - np.float32(0.5) * g)
    del held


def test_state_that_may_not_be_written_is_left_alone() -> None:
    run = step()
    cell = [floats(1000)]
    cell[0].flags.writeable = False
    before, g = cell[0].copy(), floats(1000)
    new = run([cell[0], g])[0]
    np.testing.assert_array_equal(cell[0], before)
    np.testing.assert_array_equal(new, before - np.float32(0.5) * g)


def test_a_bad_index_is_an_error_and_changes_no_state() -> None:
    w, rows, at = input_node(0, 50), input_node(1, 50, 50), input_node(2, 50, dtype=dt.int64)
    taken = apply("sum", apply("gather", rows, at), axis=(1,), keepdims=False)
    run = compiled((w, rows, at), apply("add", w, taken), replaces={0: 0})
    cell = [floats(50)]
    before, table_, index = cell[0].copy(), floats(50, 50), np.arange(50)
    with pytest.raises(IndexingError, match="50"):
        run([cell[0], table_, np.where(index == 31, 50, index)])
    np.testing.assert_array_equal(cell[0], before)
    terms = np.concatenate([before[:, None], table_], 1)
    result = run([cell[0], table_, index])[0]
    assert_within(result, terms.astype("f8").sum(1), of_sum(terms, 1, "float32"))


def test_the_number_of_threads_changes_no_result() -> None:
    x = input_node(0, 300, 4000)
    y = apply("tanh", apply("multiply", x, x))
    square = apply("matmul", y, apply("permute_dims", y, axes=(1, 0)))
    run = compiled((x,), y, apply("sum", y, axis=(1,), keepdims=False), square)
    a, before = floats(300, 4000), tb.get_num_threads()
    try:
        results = []
        for count in (1, 2, 5):
            tb.set_num_threads(count)
            results.append(run([a]))
    finally:
        tb.set_num_threads(before)
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


def test_products_without_a_known_blas_go_through_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorbus_cpu.gemm.blas_call.blas_functions", lambda: ())
    x, y = input_node(0, 40, 50), input_node(1, 50, 60)
    program = compiled((x, y), apply("add", apply("matmul", x, y), number(1.0)))
    a, b = floats(40, 50), floats(50, 60)
    (result,) = program([a, b])
    assert_within(result, a.astype("f8") @ b + 1, of_product(a, b, "float32") + gamma(1, "float32"))


def test_blas_has_its_threads_back_after_a_run() -> None:
    (path,) = Path(np.__file__).parent.parent.glob("numpy.libs/*openblas64_*")
    library = ctypes.CDLL(str(path))
    x = input_node(0, 200, 200)
    program = compiled((x,), apply("matmul", x, x))
    before = library.scipy_openblas_get_num_threads64_()
    try:
        for count in (3, 1, 2):
            library.scipy_openblas_set_num_threads64_(count)
            program([floats(200, 200)])
            assert library.scipy_openblas_get_num_threads64_() == count
    finally:
        library.scipy_openblas_set_num_threads64_(before)


def test_programs_run_in_many_threads_at_once() -> None:
    x = input_node(0, 400, 400)
    runs = [compiled((x,), apply("matmul", apply("tanh", x), x)) for _ in range(4)]
    a = floats(400, 400)
    wanted = np.tanh(a.astype("f8"))
    exact, bound = wanted @ a, of_product(wanted, a, "float32", extra=4)
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(20):
            if not (np.abs(runs[k]([a])[0] - exact) <= bound).all():
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_stages_end_in_code() -> None:
    x = input_node(0, 3)
    stages = compiled((x,), apply("add", x, x)).stages()
    assert next(iter(stages)) == "graph"
    assert "restrict" in list(stages.values())[-1]


def test_a_product_that_takes_the_place_of_its_operand() -> None:
    w, x = input_node(0, 30, 30), input_node(1, 30, 30)
    run = compiled((w, x), apply("matmul", x, w), replaces={0: 0})
    cell, b = [floats(30, 30)], floats(30, 30)
    before = cell[0].copy()
    holds(run([cell[0], b])[0], b, before)
