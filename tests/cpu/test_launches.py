"""Eager calls that are launches only: in C and in Python alike, whatever arrays and memory they meet."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.backend_api import Call, dtypes
from tensorbus_cpu.compiler import NATIVE
from tensorbus_cpu.convolution.kernels_convolution import PREPARE
from tensorbus_cpu.eager import eager_launch as launches
from tensorbus_cpu.eager.eager_launch import Launch, Launches, slots
from tensorbus_cpu.eager.kernels_reduction import fold

from error_bounds import assert_within, gamma, of_sum

pytestmark = pytest.mark.skipif(NATIVE.compiler() is None, reason="there is no C compiler")

_SOURCE = """
#include <stdint.h>
typedef union { double f; int64_t i; } slot;
void scaled(void *const *b, const slot *p, const int64_t *range) {
  const float *x = b[0];
  float *out = b[1];
  for (int64_t k = range[0]; k < range[1]; ++k) out[k] = x[k] * (float)p[0].f + (float)p[1].i;
}
"""
_FLOAT = np.dtype(np.float32)


def _scaled(buffers: tuple[int, int], params: tuple[float, int], n: int) -> Launch:
    compiler = NATIVE.compiler()
    assert compiler is not None
    function = compiler.library(_SOURCE).scaled
    return Launch(function=function, buffers=buffers, params=params, grid=(n,), piece=(max(n // 7, 1),))


def _two_steps(n: int, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return what gives 6 x + 5 and 3 x + 2 of n numbers, by way of scratch memory."""
    launches = Launches(1, (_FLOAT, (n,)), (_FLOAT, (1, n)))
    between = launches.scratch(4 * n)
    launches.add(_scaled((0, between), (3.0, 2), n))
    launches.add(_scaled((between, 1), (2.0, 1), n))
    launches.add(_scaled((0, 2), (3.0, 2), n))
    return launches.function(otherwise)


def _refuse(*values: Any) -> Any:
    raise LookupError(len(values))


@pytest.fixture(params=["C", "Python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run what is made in C, as everywhere, and as where C does not know this Python."""
    if request.param == "Python":
        monkeypatch.setattr(launches, "_routine", lambda: None)
    else:
        assert launches._routine() is not None
    return str(request.param)


@pytest.mark.parametrize("n", [1, 1000, 300_001])
def test_steps_follow_each_other_and_results_are_new(way: str, n: int) -> None:
    run = _two_steps(n, _refuse)
    x = np.arange(n, dtype=np.float32) % 1000
    results = [run(x) for _ in range(3)]
    for one, other in results:
        np.testing.assert_array_equal(one, 6 * x + 5)
        np.testing.assert_array_equal(other, (3 * x + 2)[None])
    memory = {array.ctypes.data for pair in results for array in pair}
    assert len(memory) == 6


def test_stages_follow_each_other_whatever_the_order_of_adding(way: str) -> None:
    n = 50_000
    launches = Launches(1, (_FLOAT, (n,)), (_FLOAT, (n,)))
    between = launches.scratch(4 * n)
    launches.add(_scaled((between, 1), (2.0, 1), n), 1)
    launches.add(_scaled((0, between), (3.0, 2), n), 0)
    launches.add(_scaled((between, 2), (1.0, 4), n), 1)
    x = np.arange(n, dtype=np.float32) % 1000
    one, other = launches.function(_refuse)(x)
    np.testing.assert_array_equal(one, 6 * x + 5)
    np.testing.assert_array_equal(other, 3 * x + 6)


def test_what_is_not_packed_is_left_to_others(way: str) -> None:
    run = _two_steps(4, _refuse)
    odd = np.zeros(17, np.uint8)[1:].view(np.float32)
    for operand in (np.zeros(8, np.float32)[::2], np.zeros((4, 4), np.float32).T, odd):
        with pytest.raises(LookupError, match="1"):
            run(operand)
    assert run(np.zeros(4, np.float32))[0][0] == 5


def test_what_is_not_packed_can_be_copied_first(way: str) -> None:
    launches = Launches(1, (_FLOAT, (4,)))
    launches.add(_scaled((0, 1), (2.0, 1), 4))
    run = launches.repacking(np.ascontiguousarray)
    wide = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(run(wide[::2]), [1, 5, 9, 13])
    np.testing.assert_array_equal(run(wide[:4]), [1, 3, 5, 7])
    assert sys.getrefcount(wide) == 2


def test_what_does_not_become_packed_is_an_error() -> None:
    launches = Launches(1, (_FLOAT, (4,)))
    run = launches.repacking(lambda x: x)
    with pytest.raises(TypeError, match="packed"):
        run(np.zeros(8, np.float32)[::2])
    with pytest.raises(TypeError, match="no array"):
        run("text")
    failing = launches.repacking(_refuse)
    with pytest.raises(LookupError):
        failing(np.zeros(8, np.float32)[::2])


def test_neither_too_many_nor_other_values_are_run() -> None:
    run = _two_steps(4, _refuse)
    x = np.zeros(4, np.float32)
    for operand in ((x, x), (), ([0.0] * 4,), (None,)):
        with pytest.raises(LookupError, match=str(len(operand))):
            run(*operand)


def test_memory_that_is_not_there_is_an_error_and_nothing_is_kept() -> None:
    compiler = NATIVE.compiler()
    assert compiler is not None
    results, scratch = Launches(1, (_FLOAT, (4,)), (_FLOAT, (1 << 58,))), Launches(1, (_FLOAT, (1 << 20,)))
    scratch.scratch(1 << 18)
    scratch.scratch(1 << 59)
    x = np.zeros(4, np.float32)
    for value in (results, scratch):
        run = value.function(_refuse)
        run_before = sys.getrefcount(_FLOAT)
        for _ in range(5):
            with pytest.raises(MemoryError):
                run(x)
        assert sys.getrefcount(_FLOAT) == run_before


def test_functions_let_go_of_what_they_held() -> None:
    before = sys.getrefcount(_refuse)
    run = _two_steps(4, _refuse)
    assert sys.getrefcount(_refuse) == before + 1
    del run
    assert sys.getrefcount(_refuse) == before


def test_many_threads_run_one_function() -> None:
    n = 70_000
    run, wrong = _two_steps(n, _refuse), []

    def work(offset: int) -> None:
        x = np.arange(n, dtype=np.float32) % 1000 + offset
        for _ in range(50):
            one, other = run(x)
            if not (one == 6 * x + 5).all() or not (other == 3 * x + 2).all():
                wrong.append(offset)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_numbers_are_passed_as_they_are() -> None:
    assert slots((1, -1, 2.5)) == bytes(ctypes.c_int64(1)) + b"\xff" * 8 + bytes(ctypes.c_double(2.5))
    assert slots(()) == b""


def _call(op: str, shapes: Any, out: Any, **attrs: Any) -> Call:
    kinds = (dtypes.float32,) * len(shapes)
    return Call(
        op=op, dtypes=kinds, shapes=shapes, attrs=attrs, out_dtype=dtypes.float32, out_shape=out, index=0
    )  # fmt: skip


@pytest.mark.parametrize("axis", [(0,), (1,), (0, 1), (1, 2), (0, 2)])
def test_reductions_are_the_same_either_way(way: str, axis: tuple[int, ...]) -> None:
    a = np.random.default_rng(0).standard_normal((40, 300, 90), dtype=np.float32)
    retained = tuple(n for k, n in enumerate(a.shape) if k not in axis)
    call = _call("sum", (a.shape,), retained, axis=axis, keepdims=False)
    for operand in (a, np.asfortranarray(a), a.transpose(1, 0, 2).copy().transpose(1, 0, 2)):
        result = fold(call, _refuse)(operand)
        assert_within(result, a.sum(axis, dtype=np.float64), of_sum(a, axis, "float32"))
        assert result.shape == retained


@pytest.mark.parametrize("channels", [5, 40])
def test_convolutions_are_the_same_either_way(way: str, channels: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, channels, 15, 17), dtype=np.float32)
    weight = rng.standard_normal((44, channels, 3, 3), dtype=np.float32)
    attrs: dict[str, Any] = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    actual = PREPARE["conv"](_call("conv", (x.shape, weight.shape), (2, 44, 13, 15), **attrs))(x, weight)
    seen = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    right = np.einsum("bcyxij,rcij->bryx", seen.astype("f8"), weight, optimize=True)
    size = np.einsum("bcyxij,rcij->bryx", abs(seen.astype("f8")), abs(weight), optimize=True)
    assert_within(actual, right, gamma(channels * 9 + 2, "float32") * size)


def test_large_results_come_from_the_pool() -> None:
    compiler = NATIVE.compiler()
    assert compiler is not None
    x = tb.ones((64, 1 << 17), device="cpu")
    compiler.runtime.tb_empty_cache()
    out = tb.sum(x, axis=0)
    assert float(out[77]) == 64
    before = compiler.runtime.tb_reserved()
    del out
    assert compiler.runtime.tb_reserved() == before + 4 * (1 << 17)
