"""Values in and out of every device: Python data, NumPy, buffers, DLPack, and every other device."""

from __future__ import annotations

import array as buffers
import copy
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from hypothesis import given
from hypothesis import strategies as st
from tensorbus.dtypes import definition as dt

from agreement import same
from installed import available, lacks
from installed import dtypes as dtypes_of
from samples import LAYOUTS, Array, arrays, native, place, shapes

NAMES = [d.name for d in dt.ALL]


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_there_and_back(device: str, name: str, data: st.DataObject) -> None:
    dtype = dt.BY_NAME[name]
    if lacks(device, dtype):
        return
    x = data.draw(arrays(shapes(), dtype))
    t = place(x, device, data.draw(st.sampled_from(LAYOUTS)))
    assert (t.shape, t.dtype, t.ndim, t.size, t.nbytes) == (x.shape, dtype, x.ndim, x.size, x.nbytes)
    assert same(t.numpy(), x)
    listed = t.tolist()
    again = tb.asarray(listed, dtype=dtype, device=device)
    assert again.shape == x.shape or 0 in x.shape
    assert again.size == 0 or same(again.numpy(), x)
    if x.size == 1:
        assert same(np.array(t.item()).astype(x.dtype), x.reshape(()))


@pytest.mark.parametrize("other", available())
@pytest.mark.parametrize("name", NAMES)
def test_from_one_device_to_another(device: str, other: str, name: str) -> None:
    dtype = dt.BY_NAME[name]
    if lacks(device, dtype):
        return
    x = (np.arange(12) % 5).reshape(3, 4).astype(native(dtype))
    t = place(x, device, "permuted")
    if dtype not in dtypes_of(other):
        with pytest.raises(tb.UnsupportedDtypeError, match=f"{other}:0 has no {name}"):
            t.to(other)
    else:
        moved = t.to(other)
        assert str(moved.device) == f"{other}:0"
        assert same(moved.numpy(), x)
        assert same(moved.to(device).numpy(), x)
    assert same(t.numpy(), x)


@pytest.mark.parametrize("other", available())
def test_gradients_cross_devices(device: str, other: str) -> None:
    x = tb.asarray([1.0, 2.0], device=device).requires_grad_()
    y = x.to(other)
    (y * y).sum().backward()
    assert x.grad is not None
    assert x.grad.device == x.device
    assert x.grad.tolist() == [2.0, 4.0]


def test_what_is_so_already_is_the_tensor_itself_unless_a_copy_is_wanted(device: str) -> None:
    x = tb.asarray([1.0, 2.0], device=device)
    same = (
        x.to(device), x.to(tb.float32), x.to(device, tb.float32), x.to(x), x.to_device(x.device), x.float(),
        x.type_as(x), x.contiguous(), tb.asarray(x), tb.asarray(x, copy=False),
        tb.asarray(x, dtype=tb.float32, device=device), tb.astype(x, tb.float32, copy=False),
    )  # fmt: skip
    assert all(y is x for y in same)
    for y in (
        x.to(device, copy=True), x.clone(), +x, tb.asarray(x, copy=True), tb.astype(x, tb.float32),
        tb.tensor(x), x.new_tensor(x), copy.copy(x), copy.deepcopy(x),
    ):  # fmt: skip
        y += 1
        y[0] = 9.0
        assert x.tolist() == [1.0, 2.0]


def test_a_parameter_is_a_view_of_what_it_is_made_of(device: str) -> None:
    x = tb.ones((2,), device=device)
    p = tb.nn.Parameter(x)
    with tb.no_grad():
        p.mul_(3)
    x[0] = 7
    assert (x.tolist(), p.tolist(), p.is_leaf, x.requires_grad) == ([7, 3], [7, 3], True, False)
    (p * x).sum().backward()
    assert p.grad is not None
    assert p.grad.tolist() == [7, 3]
    layer = tb.nn.Linear(2, 1, bias=False, device=device)
    layer.load_state_dict({"weight": x.reshape(1, 2)})
    optimizer = tb.optim.SGD(layer.parameters(), lr=1.0, momentum=0.5)
    layer(x).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    other = tb.optim.SGD(layer.parameters(), lr=1.0, momentum=0.5)
    other.load_state_dict(state)
    before = [t.tolist() for s in state["state"].values() for t in s.values() if isinstance(t, tb.Tensor)]
    other.step()
    after = [t.tolist() for s in state["state"].values() for t in s.values() if isinstance(t, tb.Tensor)]
    assert x.tolist() == [7, 3]
    assert before == after != []


def test_dtype_and_device_at_once(device: str) -> None:
    x = tb.asarray([1.0, 300.0], device="cpu", dtype="float64")
    moved = x.to(device, "float32")
    assert (moved.dtype, str(moved.device), moved.tolist()) == (tb.float32, f"{device}:0", [1.0, 300.0])
    assert x.to(tb.zeros((1,), dtype="int32", device=device)).tolist() == [1, 300]


SOURCES: dict[str, tuple[Any, str]] = {
    "a C array": (np.arange(6, dtype=np.int16).reshape(2, 3), "int16"),
    "a Fortran array": (np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)), "int16"),
    "a strided view": (np.arange(24, dtype=np.int32).reshape(2, 12)[:, ::2][::-1], "int32"),
    "a broadcast view": (np.broadcast_to(np.arange(3, dtype=np.int8), (2, 3)), "int8"),
    "swapped bytes": (np.arange(6, dtype=">i4" if np.little_endian else "<i4").reshape(2, 3), "int32"),
    "swapped floats": (np.arange(6, dtype=np.dtype("f4").newbyteorder()), "float32"),
    "a scalar of NumPy": (np.int16(7), "int16"),
    "no elements": (np.zeros((2, 0, 3), np.uint8), "uint8"),
    "bools": (np.array([True, False]), "bool"),
    "a buffer": (buffers.array("h", [1, -2, 3]), "int16"),
    "bytes": (b"\x01\x02\xff", "uint8"),
    "a cast buffer": (memoryview(bytearray(range(8))).cast("B", (2, 4)), "uint8"),
    "a list of rows": ([np.arange(3, dtype=np.int64), np.arange(3, dtype=np.int64)], "int64"),
    "mixed numbers": ([1, 2.5, True], "float32"),
    "a range": (range(4), "int64"),
    "large integers": ([1 << 63], "uint64"),
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_asarray(device: str, name: str) -> None:
    source, dtype = SOURCES[name]
    if lacks(device, dt.BY_NAME[dtype]):
        return
    actual = tb.asarray(source, device=device)
    assert actual.dtype.name == dtype
    expected = np.frombuffer(source, np.uint8) if isinstance(source, bytes) else np.asarray(source)
    assert np.array_equal(actual.numpy(), expected.astype(native(actual.dtype)))
    assert actual.shape == expected.shape


def test_arrays_are_copied(device: str) -> None:
    source = np.arange(4, dtype=np.float32)
    frozen = np.arange(4, dtype=np.float32)
    frozen.flags.writeable = False
    results = [
        tb.asarray(source, device=device),
        tb.tensor(source, device=device),
        tb.asarray(frozen, device=device),
    ]
    source[:] = -1
    for t in results:
        assert t.tolist() == [0.0, 1.0, 2.0, 3.0]
        t += 1
    assert source.tolist() == [-1.0] * 4
    assert frozen.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_asarray_with_a_dtype(device: str) -> None:
    assert tb.asarray(np.array([1.7, -1.7]), dtype="int32", device=device).tolist() == [1, -1]
    assert tb.asarray(np.array([1, 0]), dtype="bool", device=device).tolist() == [True, False]
    assert tb.asarray([1.7, -1.7, 2], dtype="int8", device=device).tolist() == [1, -1, 2]
    assert tb.asarray([1, 2], dtype="float32", device=device).tolist() == [1.0, 2.0]
    t = tb.asarray([1, 2], device=device)
    assert tb.asarray(t, dtype="float32").tolist() == [1.0, 2.0]
    assert tb.asarray([t[0], 5], device=device).tolist() == [1, 5]


def test_numpy_sees_a_copy_or_nothing(device: str) -> None:
    t = tb.asarray(np.arange(3, dtype=np.float32), device=device)
    view: Array = t.numpy()
    if view.flags.writeable:
        view[:] = 7
    t += 1
    assert t.tolist() == [1.0, 2.0, 3.0]
    assert view.tolist() in ([0.0, 1.0, 2.0], [7.0, 7.0, 7.0])


def test_printing(device: str) -> None:
    about = f"dtype=float32, device='{device}:0'"
    assert repr(tb.asarray([[1.0, 0.25]], device=device)) == f"tensor([[1.0, 0.25]], {about})"
    assert repr(tb.asarray(1.5, device=device)) == f"tensor(1.5, {about})"
    assert repr(tb.zeros((0, 3), device=device)) == f"tensor([], shape=(0, 3), {about})"
    assert repr(tb.zeros((5000, 0), device=device)) == f"tensor([], shape=(5000, 0), {about})"
    assert repr(tb.ones((1,), device=device).requires_grad_()).endswith("requires_grad=True)")
    assert repr(tb.arange(5000, device=device)).startswith(
        "tensor([0, 1, 2, ..., 4997, 4998, 4999], dtype=int64"
    )
    columns = tb.asarray([[1.0, -0.25], [1000.5, 3.0]], device=device)
    assert repr(columns) == f"tensor([[   1.0,  -0.25],\n        [1000.5,    3.0]], {about})"
    lines = repr(tb.arange(30, dtype="float32", device=device)).split("\n")
    assert lines[0].startswith("tensor([ 0.0,  1.0,  2.0,")
    assert lines[1] == f"        15.0, {', '.join(f'{k}.0' for k in range(16, 30))}], {about})"
    cut = repr(tb.ones((400, 3), device=device) * -1.0).split("\n")
    assert [line.strip() for line in cut[:4]] == [
        "tensor([[-1.0, -1.0, -1.0],",
        *["[-1.0, -1.0, -1.0],"] * 2,
        "...,",
    ]
    assert len(repr(tb.zeros((300, 300, 300), dtype="int8", device=device))) < 5000
