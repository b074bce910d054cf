"""Tests of the function that computes the numbers of a size."""

from __future__ import annotations

from typing import Any

import pytest
from tensorbus.dtypes import definition as dt
from tensorbus.kernels.size_function import SizeFunction
from tensorbus.lowering.ir.loop_ir import INDEX
from tensorbus.tracing.plan_env import PlanEnv


def test_numbers_are_those_of_the_lengths_and_constants_are_the_objects_themselves() -> None:
    env = PlanEnv()
    a, b = env.symbol("s0", 5), env.symbol("s1", 7)
    nothing = object()
    numbers = ((a * b, -(-a // 4), 3), [a, (b % 3,)], {"axis": (a - b,), "how": nothing}, (), 2.5, True, None)
    function = SizeFunction([*env.symbols])
    at = function.compiled(function.text(numbers))
    for n, m in ((0, 0), (1, 9), (8, 1), (1 << 70, 3)):
        assert at(s0=n, s1=m) == (
            (n * m, -(-n // 4), 3), [n, (m % 3,)], {"axis": (n - m,), "how": nothing}, (), 2.5, True, None,
        )  # fmt: skip
    assert at(s0=1, s1=1)[2]["how"] is nothing


def test_what_is_computed_once_serves_all_that_ask_for_it() -> None:
    calls: list[Any] = []
    env = PlanEnv()
    a = env.symbol("s0", 5)
    function = SizeFunction([*env.symbols])
    maker = function.constant(lambda n: calls.append(n) or [n])
    names = [function.named(f"{maker}({function.text(a + 1)})") for _ in range(3)]
    one, two, three = function.compiled(f"({', '.join(names)})")(s0=4)
    assert one is two is three
    assert calls == [5]


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [(INDEX, -(1 << 63), (1 << 63) - 1), (dt.int64, -(1 << 63), (1 << 63) - 1),
     (dt.int32, -(1 << 31), (1 << 31) - 1), (dt.int8, -128, 127), (dt.uint8, 0, 255),
     (dt.uint64, 0, (1 << 64) - 1)],
)  # fmt: skip
def test_there_is_no_size_whose_number_exceeds_its_parameter(dtype: dt.DType, low: int, high: int) -> None:
    env = PlanEnv()
    a = env.symbol("s0", 5)
    function = SizeFunction([*env.symbols])
    for _ in range(2):
        function.fits(a - 1, dtype)
    at = function.compiled(function.text((a,)))
    assert [at(s0=n + 1) for n in (low - 1, high + 1)] == [None, None]
    assert [at(s0=n + 1) for n in (low, high)] == [(low + 1,), (high + 1,)]


def test_a_float_parameter_takes_any_length_and_what_has_no_way_has_no_size() -> None:
    env = PlanEnv()
    a = env.symbol("s0", 5)
    function = SizeFunction([*env.symbols])
    function.fits(a, dt.float32)
    way = function.named(f"{function.constant(lambda n: None if n > 1 << 80 else n)}({function.text(a)})")
    function.needs(way)
    at = function.compiled(way)
    assert at(s0=1 << 80) == 1 << 80
    assert at(s0=(1 << 80) + 1) is None
