"""The kit finds kernels that are wrong in corners: ends of dtypes, long calls, some calls of many."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest
from tensorbus.backend_api import Call, Kernel, from_namespace

from faulty import device, outcome, problems, quiet
from numpy_runtime import NATIVE, NumpyRuntime

pytestmark = pytest.mark.full

RIGHT = from_namespace(np, NATIVE, quiet)
Wrong = Callable[..., Any]


def twisted(op: str, wrong: Wrong) -> dict[str, Any]:
    """Return a kernel that gives what ``wrong`` makes of the right one, the call and the operands."""

    def prepare(call: Call) -> Callable[..., Any]:
        kernel = RIGHT[op]
        own = isinstance(kernel, Kernel) and kernel.prepare is not None
        right: Any = (
            kernel.prepare(call) if own else partial(getattr(kernel, "function", kernel), **call.attrs)
        )
        return quiet(lambda *values: np.asarray(wrong(right, call, *values)))

    return {op: Kernel(name="wrong", prepare=prepare)}


def signed(right: Any, call: Call, *values: Any) -> Any:
    """Take unsigned numbers for signed ones."""
    result = right(*[np.ascontiguousarray(v).view(np.int64) for v in values])
    return result.view(np.uint64) if result.dtype == np.int64 else result


def in_half(right: Any, call: Call, x: Any) -> Any:
    return right(x.astype(np.float16).astype(np.float32))


def one_by_one(right: Any, call: Call, x: Any) -> Any:
    """Add all of it in a row, so that small numbers are lost beside a large sum."""
    if len(call.attrs["axis"]) < x.ndim or not x.size:
        return right(x)
    return np.add.accumulate(x.reshape(-1))[-1].reshape((1,) * x.ndim if call.attrs["keepdims"] else ())


def through_floats(right: Any, call: Call, *values: Any) -> Any:
    result = right(*values)
    return result.astype(np.float32).astype(result.dtype)


def scalars_as_floats(right: Any, call: Call, x: Any, y: Any) -> Any:
    return (x + np.float64(y)).astype(np.int64) if isinstance(y, int) else right(x, y)


def backwards(right: Any, call: Call, *xs: Any) -> Any:
    return right(*xs[::-1]) if len(xs) == 3 and len({x.shape for x in xs}) == 1 else right(*xs)


def last_of_equals(right: Any, call: Call, x: Any) -> Any:
    (axis,) = call.attrs["axis"]
    return x.shape[axis] - 1 - right(np.flip(x, axis))


def first_store_wins(right: Any, call: Call, x: Any, value: Any, *indices: Any) -> Any:
    if call.attrs["mode"] != "set" or len(indices) > 1 or indices[0].ndim != 1:
        return right(x, value, *indices)
    return right(x, np.flip(value, 0), np.flip(indices[0]))


def loses_equal_places(right: Any, call: Call, x: Any, value: Any, *indices: Any) -> Any:
    if call.attrs["mode"] != "add":
        return right(x, value, *indices)
    out = x.copy()
    out[indices] = out[indices] + value
    return out


CORNERS: dict[str, tuple[str, str, Wrong]] = {
    "the upper half of unsigned numbers in max": ("max", "uint64", signed),
    "the upper half of unsigned numbers in sort": ("sort", "uint64", signed),
    "the upper half of unsigned numbers in less": ("less", "uint64", signed),
    "sums of 32 bits": (
        "sum", "uint32", lambda right, call, x: (right(x) & np.uint64(0xFFFFFFFF)).astype(np.uint64),
    ),
    "long integers through floats": ("iota", "int64", through_floats),
    "long Python scalars through floats": ("add", "int64", scalars_as_floats),
    "a long sum": ("sum", "float32", one_by_one),
    "operands in half precision": ("sum", "float32", in_half),
    "an early end of exp": (
        "exp", "float32", lambda right, call, x: np.where(x > 88, np.inf, right(x)).astype(x.dtype),
    ),
    "three of a kind": ("concat", "float32", backwards),
    "an axis of length 1": (
        "sum", "float32",
        lambda right, call, x: right(x) * (2 if any(x.shape[a] == 1 for a in call.attrs["axis"]) else 1),
    ),
    "steps below -1": (
        "slice", "float32",
        lambda right, call, x: np.roll(right(x), any(s < -1 for s in call.attrs["step"]), -1),
    ),
    "not packed": (
        "exp", "float32",
        lambda right, call, x: right(x) + x.dtype.type(not (x.flags.c_contiguous or x.flags.f_contiguous)),
    ),
    "halves away from zero": (
        "round", "float32", lambda right, call, x: np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x),
    ),
    "NaN before all": (
        "argsort", "float32", lambda right, call, x: right(np.where(np.isnan(x), -np.inf, x).astype(x.dtype)),
    ),
    "the last of equals": ("argmax", "float32", last_of_equals),
    "the first store wins": ("scatter", "float32", first_store_wins),
    "sums that lose equal places": ("scatter", "float32", loses_equal_places),
    "too far a shift": (
        "bitwise_left_shift", "int64", lambda right, call, x, y: np.left_shift(x, np.asarray(y) % 64),
    ),
    "NaN as a number": (
        "cast", "float32",
        lambda right, call, x: right(np.where(np.isnan(x), -9, x).astype(x.dtype))
        if call.out_dtype.is_integer else right(x),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CORNERS)
def test_corners(name: str) -> None:
    op, dtype, wrong = CORNERS[name]
    with device(twisted(op, lambda right, call, *values: right(*values))):
        assert outcome(op, dtype).findings == ()
    with device(twisted(op, wrong)):
        findings = outcome(op, dtype).findings
    assert any(f"{op}(" in f.call and "wrong; at" in f.problem and "expected" in f.problem for f in findings)


def test_a_kernel_that_is_wrong_once_in_a_hundred_calls() -> None:
    calls = count(1)

    def sometimes(right: Any, call: Call, x: Any) -> Any:
        return right(x) * np.float32(1 + (next(calls) % 100 == 0))

    with device(twisted("exp", sometimes)):
        findings = outcome("exp", checks=("repeated",)).findings
    assert [f.check for f in findings] == ["repeated"]
    assert "the same call gave other bits at the" in findings[0].problem


def test_a_kernel_that_keeps_memory() -> None:
    retained: list[Any] = []

    def keeping(right: Any, call: Call, x: Any) -> Any:
        retained.append(np.ones(100))
        return right(x)

    with device(twisted("exp", keeping)):
        findings = outcome("exp", checks=("repeated",)).findings
    assert "each call keeps memory of the host" in findings[0].problem


def test_a_device_whose_memory_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorbus.backend_api import MemoryStats

    calls = count(1)
    held = [0]

    def growing(right: Any, call: Call, x: Any) -> Any:
        held[0] = 256 * next(calls)
        return right(x)

    monkeypatch.setattr(
        NumpyRuntime, "memory_stats", lambda self, index: MemoryStats(allocated=held[0], peak=0)
    )
    with device(twisted("exp", growing)):
        findings = outcome("exp", checks=("repeated",)).findings
    assert "each call keeps memory of the device" in findings[0].problem


def _keeping(limit: int | None) -> Any:
    """Return a kernel that keeps so many of its results; None: all of them."""
    retained: deque[Any] = deque(maxlen=limit)

    def exp(x: Any) -> Any:
        with np.errstate(all="ignore"):
            retained.append(np.exp(x))
        return retained[-1].copy()

    return exp


def test_a_leak_of_the_smallest_results_is_found_and_a_cache_that_fills_up_is_none() -> None:
    with device({"exp": _keeping(None)}):
        assert "each call keeps memory of the host" in problems("exp", checks=("repeated",))["repeated"]
    for full in (70, 300, 700):
        with device({"exp": _keeping(full)}):
            assert problems("exp", checks=("repeated",)) == {}


@pytest.mark.parametrize(("every", "make"), [(1, bytes), (3, bytes), (3, np.empty), (7, np.empty)])
def test_a_leak_at_some_calls_is_found(every: int, make: Callable[[int], Any]) -> None:
    retained: list[Any] = []
    calls = count(1)

    def keeping(right: Any, call: Call, x: Any) -> Any:
        if next(calls) % every == 0:
            retained.append(make(17))
        return right(x)

    with device(twisted("exp", keeping)):
        assert "each call keeps memory of the host" in problems("exp", checks=("repeated",))["repeated"]


def test_a_leak_of_a_slow_kernel_is_found() -> None:
    retained: list[Any] = []

    def exp(x: Any) -> Any:
        for _ in range(1500):  # some milliseconds, of which a round of a twentieth of a second has few
            x + x
        retained.append(quiet(np.exp)(x))
        return retained[-1].copy()

    with device({"exp": exp}):
        assert "each call keeps memory of the host" in problems("exp", checks=("repeated",))["repeated"]


def test_dtypes_are_compared_with_what_from_host_gives_whatever_they_are_called() -> None:
    class Native:
        """A dtype as another library has them: equal to itself, and printed in its own way."""

        def __init__(self, dtype: Any) -> None:
            self.inner = np.dtype(dtype)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Native) and other.inner == self.inner

        def __hash__(self) -> int:
            return hash(self.inner)

        def __repr__(self) -> str:
            return f"npu.{self.inner}"

    class Value:
        def __init__(self, array: Any, dtype: Any = None) -> None:
            self.array, self.shape = np.asarray(array), np.shape(array)
            self.dtype = Native(dtype or self.array.dtype)

    class Owner(NumpyRuntime):
        def from_host(self, *args: Any) -> Any:
            return Value(super().from_host(*args))

        def to_host(self, value: Any, dtype: Any, index: int) -> memoryview:
            return super().to_host(value.array, dtype, index)

    def exp(lies: bool) -> Any:
        return lambda x: Value(quiet(np.exp)(x.array), np.int32 if lies else None)

    for lies in (False, True):
        with device({"exp": exp(lies)}, runtime=Owner()):
            results = [f.problem for f in outcome("exp", checks=("value",)).findings]
            assert all("npu.int32" in problem for problem in results)
            assert bool(results) == lies
