"""Movement ops fused into their producers: flipped, rolled, cut, padded and selected values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb

from error_bounds import assert_as_exact_as_eager, assert_within, of_sum

F = tb.nn.functional
MOVES: dict[str, Callable[[Any], Any]] = {
    "flip": lambda v: tb.flip(v, axis=0),
    "flip along rows": lambda v: tb.flip(v, axis=-1),
    "roll": lambda v: tb.roll(v, 1, axis=0),
    "roll back": lambda v: tb.roll(v, -1, axis=0),
    "slice": lambda v: v[::-1],
    "concat": lambda v: tb.concat([v[1:], v[:1]]),
    "pad": lambda v: F.pad(v[..., 1:], (0, 1)),
}
moves = pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)


def drawn(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).uniform(0.5, 1.5, shape).astype("f4")


def wide(x: Any) -> Any:
    return x.astype("f8") if x.dtype == "f4" else x


def agree(function: Callable[..., Any], *args: Any, device: str, dtype: str = "float32") -> None:
    operands = [tb.asarray(x, device=device) for x in args]
    eager, exact = function(*operands), function(*[tb.asarray(wide(x), device=device) for x in args])
    compiled, roundings = tb.compile(function), max(x.size for x in args) + 8
    for _ in range(2):  # a second run finds other things in the memory of the first
        actual = compiled(*operands)
        assert_as_exact_as_eager(actual.numpy(), eager.numpy(), exact.numpy(), roundings, dtype)


@moves
@pytest.mark.parametrize("shape", [(2, 3), (48, 80)], ids=str)
def test_a_moved_function_beside_its_reduction(device: str, move: Any, shape: tuple[int, int]) -> None:
    ends: tuple[Callable[[Any], Any], ...] = (
        lambda v: v - tb.mean(v, axis=1, keepdims=True),
        lambda v: v / tb.sum(v, axis=1, keepdims=True),
        lambda v: F.layer_norm(v, v.shape[-1:]),
        lambda v: v - tb.mean(v, axis=0, keepdims=True),
    )
    for end in ends:
        agree(lambda x, end=end: end(move(tb.sigmoid(x))), drawn(*shape), device=device)


@moves
@pytest.mark.parametrize("shape", [(6,), (1000,), (4, 33)], ids=str)
def test_state_that_takes_the_place_of_what_it_was_made_of(
    device: str, move: Any, shape: tuple[int, ...]
) -> None:
    updates: tuple[Callable[[Any, Any], Any], ...] = (
        lambda s, x: move(s * 0.5 + x), lambda s, x: s * 0.5 + move(s * 0.3) + x,
        lambda s, x: s * 0.5 + move(tb.sin(s)) + x,
    )  # fmt: skip
    for update in updates:
        held, known = (tb.asarray(drawn(*shape), device=device) for _ in range(2))
        exact = known.to("float64")
        x = tb.ones(shape, device=device)

        @tb.compile
        def step(x: Any, held: Any = held, update: Any = update) -> None:
            held[...] = update(held, x)

        for _ in range(3):
            step(x)
            known[...] = update(known, x)
            exact[...] = update(exact, x)
            assert_as_exact_as_eager(held.numpy(), known.numpy(), exact.numpy(), 16, "float32")


def test_state_a_part_of_which_is_written_over_another(device: str) -> None:
    def shifted(s: Any, x: Any) -> None:
        before = x.clone()
        before[1:] = s[:-1] * 0.5
        s[...] = before

    def front(s: Any, x: Any) -> None:
        s[:3] = s[-3:] + x[:3]

    def back(s: Any, x: Any) -> None:
        s[2:5] = s[1:4] * 0.5 + x[1:4]

    for change in (shifted, front, back):
        held, known = (tb.asarray(drawn(40, 3), device=device) for _ in range(2))
        exact = known.to("float64")
        x = tb.ones((40, 3), device=device)

        @tb.compile
        def step(x: Any, held: Any = held, change: Any = change) -> None:
            change(held, x)

        for _ in range(3):
            step(x)
            change(known, x)
            change(exact, x.to("float64"))
            assert_as_exact_as_eager(held.numpy(), known.numpy(), exact.numpy(), 8, "float32")


@moves
@pytest.mark.parametrize("shape", [(96, 96), (3, 40, 40)], ids=str)
def test_a_product_that_is_moved_behind_its_sum(device: str, move: Any, shape: tuple[int, ...]) -> None:
    operands = [drawn(*shape) for _ in range(3)]
    agree(lambda a, b, v: move(a @ b + v), *operands, device=device)
    agree(lambda a, b, v: move((a @ b) * 2) + v, *operands, device=device)


@pytest.mark.parametrize("count", [33, 4096])
def test_what_is_shifted_reads_nothing_before_or_behind(device: str, count: int) -> None:
    x = drawn(count)
    for shift in (1, -1, 3, count - 1):
        agree(lambda v, shift=shift: tb.roll(v, shift, axis=0) * tb.exp(v), x, device=device)
        right = np.roll(x, shift)
        np.testing.assert_array_equal(tb.roll(tb.asarray(x, device=device), shift, axis=0).numpy(), right)


def sums_of_rows(y: Any) -> Any:
    return tb.sum(y, axis=1, keepdims=True)


def test_rows_are_chosen_only_where_a_padded_value_has_them(device: str) -> None:
    index = np.array([3, 1, 5, 3, 0, 2, 8])
    for wide in (1, 3):
        operands = drawn(100, wide), drawn(100, 2), index
        agree(lambda x, y, i: F.pad(x[i], (0, 0, 0, 93)) + sums_of_rows(y), *operands, device=device)
        zeros = tb.zeros((93, wide), device=device)
        agree(lambda x, y, i, z=zeros: tb.concat([x[i], z]) * sums_of_rows(y), *operands, device=device)
        agree(lambda x, y, i: F.pad(x[i][:, 0], (0, 93)) + tb.sum(y, axis=1), *operands, device=device)


def test_a_largest_element_that_chooses_where_to_add(device: str) -> None:
    for n, rows in ((1, 1), (3, 1), (3, 4)):

        def added(y: Any, x: Any) -> Any:
            z = tb.concat([y, y])
            z[tb.astype(tb.max(x, axis=(0, 2)) > 0.1, tb.int64)[0]] += 0.5
            return z

        agree(added, drawn(n), drawn(5, rows, 129), device=device)


@pytest.mark.parametrize("shape", [(0, 1025), (0, 40), (0, 3, 70), (3, 0, 70), (5, 0)], ids=str)
def test_reductions_of_nothing(device: str, shape: tuple[int, ...]) -> None:
    for axis in range(len(shape)):
        agree(lambda x, axis=axis: tb.sum(x, axis=axis), np.zeros(shape, "f4"), device=device)
        agree(lambda x, axis=axis: tb.any(x > 0, axis=axis) * 1.0, np.zeros(shape, "f4"), device=device)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(7, 1), (1, 7), (1, 1)], ids=str)
def test_sums_of_sums_of_halves_over_one_element(device: str, dtype: str, shape: tuple[int, int]) -> None:
    def spread(x: Any) -> Any:
        v = tb.logsumexp(x if x.dtype is tb.float64 else tb.cast(x, dtype), axis=1)
        both = tb.concat([v, tb.var(v, axis=0, keepdims=True)])
        return both if x.dtype is tb.float64 else tb.cast(both, tb.float32)

    agree(spread, drawn(*shape), device=device, dtype=dtype)


def test_elements_chosen_of_rows_that_columns_are_normalized_of(device: str) -> None:
    def normalized(x: Any) -> Any:
        chosen = tb.take_along_axis(x, tb.argmax(x, axis=1, keepdims=True), axis=1)
        return tb.log_softmax(chosen * tb.ones_like(x), axis=0) * 2

    for shape in ((17, 257), (5, 64), (300, 3)):
        agree(normalized, drawn(*shape), device=device)


def test_an_element_of_a_sum_that_is_chosen_and_written(device: str) -> None:
    def total(x: Any, i: Any) -> Any:
        result = tb.expand_dims(tb.sum(x, axis=(0, 1, 2)), axis=0)
        result[i[0] % 1] += 0.5
        return result

    agree(total, drawn(7, 16, 33), np.array([3, 1]), device=device)


def test_sums_of_negatives(device: str) -> None:
    for shape in ((1, 16), (2, 17), (3, 31), (17, 48), (5, 100), (100, 5)):
        x = drawn(*shape)
        for negative in (lambda v: -v, lambda v: v * -2.0, lambda v: 0.5 - v, lambda v: -v * v):
            result = tb.compile(lambda v, f=negative: tb.sum(f(v), axis=1))(tb.asarray(x, device=device))
            terms = negative(wide(x))
            assert_within(result.numpy(), terms.sum(1), of_sum(terms, 1, "float32"))
        agree(lambda a, b: tb.sum(-(a - b) * tb.cos(a - b), axis=1), x[0], x[:, :1], device=device)
