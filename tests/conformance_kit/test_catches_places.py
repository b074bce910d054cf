"""The kit finds what is wrong only for operands that lie in some way, that are one tensor, or are many."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import plugins

from faulty import NAME, device, outcome, problems, quiet

pytestmark = pytest.mark.full

Kernel = Callable[..., Any]


def problems_of(op: str, kernel: Kernel, check: str, dtype: str = "float32") -> str:
    """Return all that a check says of the device with one kernel replaced."""
    with device({op: quiet(kernel)}):
        return "\n".join(f.problem for f in outcome(op, dtype).findings if f.check == check)


def adding(wrong: Callable[[Any, Any], bool]) -> Kernel:
    return lambda x, y: np.subtract(x, y) if wrong(np.asarray(x), np.asarray(y)) else np.add(x, y)


def one_more(x: Any) -> Any:
    """Return a packed vector with the element that lies behind its end, where there is one."""
    base = x
    while isinstance(base.base, np.ndarray):
        base = base.base
    if base is x or x.ndim != 1 or not x.size or not x.flags.c_contiguous:
        return x
    at = (x.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // x.itemsize
    flat = base.reshape(-1)
    return flat[at : at + x.size + 1]


@pytest.mark.parametrize(
    ("op", "dtype", "function"),
    [
        ("max", "int64", np.max), ("min", "int64", np.min), ("min", "float32", np.min),
        ("all", "bool", np.all), ("any", "bool", np.any),
    ],
)  # fmt: skip
def test_a_kernel_that_reads_one_element_past_its_end(op: str, dtype: str, function: Kernel) -> None:
    def run(x: Any, axis: Any, keepdims: bool) -> Any:
        return np.asarray(function(one_more(x), axis=axis, keepdims=keepdims))

    assert "must not be read" in problems_of(op, run, "bounds", dtype)


def test_a_sort_that_reads_one_element_past_its_end() -> None:
    def run(x: Any, axis: int, descending: bool) -> Any:
        ordered = np.sort(one_more(x), axis=axis)[tuple(slice(n) for n in x.shape)]
        return np.flip(ordered, axis) if descending else ordered

    assert "must not be read" in problems_of("sort", run, "bounds")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, y: x.size > 1 and x.flags.f_contiguous and not x.flags.c_contiguous,
        lambda x, y: min(x.size, y.size) > 1 and x.flags.c_contiguous != y.flags.c_contiguous,
    ],
)
def test_a_kernel_that_is_wrong_for_some_orders_of_axes(wrong: Callable[[Any, Any], bool]) -> None:
    assert "Fortran's order" in problems_of("add", adding(wrong), "bounds")


def test_a_kernel_that_is_wrong_for_strides_of_0() -> None:
    def total(x: Any, axis: Any, keepdims: bool) -> Any:
        twice = any(s == 0 and n > 1 for s, n in zip(x.strides, x.shape, strict=True))
        return np.asarray(np.sum(x, axis=axis, keepdims=keepdims) * np.float32(1 + twice))

    assert "a stride of 0" in problems_of("sum", total, "bounds")


@pytest.mark.parametrize("rank", [0, 6])
def test_a_kernel_that_is_wrong_for_a_rank(rank: int) -> None:
    assert problems_of("add", adding(lambda x, y: max(x.ndim, y.ndim) == rank), "value")


def test_a_kernel_that_is_wrong_where_its_operands_are_one() -> None:
    for op in ("multiply", "matmul"):
        right = getattr(np, op)
        message = problems_of(op, lambda x, y, right=right: right(x, y) + (x is y), "value")
        assert "with one tensor for operands of the same kind" in message


def test_a_kernel_that_mutates_operands_that_are_one() -> None:
    def add(x: Any, y: Any) -> Any:
        if x is y:
            x += x
            return x.copy()
        return x + y

    assert "changed its operand" in problems_of("add", add, "value")


@pytest.mark.parametrize("op", ["exp", "negative"])
def test_a_kernel_that_uses_its_result_again(op: str) -> None:
    cache: dict[Any, Any] = {}

    def run(x: Any) -> Any:
        out = cache.setdefault(x.shape, np.empty_like(x))
        getattr(np, op)(x, out=out)
        return out

    assert "another call changed the result of this one" in problems_of(op, run, "value")


def test_a_kernel_that_is_not_deterministic_at_every_third_call() -> None:
    turns = itertools.count()

    def exp(x: Any) -> Any:
        out = np.exp(x)
        return np.asarray(np.nextafter(out, np.float32(np.inf)) if next(turns) % 3 == 2 else out)

    assert "other bits when it was made again" in problems_of("exp", exp, "value")


def test_a_kernel_that_is_not_deterministic_on_many_elements() -> None:
    turns = itertools.count()

    def exp(x: Any) -> Any:
        out = np.exp(x)
        return np.nextafter(out, np.float32(np.inf)) if x.size > 1 << 16 and next(turns) % 2 else out

    assert "other bits when it was made again" in problems_of("exp", exp, "large")


def test_a_kernel_that_is_wrong_for_a_row_beside_many() -> None:
    message = problems_of(
        "add", adding(lambda x, y: max(x.size, y.size) > 1 << 16 and x.shape != y.shape), "large"
    )
    assert "many beside a row" in message


@pytest.mark.parametrize("op", ["prod", "concat", "pad", "flip", "permute_dims", "slice", "scatter"])
def test_a_kernel_that_is_wrong_on_many_elements_only(op: str) -> None:
    with device():
        right = plugins.backend(NAME).kernels[0][1][op]

    def run(*values: Any, **attrs: Any) -> Any:
        out = right(*values, **attrs)
        many = any(getattr(v, "size", 0) >= 1 << 15 for v in values)
        return np.zeros_like(out) if many else out

    with device({op: run}):
        assert any("(large)" in f.call for f in outcome(op).findings)


@pytest.mark.parametrize(
    ("op", "kernel"),
    [
        ("add", lambda x, y: np.where((x == 0) & (y == 0), np.float32(0), x + y)),
        ("multiply", lambda x, y: x * y + np.float32(0)),
        ("sin", lambda x: np.sin(x) + np.float32(0)),
        ("sqrt", lambda x: np.sqrt(x) + np.float32(0)),
        ("ceil", lambda x: np.ceil(x) + np.float32(0)),
        ("negative", lambda x: np.float32(0) - x),
        ("abs", lambda x: np.where(x < 0, -x, x)),
        ("remainder", lambda x, y: np.remainder(x, y) + np.float32(0)),
        ("power", lambda x, y: np.power(x, y) + np.float32(0)),
    ],
)
def test_a_zero_of_the_wrong_sign(op: str, kernel: Kernel) -> None:
    assert "0.0, expected" in problems_of(op, kernel, "value")


def test_a_kernel_that_computes_on_the_host_in_silence() -> None:
    message = problems_of("exp", lambda x: tb.exp(tb.asarray(x, device="cpu")).numpy(), "route")
    assert "copied between devices while it ran (cpu.from_numpy)" in message


def test_a_kernel_that_copies_to_the_host_in_silence() -> None:
    def exp(x: Any) -> Any:
        runtime = plugins.backend(NAME).runtime
        data = np.frombuffer(runtime.to_host(x, tb.float32, 0), np.float32)
        return runtime.from_host(memoryview(np.exp(data).tobytes()), x.shape, tb.float32, 0)

    assert f"copied between devices while it ran ({NAME}.to_host)" in problems_of("exp", exp, "route")


@pytest.mark.parametrize(
    ("manifest", "op", "without"),
    [
        ('[gaps]\nadd = "not here"\n', "add", ()),
        ('[ops]\nhost = ["add"]\n', "add", ()),
        ('[gaps]\nsoftmax = "not here"\n', "softmax", ("softmax",)),
    ],
)
def test_a_manifest_that_denies_what_is_there(manifest: str, op: str, without: tuple[str, ...]) -> None:
    with device(manifest=manifest, without=without):
        assert "in every dtype" in problems(op)["route"]


def test_a_gap_that_one_dtype_has_is_none_of_the_kits_business() -> None:
    def prepare(x: Any, axis: Any, keepdims: bool) -> Any:
        return np.asarray(np.max(x, axis=axis, keepdims=keepdims))

    from tensorbus.backend_api import Kernel

    partial = Kernel(
        name="partial",
        function=prepare,
        supports=lambda call: call.dtypes[0] is not tb.int64 or "no integers",
    )
    with device({"max": partial}, manifest='[gaps]\nmax = "no integers"\n'):
        assert "route" not in problems("max")
        assert outcome("max", "int64").status == "missing"


def test_a_survey_of_a_device_without_a_dtype_that_samples_need() -> None:
    from tensorbus.devices.device import Device
    from tensorbus.ops.definition import table
    from tensorbus.testing.coverage import routes_of, survey

    with device(without=("gather",)):
        where = Device(NAME)
        assert tb.int32 not in where.properties.dtypes
        assert set(survey(where).routes["gather"].values()) == {"missing"}
        assert set(routes_of(table["add"], where).values()) == {"native"}
