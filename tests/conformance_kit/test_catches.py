"""The kit finds what is wrong with a device, and nothing where nothing is."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.backend_api import dtypes, elementwise, host_kernels
from tensorbus.errors import ShapeError
from tensorbus.ops.definition import table
from tensorbus_conformance.outcome import MANIFEST

from faulty import NAME, device, outcome, problems, quiet

CLAIM = '[ops]\n{} = ["float32"]\n'


@pytest.mark.parametrize(
    "op", ["add", "exp", "sum", "matmul", "gather", "sort", "softmax", "max", "reshape", "full"]
)
def test_nothing_is_found_where_nothing_is_wrong(op: str) -> None:
    with device():
        verdict = outcome(op)
    assert verdict.findings == ()
    assert verdict.calls > 3
    assert verdict.microseconds is not None
    assert verdict.microseconds > 0


@pytest.mark.parametrize("dtype", ["int64", "uint32", "bool"])
def test_nothing_is_found_in_other_dtypes(dtype: str) -> None:
    with device():
        assert problems("equal", dtype) == {}
        assert problems("where", dtype) == {}


def test_a_wrong_kernel() -> None:
    with device({"add": lambda x, y: np.subtract(x, y)}):
        assert "wrong; at" in problems("add")["value"]


def test_a_kernel_that_is_wrong_for_one_special_value() -> None:
    with device({"maximum": lambda x, y: np.fmax(x, y)}):
        assert "nan" in problems("maximum")["value"]


def test_a_kernel_that_is_a_little_off() -> None:
    with device({"exp": lambda x: np.exp(x) * np.float32(1 + 2e-6)}):
        assert "within 3 ulp" in problems("exp")["value"]


def test_a_kernel_that_is_wrong_on_empty_tensors() -> None:
    with device({"exp": lambda x: np.exp(x) if x.size else np.zeros((1,), np.float32)}):
        assert problems("exp")


def test_a_silently_widened_dtype() -> None:
    def exp(x: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.asarray(np.exp(x.astype(np.float64)))

    with device({"exp": exp}):
        assert "dtype float64, and must return one of dtype float32" in " ".join(
            f.problem for f in outcome("exp").findings if f.check == "value"
        )


def test_a_value_without_a_dtype_is_named() -> None:
    class Anonymous:
        """A value that does not say what it holds."""

        def __init__(self, array: Any) -> None:
            self.array, self.shape = array, array.shape

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.asarray(self.array, dtype)

    with device({"square": lambda x: Anonymous(np.square(x, dtype=np.float64))}):
        assert "which has no dtype, and must return one of dtype float32" in problems("square")["value"]


def test_a_kernel_that_mutates_its_input() -> None:
    def square(x: Any) -> Any:
        x *= x
        return x.copy()

    with device({"square": square}):
        assert any("changed its operand 0" in f.problem for f in outcome("square").findings)


def test_a_kernel_that_reads_past_its_end() -> None:
    def total(x: Any, axis: Any, keepdims: bool) -> Any:
        if x.base is not None and x.ndim == 1:
            x = x.base.reshape(-1)[: x.size + 70]
        return np.asarray(np.sum(x, axis=axis, keepdims=keepdims))

    with device({"sum": total}):
        listed = problems("sum")
    assert "must not be read" in listed["bounds"]


def test_a_kernel_that_ignores_strides() -> None:
    def negative(x: Any) -> Any:
        whole = x if x.flags.c_contiguous or x.base is None else x.base
        return -whole.reshape(-1)[: x.size].reshape(x.shape)

    with device({"negative": negative}):
        assert "in a box" in problems("negative")["bounds"]


def test_a_write_to_a_view_that_misses_its_base() -> None:
    def ignores_steps(x: Any, value: Any, start: Any, step: Any) -> Any:
        out = np.array(x)
        out[tuple(slice(b, b + n) for b, n in zip(start, value.shape, strict=True))] = value[
            tuple(slice(None, max(m - b, 0)) for b, m in zip(start, x.shape, strict=True))
        ]
        return out

    with device():
        for op in ("slice", "reshape", "permute_dims", "broadcast_to", "windows"):
            assert problems(op, checks=("views",)) == {}, op
            assert problems(op, "bool", checks=("views",)) == {}, op
    with device({"slice_update": ignores_steps}):
        wrong = outcome("slice", checks=("views",)).findings
        assert {f.check for f in wrong} == {"views"}
        assert any("is wrong after a write to" in f.problem for f in wrong)
    with device({"slice_update": lambda x, value, start, step: np.array(x)}):
        results = [f.problem for f in outcome("slice", checks=("views",)).findings]
        assert any("the base is wrong after a write to the view" in p for p in results)
        assert any("the gradient of the base is wrong" in p for p in results)


def test_an_op_that_decomposes_though_it_is_claimed() -> None:
    with device(manifest=CLAIM.format("mean")):
        assert "ran native" not in problems("mean").get("route", "")
    with device(manifest=CLAIM.format("mean"), without=("mean",)):
        assert problems("mean")["route"] == "the manifest claims a kernel for float32, but it ran decomposed"


def test_an_op_that_falls_back() -> None:
    with device(host_kernels(NAME, "exp"), CLAIM.format("exp")):
        verdict = outcome("exp")
        assert verdict.route == "host"
        assert {f.problem for f in verdict.findings} == {
            "the manifest claims a kernel for float32, but it ran host",
            "it ran on the host, and the manifest does not list it in [ops] host",
        }
    with device(host_kernels(NAME, "exp"), '[ops]\nhost = ["exp"]\n'):
        assert outcome("exp").status == "host"


def test_a_kernel_that_falls_back_behind_ones_back() -> None:
    def exp(x: Any) -> Any:
        from tensorbus.dispatch.host_fallback import count

        count("exp", NAME, x.nbytes)
        with np.errstate(all="ignore"):
            return np.exp(x)

    with device({"exp": exp}, CLAIM.format("exp")):
        assert "host" in problems("exp")["route"]


def test_an_op_that_is_missing() -> None:
    with device(without=("gather",)):
        assert "does not declare it in [gaps]" in problems("gather")["route"]
    with device(without=("gather",), manifest='[gaps]\ngather = "no library for it"\n'):
        verdict = outcome("gather")
        assert (verdict.status, verdict.findings) == ("missing", ())


def test_a_kernel_that_is_not_deterministic() -> None:
    turns = itertools.count()

    def exp(x: Any) -> Any:
        with np.errstate(all="ignore"):
            y = np.exp(x)
            return np.asarray(np.nextafter(y, np.float32(np.inf)) if next(turns) % 2 else y)

    with device({"exp": exp}):
        assert any("other bits when it was made again" in f.problem for f in outcome("exp").findings)


def test_a_kernel_that_raises() -> None:
    def log(x: Any) -> Any:
        raise RuntimeError("out of logs")

    with device({"log": log}):
        assert "out of logs" in problems("log")["value"]


def test_a_kernel_that_takes_a_bad_call() -> None:
    with device(
        {
            "gather": lambda x, *indices: x[
                tuple(np.clip(i, 0, n - 1) for i, n in zip(indices, x.shape, strict=False))
            ]
        }
    ):
        assert "IndexingError is due" in problems("gather")["refusal"]


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (
            'dtypes = ["bool", "int64", "uint32", "uint64", "float32", "float64"]\n',
            "says that every unit has float64",
        ),
        ('dtypes = ["bool", "int64", "uint32", "uint64"]\n', "it has float32, which the manifest's"),
        ('[ops]\nadd = ["float64"]\n', "claims add for float64"),
        ('[ops]\nad = "all"\n', "claims 'ad', which is no op"),
        ('[ops]\nhost = ["no_op"]\n', "names 'no_op', which is no op"),
        ('[ops]\nadd = "all"\n[gaps]\nadd = "forgotten"\n', "names add, which [ops] claims"),
    ],
)
def test_a_manifest_that_lies(manifest: str, problem: str) -> None:
    with device(manifest=manifest):
        assert problem in problems(MANIFEST, "-")["manifest"]


def test_a_kernel_of_an_op_that_there_is_not() -> None:
    with device({"sofmax": np.negative}):
        assert (
            "kernel for 'sofmax', which is no op. Did you mean 'softmax'"
            in problems(MANIFEST, "-")["manifest"]
        )


def test_an_op_whose_decomposition_needs_what_is_missing() -> None:
    with device():
        listed = problems("svdvals")
        assert set(listed) == {"route"}
        assert "its decomposition does not run (svd: no kernel on faulty:0" in listed["route"]
    with device(manifest='[gaps]\nsvdvals = "no library for it"\n'):
        assert problems("svdvals") == {}


def test_a_bad_call_whose_result_the_device_has_no_dtype_for() -> None:
    with device():
        assert problems("complex") == {}


def test_a_manifest_that_tells_the_truth() -> None:
    with device(manifest='[ops]\nadd = "all"\n'):
        assert problems(MANIFEST, "-") == {}


def test_a_dtype_that_is_claimed_and_does_not_work() -> None:
    def full(shape: Any, value: Any, dtype: Any) -> Any:
        if dtype is dtypes.uint32:
            raise RuntimeError("no such type")
        return np.full(shape, value, dtype.name)

    with device({"full": full}):
        assert "says that it has uint32, but using it raised" in problems(MANIFEST, "-")["manifest"]


@pytest.fixture
def new_op() -> Any:
    """Define elementwise ops for one test."""
    names: list[str] = []

    def define(name: str, **rules: Any) -> Any:
        names.append(name)
        return table.add(elementwise(name, dtypes=dtypes.FLOATING, **rules))

    yield define
    for name in names:
        table.discard(name)


def test_a_new_op_is_tested_by_existing(new_op: Any) -> None:
    new_op("cubed", decompose=lambda x: x * x * x, vjp=lambda g, x: (g * 3 * x * x,))
    with device():
        verdict = outcome("cubed")
        assert (verdict.status, verdict.findings) == ("decomposed", ())
    with device({"cubed": quiet(lambda x: x**3)}):
        assert outcome("cubed").status == "native"
    with device({"cubed": lambda x: x * x}):
        assert "wrong; at" in problems("cubed")["value"]


def test_a_wrong_derivative(new_op: Any) -> None:
    new_op("cubed", decompose=lambda x: x * x * x, vjp=lambda g, x: (g * 2 * x * x,))
    with device():
        assert "gradient of operand 0" in problems("cubed")["derivative"]


def test_a_derivative_that_is_right_once_only(new_op: Any) -> None:
    new_op("cubed", decompose=lambda x: x * x * x, vjp=lambda g, x: (g * (3 * x * x).detach(),))
    with device():
        result = problems("cubed")["derivative"]
    assert result.startswith("second derivative of operand 0")


def test_a_wrong_forward_derivative(new_op: Any) -> None:
    right = {"decompose": lambda x: x * x * x, "vjp": lambda g, x: (g * 3 * x * x,)}
    new_op("cubed", **right, jvp=lambda x_t, x: x_t * 2 * x * x)
    new_op("dubed", **right, jvp=lambda x_t, x: x_t * (3 * x * x).detach())
    with device():
        actual = problems("cubed", checks=("jvp",))["jvp"]
        assert actual.startswith("tangent of result 0 along all operands: off by")
        actual = problems("dubed", checks=("jvp",))["jvp"]
        assert actual.startswith("second derivative at operand 0 along all operands")


def test_a_decomposition_that_is_not_the_kernel(new_op: Any) -> None:
    new_op("late", decompose=lambda x: tb.sin(x) + 1)
    with device({"late": quiet(lambda x: np.sin(x) + np.float32(1))}):
        assert problems("late") == {}
    with device({"late": quiet(lambda x: np.cos(x) + np.float32(1))}):
        assert "wrong; at" in problems("late")["value"]


def test_a_wrong_batching_rule(new_op: Any) -> None:
    op = new_op("cubed", decompose=lambda x: x * x * x)
    object.__setattr__(op, "batch", lambda operands, batched: tb.flip(op(*operands), axis=0))
    with device():
        assert "vmap over" in problems("cubed")["batching"]


def test_an_op_without_samples(new_op: Any) -> None:
    op = new_op("bare", decompose=lambda x: x + 1)
    object.__setattr__(op, "family", "bare")  # of which nobody has written samples
    with device():
        assert "no samples" in problems("bare")["samples"]


def test_an_op_that_refuses_nothing(new_op: Any) -> None:
    op = new_op("taken", decompose=lambda x, y: x, arity=2)
    object.__setattr__(op, "infer", lambda specs: specs[0])
    with device():  # by its decomposition: what a kernel returns is compared with the operands' common shape
        assert f"{ShapeError.__name__} is due" in problems("taken")["refusal"]


def test_an_op_without_samples_in_a_dtype(new_op: Any) -> None:
    from tensorbus.testing.sample import Fill, Sample

    op = new_op("narrow", decompose=lambda x: x + 1)
    only = Sample(args=(Fill(shape=(2,)),), dtypes=(dtypes.float64,))
    object.__setattr__(op, "samples", lambda: [only])
    with device():
        assert "in float32" in problems("narrow")["samples"]


@pytest.mark.full
def test_a_kernel_that_is_wrong_on_many_elements() -> None:
    with device(
        {"negative": lambda x: -x if x.size < 1000 else np.where(np.arange(x.size) < 1000, -x, 0 * x)}
    ):
        assert "131075 elements" in problems("negative")["large"]
    with device({"sum": lambda x, axis, keepdims: np.sum(x[:256], axis=axis, keepdims=keepdims)}):
        assert any("(large)" in f.call for f in outcome("sum").findings)
