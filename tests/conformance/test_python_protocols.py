"""Tensors as Python and array libraries meet them: iteration, formatting, sequences, Python's types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorbus as tb


@pytest.mark.parametrize("shape", [(0,), (0, 2), (1,), (5,), (4, 3), (3, 0)])
def test_iterating_yields_the_rows(shape: tuple[int, ...], device: str) -> None:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    rows = list(tb.asarray(values, device=device))
    assert [row.tolist() for row in rows] == values.tolist()
    assert all(row.shape == shape[1:] and row.device.type == device for row in rows)


def test_iterating_gives_views(device: str) -> None:
    x = tb.asarray([1.0, 2.0, 3.0], device=device)
    rows = iter(x)
    first = next(rows)
    x += 10
    assert [row.item() for row in (first, *rows)] == [11.0, 12.0, 13.0]


def test_gradients_flow_through_iteration(device: str) -> None:
    x = tb.asarray([1.0, 2.0, 3.0], device=device).requires_grad_()
    a, b, c = x
    (a * 1 + b * 2 + c * c).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 2.0, 6.0]


def test_numpy_asks_whether_a_tensor_is_iterable(device: str) -> None:
    assert np.iterable(tb.asarray([1.0], device=device))
    assert not np.iterable(tb.asarray(1.0, device=device))


def test_one_number_is_formatted_as_a_number(device: str) -> None:
    assert f"{tb.asarray(1.5, device=device):.3f} {tb.asarray(7, device=device):>3}" == "1.500   7"
    with pytest.raises(TypeError, match="format"):
        format(tb.asarray([1.5], device=device), ".3f")


COUNTS: dict[str, tuple[Any, Any]] = {
    "topk": (lambda x, n: tb.topk(x, n).values, [[3, 2], [7, 6]]),
    "kthvalue": (lambda x, n: tb.kthvalue(x, n).values, [1, 5]),
    "chunk": (lambda x, n: tb.concat(tb.chunk(x, n, axis=1)), [[0, 1], [4, 5], [2, 3], [6, 7]]),
    "split": (lambda x, n: tb.concat(tb.split(x, n, axis=1)), [[0, 1], [4, 5], [2, 3], [6, 7]]),
    "diagonal": (lambda x, n: tb.diagonal(x, n), [2, 7]),
    "diag": (lambda x, n: tb.diag(x[0, :2], n), [[0, 0, 0, 0], [0, 0, 0, 1], [0] * 4, [0] * 4]),
    "unfold": (lambda x, n: tb.unfold(x, 1, n, n)[0], [[0, 1], [2, 3]]),
}
"""Functions of a 2x4 matrix that take a number of things, with what they return for two."""


@pytest.mark.parametrize("name", COUNTS)
def test_a_tensor_of_one_integer_is_a_number_of_things(name: str, device: str) -> None:
    x = tb.reshape(tb.arange(8, device=device), (2, 4))
    call, expected = COUNTS[name]
    actual = call(x, tb.asarray(2, device=device))
    assert actual.tolist() == expected
    assert all(type(n) is int for n in actual.shape)


SEQUENCES: dict[str, tuple[Any, tb.DType]] = {
    "a NumPy scalar": ([np.int32(1), np.int32(2)], tb.int32),
    "beside a Python number": ([np.float16(1), 2], tb.float16),
    "of two dtypes": ([[np.int8(1)], [np.uint8(2)]], tb.int16),
    "an integer beside a fraction": ([np.int32(1), 2.5], tb.float32),
    "NumPy's float64 is Python's float": ([np.float64(1.0), np.float64(2.5)], tb.float32),
    "rows of arrays": ([np.array([1, 2], np.int32), [3, 4]], tb.int32),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_parts_of_a_sequence_keep_their_dtype(name: str, device: str) -> None:
    operand, dtype = SEQUENCES[name]
    array = tb.asarray(operand, device=device)
    assert (array.dtype, array.tolist()) == (dtype, np.asarray(operand).tolist())


def test_a_sequence_of_tensors(device: str) -> None:
    parts = [
        tb.asarray([1, 2], dtype="int32", device=device),
        tb.asarray([3, 4], dtype="int32", device=device),
    ]
    operand = tb.asarray(parts, device=device)
    assert (operand.dtype, operand.tolist()) == (tb.int32, [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("kind", "dtype"), [(bool, tb.bool), (int, tb.int64), (float, tb.float64), (complex, tb.complex128)]
)
def test_python_types_name_dtypes(kind: type, dtype: tb.DType, device: str) -> None:
    assert tb.zeros(2, dtype=kind, device=device).dtype is dtype
    with pytest.raises(tb.DtypeError, match="no dtype is called"):
        tb.zeros(2, dtype=str, device=device)


@pytest.mark.parametrize(
    ("own", "other"), [("int32", "int64"), ("float32", "float64"), ("float16", "float32")]
)
def test_in_place_keeps_the_dtype_of_one_kind(own: str, other: str, device: str) -> None:
    x = tb.asarray([1, 2], dtype=own, device=device)
    x += tb.asarray([3, 4], dtype=other, device=device)
    assert (str(x.dtype), x.tolist()) == (own, [4, 6])


def test_in_place_refuses_another_kind(device: str) -> None:
    x = tb.asarray([1, 2], dtype="uint8", device=device)
    for other in (tb.asarray([1, 2], dtype="int8", device=device), 0.5):
        with pytest.raises(tb.DtypeError, match="an in-place change keeps"):
            x += other
    assert x.tolist() == [1, 2]


def test_a_complex_number_keeps_the_precision_of_a_tensor(device: str) -> None:
    x = tb.asarray([1.0, 2.0], device=device)
    tb.set_default_dtype(tb.float64)
    try:
        assert (x * 1j).dtype is tb.complex64
        assert tb.linalg.pinv(x[:, None]).dtype is tb.float32
        assert tb.erfinv(x).dtype is tb.float32
    finally:
        tb.set_default_dtype(tb.float32)


def test_views(device: str) -> None:
    x = tb.arange(6.0, device=device)
    assert x.view(2, 3).shape == x.view((2, 3)).shape == (2, 3)
    assert x.view(tb.float32).tolist() == x.tolist()
    assert x.view(tb.complex64).tolist() == [1j, 2 + 3j, 4 + 5j]
    assert x.view(tb.complex64).view(tb.float32).tolist() == x.tolist()
    with pytest.raises(tb.DtypeError, match=r"float32\[6\] is not seen as int32"):
        x.view(tb.int32)
    with pytest.raises(tb.ShapeError, match="without axes"):
        x[0].view(tb.complex64)


def test_a_range_of_complex_numbers(device: str) -> None:
    assert tb.arange(1, 4, dtype="complex64", device=device).tolist() == [1, 2, 3]
