"""Reductions, scans, sorts, indexing and products above the size of compiled code, against NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus_cpu.eager.kernels_native import MEMORY_BOUND_SIZE

from error_bounds import assert_within, gamma, of_product, of_sum, unit

SHAPES = {
    "rows": (64, 4099), "columns": (4099, 64), "few columns": (90001, 3), "one row": (1, 270003),
    "one column": (270003, 1),
    "three": (20, 300, 50), "middle": (3, 5200, 17), "wide": (7, 40001),
    "just below": (MEMORY_BOUND_SIZE // 64 - 1, 64), "flat": (MEMORY_BOUND_SIZE + 1,),
}  # fmt: skip


@pytest.fixture(params=[1, 4], ids=["one thread", "four threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = tb.get_num_threads()
    tb.set_num_threads(request.param)
    yield request.param
    tb.set_num_threads(before)


def numbers(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    if dtype.startswith("float"):
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(-100 if dtype.startswith("int") else 0, 100, shape).astype(dtype)


def put(a: Any) -> tb.Tensor:
    return tb.asarray(a, device="cpu", copy=False)


def axes_of(rank: int) -> list[Any]:
    return [None, *range(rank), *([(0, rank - 1)] if rank > 1 else [])]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "float16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_reductions(shape: str, dtype: str, order: Any) -> None:
    a = np.asarray(numbers(SHAPES[shape], dtype), order=order)
    x = put(a)
    wide = (
        a.astype(np.float64)
        if a.dtype.kind == "f"
        else a.astype(np.uint64 if a.dtype.kind == "u" else np.int64)
    )
    room = {"float16": 2e-2, "float32": 2e-5, "float64": 1e-12}.get(dtype, 0)
    for axis in axes_of(a.ndim):
        got = tb.sum(x, axis=axis).numpy()
        scale = np.abs(wide).sum(axis)
        assert (
            np.abs(got.astype(wide.dtype) - wide.sum(axis))
            <= room * np.sqrt(scale + 1) + room * np.abs(wide.sum(axis))
        ).all()
        for name in ("max", "min"):
            np.testing.assert_array_equal(
                getattr(tb, name)(x, axis=axis, keepdims=True).numpy(),
                getattr(np, name)(a, axis, keepdims=True),
            )
        if axis is None or isinstance(axis, int):
            for name in ("argmax", "argmin"):
                got = getattr(tb, name)(x, axis=axis).numpy()
                np.testing.assert_array_equal(got, getattr(np, name)(np.ascontiguousarray(a), axis))


@pytest.mark.parametrize("place", [0, 1, 4000])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_reductions_of_special_values(special: float, place: int) -> None:
    for shape in ((4099, 64), (64, 4099)):
        a = numbers(shape)
        a.reshape(-1)[place::50021] = special
        x = put(a)
        for axis in (0, 1, None):
            np.testing.assert_array_equal(tb.max(x, axis=axis).numpy(), a.max(axis))
            np.testing.assert_array_equal(tb.min(x, axis=axis).numpy(), a.min(axis))
            np.testing.assert_array_equal(tb.argmax(x, axis=axis).numpy(), a.argmax(axis))
            np.testing.assert_array_equal(tb.argmin(x, axis=axis).numpy(), a.argmin(axis))
            assert_within(tb.sum(x, axis=axis).numpy(), a.astype("f8").sum(axis), of_sum(a, axis, "float32"))


def test_the_first_of_equal_elements_is_taken() -> None:
    for shape in ((5000, 64), (64, 5000), (320000,)):
        a = numbers(shape, "int32") % 3
        for axis in range(len(shape)):
            np.testing.assert_array_equal(tb.argmax(put(a), axis=axis).numpy(), a.argmax(axis))
            b = np.where(a == 0, -0.0, 0.0).astype(np.float32)
            np.testing.assert_array_equal(tb.argmin(put(b), axis=axis).numpy(), b.argmin(axis))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("shape", SHAPES)
def test_running_sums(shape: str, dtype: str) -> None:
    a = numbers(SHAPES[shape], "uint8").astype(bool) if dtype == "bool" else numbers(SHAPES[shape], dtype)
    for axis in range(a.ndim):
        got = tb.cumulative_sum(put(a), axis=axis).numpy()
        wanted = a.cumsum(axis, dtype="f8" if a.dtype.kind == "f" else None)
        if a.dtype.kind == "f":
            assert_within(got, wanted, gamma(a.shape[axis], dtype) * np.abs(a.astype("f8")).cumsum(axis))
        else:
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", ["rows", "columns", "wide", "three"])
def test_softmax_and_layer_norm(shape: str, dtype: str) -> None:
    a = numbers(SHAPES[shape], dtype) * 20
    a.reshape(-1)[:2] = [np.inf, -np.inf]
    a[-1, ..., :5] = -np.inf
    wide = a.astype(np.float64)
    for axis in range(a.ndim):
        with np.errstate(all="ignore"):
            powers = np.exp(wide - wide.max(axis, keepdims=True))
            wanted = powers / powers.sum(axis, keepdims=True)
            # What is rounded before the exponential is of the size of the exponent; small powers are flushed.
            exponent = np.where(np.isfinite(wide), np.abs(wide - wide.max(axis, keepdims=True)), 0)
            share = gamma(a.shape[axis] + 8, dtype) + 2 * unit(dtype) * exponent
            room = share * wanted + np.finfo(dtype).tiny
            assert_within(tb.softmax(put(a), axis).numpy(), wanted, room)
            logs = wide - wide.max(axis, keepdims=True) - np.log(powers.sum(axis, keepdims=True))
            assert_within(tb.log_softmax(put(a), axis).numpy(), logs, share + gamma(2, dtype) * np.abs(logs))
    b = numbers(SHAPES[shape], dtype) * 3 + 100
    wide = b.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    wanted = centred / deviation
    got = tb.nn.functional.layer_norm(put(b), b.shape[-1:]).numpy()
    # The mean is off by as much as a sum of numbers about 100, in eight parts at least; all else is relative.
    mean = gamma(b.shape[-1] // 8 + 8, dtype) * np.abs(wide).mean(-1, keepdims=True)
    assert_within(got, wanted, mean / deviation + gamma(b.shape[-1] // 8 + 8, dtype) * np.abs(wanted))


@pytest.mark.parametrize("dtype", ["float32", "uint8", "complex128", "float64", "bool"])
def test_gather(dtype: str, threads: int) -> None:
    rng = np.random.default_rng(0)
    a = numbers((500, 400), "float64").astype(dtype)
    rows, columns = rng.integers(0, 500, 200000), rng.integers(0, 400, 200000)
    x = put(a)
    np.testing.assert_array_equal(tb.gather(x, put(rows), put(columns)).numpy(), a[rows, columns])
    np.testing.assert_array_equal(tb.gather(x, put(rows[:1000])).numpy(), a[rows[:1000]])
    np.testing.assert_array_equal(tb.gather(put(a.T), put(columns[:1000])).numpy(), a.T[columns[:1000]])
    square = rows.reshape(400, 500)
    np.testing.assert_array_equal(
        tb.gather(x, put(square.T)).numpy(), a[square.T]
    ) if dtype == "uint8" else None
    for axis, length in ((0, 500), (1, 400)):
        along = rng.integers(-length, length, (500, 400))
        np.testing.assert_array_equal(
            tb.take_along_axis(x, put(along), axis=axis).numpy(), np.take_along_axis(a, along, axis)
        )


def test_an_index_out_of_range_is_told() -> None:
    x, rows = put(numbers((500, 400))), np.zeros(1000, np.int64)
    for wrong in (500, -1):
        rows[777] = wrong
        with pytest.raises(
            tb.IndexingError, match=r"gather: index (500|-1) is out of range for axis 0 of length 500"
        ):
            tb.gather(x, put(rows))
        with pytest.raises(tb.IndexingError, match=r"scatter: index (500|-1) is out of range for axis 0"):
            tb.scatter(x, put(numbers((1000, 400))), put(rows), mode="add")
    along = np.zeros((500, 400), np.int64)
    along[3, 4] = -401
    with pytest.raises(tb.IndexingError, match="of length 400"):
        tb.take_along_axis(x, put(along), axis=1)
    with pytest.raises(tb.IndexingError, match="of length 400"):
        tb.scatter_along_axis(x, put(along), x, axis=1)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize("mode", ["set", "add", "multiply", "min", "max"])
def test_scatter(mode: str, dtype: str, threads: int) -> None:
    rng = np.random.default_rng(0)
    combine = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}

    def wanted(target: Any, where: Any, values: Any) -> Any:
        out = target.copy()
        if mode == "set":
            for k in range(len(values)):
                out[tuple(index[k] for index in where)] = values[k]
        else:
            combine[mode].at(out, where, values)
        return out

    flat, values = (
        numbers((3001,), dtype),
        numbers((150000,), dtype, 1) if mode != "multiply" else np.ones(150000, dtype),
    )
    places = rng.integers(0, 3001, 150000)
    got = tb.scatter(put(flat), put(values), put(places), mode=mode).numpy()
    np.testing.assert_array_equal(got, wanted(flat, (places,), values))
    table, rows = (
        numbers((100, 300), dtype),
        numbers((600, 300), dtype, 1) if mode != "multiply" else np.ones((600, 300), dtype),
    )
    places = rng.integers(0, 100, 600)
    np.testing.assert_array_equal(
        tb.scatter(put(table), put(rows), put(places), mode=mode).numpy(), wanted(table, (places,), rows)
    )
    large, at = numbers((400, 500), dtype), rng.integers(-500, 500, (400, 500))
    values = numbers((400, 500), dtype, 2) if mode != "multiply" else np.ones((400, 500), dtype)
    got = tb.scatter_along_axis(put(large), put(at), put(values), axis=1, mode=mode).numpy()
    i, j = np.indices(at.shape)
    again = wanted(large, (i.ravel(), at.ravel()), values.ravel())
    np.testing.assert_array_equal(got, again)
    thin, deep = rng.integers(0, 500, (400, 500, 1)), large.reshape(400, 500, 1)
    got = tb.scatter_along_axis(
        put(deep), put(thin), put(values.reshape(deep.shape)), axis=1, mode=mode
    ).numpy()
    np.testing.assert_array_equal(got[..., 0], wanted(large, (i.ravel(), thin.ravel()), values.ravel()))
    down = rng.integers(0, 400, (400, 500))
    got = tb.scatter_along_axis(put(large), put(down), put(values), axis=0, mode=mode).numpy()
    np.testing.assert_array_equal(got, wanted(large, (down.ravel(), j.ravel()), values.ravel()))


@pytest.mark.parametrize("mode", ["set", "add", "multiply", "min", "max"])
@pytest.mark.parametrize(
    ("target", "value", "kernels"),
    [  # of storing, and of combining, which NumPy does one element at a time
        pytest.param((40,), (3000,), ("numpy", "numpy"), id="a few numbers"),
        pytest.param((40,), (MEMORY_BOUND_SIZE // 4,), ("numpy", "native"), id="numbers"),
        pytest.param((40, 8), (100, 8), ("numpy", "numpy"), id="a few rows"),
        pytest.param((40, 8), (MEMORY_BOUND_SIZE // 128, 8), ("numpy", "native"), id="rows"),
        pytest.param((40, 8), (4, MEMORY_BOUND_SIZE // 512, 8), ("numpy", "native"), id="rows of a table"),
        pytest.param((40, 64), (MEMORY_BOUND_SIZE // 64, 64), ("native", "native"), id="many rows"),
    ],
)
def test_scatters_that_combine_are_compiled_from_smaller_sizes_on(
    mode: str, target: tuple[int, ...], value: tuple[int, ...], kernels: tuple[str, str]
) -> None:
    places = np.random.default_rng(0).integers(0, 40, value[:-1] if len(target) > 1 else value)
    x, rows = numbers(target), numbers(value, seed=1)
    wanted = x.copy()
    if mode == "set":
        for place, row in zip(places.ravel(), rows.reshape(-1, *target[1:]), strict=True):
            wanted[place] = row
    else:
        ufunc = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}[mode]
        ufunc.at(wanted, places, rows)
    call = put(x), put(rows), put(places)
    np.testing.assert_array_equal(tb.scatter(*call, mode=mode).numpy(), wanted)
    assert f"kernel {kernels[mode != 'set']!r}" in str(tb.explain(tb.scatter, *call, mode=mode))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_sorts(shape: str, dtype: str, threads: int) -> None:
    a = numbers(SHAPES[shape], dtype)
    if dtype.startswith("float"):
        a.reshape(-1)[::1000] = np.nan
        a.reshape(-1)[5::1000] = -np.inf
    for axis in range(a.ndim):
        np.testing.assert_array_equal(tb.sort(put(a), axis=axis).numpy(), np.sort(a, axis))
        np.testing.assert_array_equal(
            tb.sort(put(a), axis=axis, descending=True).numpy(), np.flip(np.sort(a, axis), axis)
        )
        np.testing.assert_array_equal(
            tb.argsort(put(a), axis=axis).numpy(), np.argsort(a, axis, kind="stable")
        )


@pytest.mark.parametrize("size", [17_000, 300_000])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sorts_of_halves_with_many_equal_ones(dtype: str, size: int) -> None:
    """NumPy's own sort of float16 by AVX-512 leaves some of them out of order."""
    drawn = np.round(np.random.default_rng(4).standard_normal(size) * 10).astype(np.float32)
    x = put(drawn).to(getattr(tb, dtype))
    np.testing.assert_array_equal(tb.sort(x).to(tb.float32).numpy(), np.sort(drawn))
    backwards = tb.sort(x.reshape(100, -1), axis=0, descending=True)
    assert backwards.dtype == x.dtype
    np.testing.assert_array_equal(
        backwards.to(tb.float32).numpy(), np.flip(np.sort(drawn.reshape(100, -1), axis=0), 0)
    )


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int8"])
def test_reshapes_that_copy(dtype: str) -> None:
    a = numbers((300, 20, 50), "float32").astype(dtype)
    np.testing.assert_array_equal(
        put(a.transpose(2, 0, 1)).reshape((-1, 10)).numpy(), a.transpose(2, 0, 1).reshape(-1, 10)
    )
    np.testing.assert_array_equal(put(a[::-1, :, ::2]).reshape((-1,)).numpy(), a[::-1, :, ::2].reshape(-1))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_integer_products_wrap_as_the_dtype_does(dtype: str) -> None:
    info, rng = np.iinfo(dtype), np.random.default_rng(0)
    for m, k, n in ((70, 300, 60), (33, 2500, 17)):
        a = rng.integers(info.min, info.max, (m, k), dtype, endpoint=True)
        b = rng.integers(info.min, info.max, (k, n), dtype, endpoint=True)
        a[0], b[:, 0] = info.min, info.min
        wanted = (a.astype(np.int64) @ b.astype(np.int64)).astype(dtype)
        np.testing.assert_array_equal((put(a) @ put(b)).numpy(), wanted)
        np.testing.assert_array_equal((put(np.stack([a, a])) @ put(b)).numpy()[1], wanted)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_products_of_narrow_floats_round_once(dtype: str) -> None:
    a, b = numbers((200, 300)), numbers((300, 100))
    x, y = put(a).to(getattr(tb, dtype)), put(b).to(getattr(tb, dtype))
    wanted = (x.numpy().astype("f4") @ y.numpy().astype("f4")).astype(x.numpy().dtype)
    np.testing.assert_array_equal((x @ y).numpy(), wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stacks_of_matrices(dtype: str, threads: int) -> None:
    for left, right in (
        ((9, 30, 20), (9, 20, 40)),
        ((1, 65, 300), (8, 300, 201)),
        ((2, 4, 7, 5), (2, 4, 5, 6)),
    ):
        a, b = numbers(left, dtype), numbers(right, dtype, 1)
        exact, room = (
            a.astype("f8") @ b.astype("f8"),
            2 * of_product(a, b, dtype),
        )  # float64 is its own reference
        assert_within((put(a) @ put(b)).numpy(), exact, room)
        turned = np.ascontiguousarray(b.swapaxes(-1, -2)).swapaxes(-1, -2)
        assert_within((put(a) @ put(turned)).numpy(), exact, room)
        turned = np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2)
        assert_within((put(turned) @ put(b[..., ::-1])).numpy(), exact[..., ::-1], room[..., ::-1])


def direct(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Convolve by the definition."""
    x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    size = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(x.shape[2:], w.shape[2:], stride, dilation, strict=True)
    ]
    out = np.zeros((x.shape[0], w.shape[0], *size))
    per, own = w.shape[0] // groups, w.shape[1]
    for place in np.ndindex(*w.shape[2:]):
        box = tuple(
            slice(a * d, a * d + (n - 1) * s + 1, s)
            for a, d, n, s in zip(place, dilation, size, stride, strict=True)
        )
        part = x[(slice(None), slice(None), *box)]
        for g in range(groups):
            rows = w[(slice(g * per, (g + 1) * per), slice(None), *place)]
            out[:, g * per : (g + 1) * per] += np.einsum(
                "oc,nc...->no...", rows, part[:, g * own : (g + 1) * own]
            )
    return out


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("x", "w", "stride", "padding", "dilation", "groups"),
    [
        ((2, 3, 20, 30), (8, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
        ((2, 4, 21, 50), (6, 2, 3, 5), (2, 3), (0, 2), (1, 1), 2),
        ((3, 6, 9, 8), (12, 1, 2, 3), (1, 2), (2, 1), (2, 1), 6),
        ((1, 5, 200), (7, 5, 9), (3,), (4,), (2,), 1),
        ((2, 300, 3, 3), (5, 300, 1, 1), (1, 1), (0, 0), (1, 1), 1),
        ((1, 1, 40, 41), (1, 1, 40, 7), (1, 1), (39, 6), (1, 1), 1),
        ((2, 2, 5, 6, 7), (4, 2, 2, 3, 2), (1, 2, 1), (1, 0, 1), (1, 1, 2), 1),
    ],
)
def test_convolution(
    x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int, dtype: str
) -> None:
    a, b = numbers(x, dtype), numbers(w, dtype, 1)
    function = getattr(tb, f"conv{len(stride)}d")
    got = function(put(a), put(b), stride=stride, padding=padding, dilation=dilation, groups=groups).numpy()
    wide, terms = (a.astype("f8"), b.astype("f8")), int(np.prod(w[1:]))
    size = direct(*map(np.abs, wide), stride, padding, dilation, groups)
    bound = 2 * gamma(terms + 2, dtype) * size  # float64 is its own reference
    assert_within(got, direct(*wide, stride, padding, dilation, groups), bound)


def test_windows_are_added_up_where_they_lie() -> None:
    x = put(numbers((4, 8, 30, 31))).requires_grad_()
    tb.sum(
        tb.conv2d(x, tb.ones((5, 8, 3, 2), device="cpu"), stride=(2, 1), padding=1, dilation=(1, 2)) * 2
    ).backward()
    reach = np.zeros((32, 33))
    for i in range(3):
        for j in range(2):
            reach[i : i + 29 : 2, 2 * j : 2 * j + 31] += 10
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), np.broadcast_to(reach[1:-1, 1:-1], x.shape))


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    a, rng = numbers((3000, 200)), np.random.default_rng(0)
    x, places = put(a), put(rng.integers(0, 50, 3000))
    before, answers = tb.get_num_threads(), []
    for count in (1, 2, 3, 7):
        tb.set_num_threads(count)
        scattered = tb.scatter(tb.zeros((50, 200), device="cpu"), x, places, mode="add")
        results = [
            tb.sum(x),
            tb.sum(x, axis=0),
            tb.sum(x, axis=1),
            tb.cumulative_sum(x.reshape((-1,))),
            tb.softmax(x),
            scattered,
        ]
        answers.append([r.numpy().tobytes() for r in results])
    tb.set_num_threads(before)
    assert all(f == answers[0] for f in answers)
