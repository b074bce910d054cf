"""x[key] and x[key] = value against NumPy: basic keys, integer arrays, masks, and their mixtures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from case import Draw
from samples import Array, shapes

SHAPES = shapes(0, 4)


def counted(shape: tuple[int, ...]) -> Array:
    return np.arange(1, np.prod(shape, dtype=int) + 1, dtype=np.int32).reshape(shape)


def on(device: str, key: Any) -> Any:
    """Return the key with its arrays as tensors on the device."""
    if isinstance(key, tuple):
        return tuple(on(device, k) for k in key)
    return tb.asarray(key, device=device) if isinstance(key, np.ndarray) else key


@st.composite
def mixed_keys(draw: Draw, shape: tuple[int, ...]) -> Any:
    """Draw keys of integers, slices, new axes, integer arrays that broadcast, and masks."""
    common = draw(st.sampled_from([(), (1,), (2,), (3, 1), (0,)]))
    items: list[Any] = []
    axis = 0
    while axis < len(shape):
        n = shape[axis]
        kinds = ["slice", "slice", "none", "mask", *(["array", "int"] if n else [])]
        kind = draw(st.sampled_from(kinds))
        if kind == "none":
            items.append(None)
            continue
        if kind == "slice":
            items.append(draw(st.slices(n)))
        elif kind == "int":
            items.append(draw(st.integers(-n, n - 1)))
        elif kind == "array":
            own = common if draw(st.booleans()) else ()
            items.append(draw(hnp.arrays(np.int64, own, elements=st.integers(-n, n - 1))))
        else:
            items.append(_mask(draw, shape[axis : axis + 1], common))
        axis += 1
        if draw(st.integers(0, 5)) == 5:
            break
    return tuple(items) if len(items) != 1 or draw(st.booleans()) else items[0]


def _mask(draw: Draw, shape: tuple[int, ...], common: tuple[int, ...]) -> Array:
    """A mask with as many hits as other index arrays have elements, so that they broadcast together."""
    hits = min(common[-1] if common else 1, shape[0])
    places = draw(st.permutations(range(shape[0])))[:hits]
    x = np.zeros(shape, bool)
    x[list(places)] = True
    return x


def _agree(device: str, x: Array, key: Any) -> None:
    try:
        expected = x[key]
    except IndexError:
        with pytest.raises(tb.IndexingError):
            tb.asarray(x, device=device)[on(device, key)]
        return
    actual = tb.asarray(x, device=device)[on(device, key)]
    assert actual.shape == np.shape(expected)
    assert np.array_equal(actual.numpy(), expected)


@given(data=st.data())
def test_basic_keys(device: str, data: st.DataObject) -> None:
    x = counted(data.draw(SHAPES))
    _agree(device, x, data.draw(hnp.basic_indices(x.shape, allow_newaxis=True)))


@given(data=st.data())
def test_integer_arrays(device: str, data: st.DataObject) -> None:
    x = counted(data.draw(shapes(1, 3, least=1)))
    _agree(device, x, data.draw(hnp.integer_array_indices(x.shape)))


@given(data=st.data())
def test_masks(device: str, data: st.DataObject) -> None:
    x = counted(data.draw(SHAPES))
    rank = data.draw(st.integers(0, x.ndim))
    _agree(device, x, data.draw(hnp.arrays(bool, x.shape[:rank])))


@given(data=st.data())
def test_mixed_keys(device: str, data: st.DataObject) -> None:
    x = counted(data.draw(shapes(1, 4)))
    _agree(device, x, data.draw(mixed_keys(x.shape)))


def _assign(device: str, x: Array, key: Any, draw: Draw) -> None:
    try:
        target = x[key].shape
    except IndexError:
        return
    drop = draw(st.integers(0, len(target)))
    shape = tuple(1 if draw(st.booleans()) else n for n in target[drop:])
    value = -counted(shape)
    expected = x.copy()
    expected[key] = value
    actual = tb.asarray(x, device=device)
    alias = actual.clone()
    actual[on(device, key)] = draw(st.sampled_from([value, tb.asarray(value, device=device)]))
    repeats = any(
        isinstance(k, np.ndarray) and k.dtype != bool for k in (key if isinstance(key, tuple) else (key,))
    )
    if not repeats or value.size <= 1:
        assert np.array_equal(actual.numpy(), expected)
    assert np.array_equal(alias.numpy(), x)


@given(data=st.data())
def test_setting_basic_keys(device: str, data: st.DataObject) -> None:
    x = counted(data.draw(SHAPES))
    _assign(device, x, data.draw(hnp.basic_indices(x.shape, allow_newaxis=True)), data.draw)


@given(data=st.data())
def test_setting_mixed_keys(device: str, data: st.DataObject) -> None:
    x = counted(data.draw(shapes(1, 4)))
    _assign(device, x, data.draw(mixed_keys(x.shape)), data.draw)


def test_of_repeated_places_the_last_stays(device: str) -> None:
    x = tb.zeros((3,), device=device)
    x[[1, 1, 0, 1]] = tb.asarray([1.0, 2.0, 3.0, 4.0], device=device)
    assert x.tolist() == [3.0, 4.0, 0.0]
    y, values = tb.zeros((2,), device=device), tb.arange(6, dtype="float32", device=device)
    y[[0, 0, 0, 1, 1, 1]] = tb.flip(values)
    assert y.tolist() == [3.0, 0.0]
    places = tb.asarray([[0, 1], [1, 0], [1, 1]], device=device)
    y[places.T] = values.reshape(2, 3)
    assert y.tolist() == [4.0, 5.0]


def test_advanced_axes_apart_come_first(device: str) -> None:
    x = counted((2, 3, 4, 5))
    t, at = tb.asarray(x, device=device), np.array([[0, 1], [1, 0]])
    for key in (
        (0, slice(None), at),
        (at, slice(None), 0),
        (slice(None), at, at),
        (slice(None), at, None, at),
        (..., at, 0),
    ):
        assert np.array_equal(t[on(device, key)].numpy(), x[key])


def test_keys_of_the_host(device: str) -> None:
    x = counted((3, 4))
    t = tb.asarray(x, device=device)
    for key in (
        [2, 0],
        [[0], [1]],
        np.array([1]),
        np.int64(1),
        np.bool_(True),
        True,
        [],
        [True, False, True],
        (slice(None), [1, 1]),
    ):
        assert np.array_equal(t[key].numpy(), x[key])
    assert t[tb.asarray(1, device=device)].tolist() == x[1].tolist()
    assert t[tb.asarray(1, device=device) :].tolist() == x[1:].tolist()


BAD: dict[str, tuple[Any, str]] = {
    "past the end": (3, "index 3 is out of range for axis 0 of length 3"),
    "before the start": ((0, -5), "index -5 is out of range for axis 1 of length 4"),
    "too many": ((0, 0, 0), "3 indices are too many"),
    "two ellipses": ((..., ...), "one Ellipsis"),
    "a float": (1.5, "float is no index"),
    "text": ("a", "str is no index"),
    "a step of nothing": (slice(None, None, 0), "step cannot be zero"),
    "a slice of floats": (slice(0.5, None), "no slice"),
    "a mask of the wrong shape": (np.array([True, False]), r"boolean index of shape \(2,\)"),
    "an index of floats": (np.array([0.5]), "integer or bool"),
    "arrays that do not broadcast": ((np.array([0, 1]), np.array([0, 1, 2])), "broadcast"),
    "nothing": (object(), "object is no index"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_keys(device: str, name: str) -> None:
    key, text = BAD[name]
    x = tb.asarray(counted((3, 4)), device=device)
    for use in (lambda: x[on(device, key)], lambda: x.__setitem__(on(device, key), 0)):
        with pytest.raises(tb.IndexingError, match=text):
            use()
    assert np.array_equal(x.numpy(), counted((3, 4)))


@pytest.mark.parametrize("at", [[0, 3], [-4], [[1], [7]]])
def test_index_tensors_out_of_range(device: str, at: Any) -> None:
    x = tb.asarray(counted((3, 4)), device=device)
    index = tb.asarray(at, device=device)
    with pytest.raises(IndexError, match="out of range"):
        x[index].numpy()
    with pytest.raises(IndexError, match="out of range"):
        _with_zeros(x, index).numpy()
    assert np.array_equal(x.numpy(), counted((3, 4)))


def _with_zeros(x: tb.Tensor, index: tb.Tensor) -> tb.Tensor:
    y = x.clone()
    y[index] = 0
    return y


def test_a_value_that_does_not_fit(device: str) -> None:
    x = tb.asarray(counted((3, 4)), device=device)
    for key, value in ((0, [1, 2, 3]), (slice(None), np.ones((5, 3, 4))), ((slice(None), [0, 1]), [1, 2, 3])):
        with pytest.raises(tb.ShapeError, match="does not broadcast to shape"):
            x[key] = value
    with pytest.raises(tb.DtypeError, match=r"1\.5"):
        x[0, 0] = 1.5
    with pytest.raises(tb.DtypeError):
        x[0] = "text"
    assert np.array_equal(x.numpy(), counted((3, 4)))


def test_nonzero(device: str) -> None:
    for shape in ((5,), (2, 3), (2, 0), (0,)):
        x = counted(shape) % 2
        places = tb.nonzero(tb.asarray(x, device=device))
        assert [f.tolist() for f in places] == [n.tolist() for n in np.nonzero(x)]
    with pytest.raises(tb.ShapeError, match="0-dimensional"):
        tb.nonzero(tb.asarray(1, device=device))


def test_the_error_names_the_index_that_was_given(device: str) -> None:
    x = tb.zeros((6,), device=device)
    with pytest.raises(tb.IndexingError, match=r"index .*-7\b.* of length 6|of length 6.*-7\b"):
        x[tb.asarray([1, -7], device=device)].numpy()
    with pytest.raises(tb.IndexingError, match=r"index 6 is out of range for .* of length 6"):
        x[tb.asarray([1, 6], device=device)].numpy()


@pytest.mark.parametrize("cast", [True, False], ids=["cast", "counted"])
def test_numbers_of_rows_that_begin_anew(device: str, cast: bool) -> None:
    """A gather of one element per row and its gradient: 8 bits have numbers for 256 rows."""
    rng = np.random.default_rng(3)
    numbers = rng.integers(-9, 9, (300, 9)).astype(np.float32)
    columns = np.arange(300) % 9

    def chosen(x: tb.Tensor, columns: tb.Tensor) -> tuple[Any, Any]:
        x = x.clone().requires_grad_()
        kind = tb.int64 if cast else tb.uint8
        rows = tb.arange(300, dtype=kind, device=x.device).to("uint8")
        result = x[rows, columns]
        tb.sum(result * result).backward()
        return result.detach(), x.grad

    places = np.arange(300) % 256, columns
    slope = np.zeros_like(numbers)
    np.add.at(slope, places, 2 * numbers[places])
    x, i = tb.asarray(numbers, device=device), tb.asarray(columns, device=device)
    for value in (chosen(x, i), tb.compile(chosen)(x, i)):
        np.testing.assert_array_equal(value[0].numpy(), numbers[places])
        np.testing.assert_array_equal(value[1].numpy(), slope)
