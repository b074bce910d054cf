"""The array API standard's ways to ask what a namespace is, and the dunders of its arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.dtypes import definition as dt


def on_cpu(data: Any, dtype: Any = None) -> tb.Tensor:
    return tb.asarray(data, dtype=dtype, device="cpu")


@pytest.mark.parametrize("version", [None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"])
def test_the_namespace_is_the_package(version: str | None) -> None:
    assert on_cpu(1).__array_namespace__(api_version=version) is tb
    assert tb.__array_api_version__ == "2025.12"


@pytest.mark.parametrize("version", ["2020.10", "2026.12", "latest", ""])
def test_unknown_editions(version: str) -> None:
    with pytest.raises(tb.ArgumentError, match=r"2024\.12"):
        on_cpu(1).__array_namespace__(api_version=version)


def test_capabilities_and_defaults() -> None:
    info = tb.__array_namespace_info__()
    assert info.capabilities() == {
        "boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64,
    }  # fmt: skip
    assert info.default_device() == tb.get_default_device()
    assert tb.device("cpu") in info.devices()
    assert isinstance(info.devices(), tuple)
    assert info.devices() + [None] == [*info.devices(), None]  # noqa: RUF005 - SciPy does that
    assert info.default_dtypes(device="cpu") == {
        "real floating": tb.float32, "complex floating": tb.complex64, "integral": tb.int64,
        "indexing": tb.int64,
    }  # fmt: skip


def test_dtypes_of_the_standard() -> None:
    info = tb.__array_namespace_info__()
    assert set(info.dtypes(device="cpu").values()) == set(dt.ALL) - set(dt.NARROW)
    assert list(info.dtypes(device="cpu", kind="bool")) == ["bool"]
    assert set(info.dtypes(device="cpu", kind=("signed integer", "complex floating"))) == {
        "int8", "int16", "int32", "int64", "complex64", "complex128",
    }  # fmt: skip
    with pytest.raises(tb.DtypeError, match="no kind is called"):
        info.dtypes(kind="floats")


def test_dtypes_that_a_device_lacks_are_not_listed() -> None:
    for device in tb.devices():
        listed = set(tb.__array_namespace_info__().dtypes(device=device).values())
        assert listed == device.properties.dtypes - set(dt.NARROW)


def test_parts_of_complex_tensors() -> None:
    z = on_cpu([1 + 2j, -3.5j])
    assert z.real.tolist() == [1.0, 0.0]
    assert z.imag.tolist() == [2.0, -3.5]
    assert on_cpu([1, 2]).imag.tolist() == [0, 0]
    assert on_cpu([tb.inf]).imag.tolist() == [0.0]
    assert complex(z[0]) == 1 + 2j


def test_to_device() -> None:
    x = on_cpu([1.0]).requires_grad_()
    y = x.to_device("refdev")
    assert y.device == tb.device("refdev")
    (g,) = tb.grad(y.sum(), x)
    assert g.device == x.device
    assert x.to_device(x.device).tolist() == [1.0]


def test_numbers_that_a_dtype_does_not_hold_compare() -> None:
    x = on_cpu([0, 255], "uint8")
    assert (x == 300).tolist() == [False, False]
    assert (x != 256).tolist() == [True, True]
    assert (x < 10**30).tolist() == [True, True]
    assert (x > -1).tolist() == [True, True]
    assert (x <= -1).tolist() == [False, False]
    assert (x == 255).tolist() == [False, True]
    assert tb.less(x, 256).tolist() == [True, True]
    assert tb.less(256, x).tolist() == [False, False]
    assert tb.equal(-1, x).tolist() == [False, False]


def test_bools_add_and_multiply_as_or_and_and() -> None:
    a, b = on_cpu([True, True, False]), on_cpu([True, False, False])
    assert (a + b).tolist() == [True, True, False]
    assert (a * b).tolist() == [True, False, False]
    assert (a + b).dtype is tb.bool
    with pytest.raises(tb.DtypeError, match="not defined for bool"):
        a - b


def test_clip_forgives_limits_beyond_the_dtype() -> None:
    x = on_cpu([3, 200], "uint8")
    assert tb.clip(x, -5, 100).tolist() == [3, 100]
    assert tb.clip(x, 10, 300).tolist() == [10, 200]
    with pytest.raises(tb.DtypeError, match="does not fit"):
        tb.clip(x, 300)


def test_astype_and_asarray_return_the_same_tensor_where_no_copy_is_allowed() -> None:
    x = on_cpu([1.0])
    assert tb.astype(x, tb.float32, copy=False) is x
    assert tb.astype(x, tb.float32) is not x
    assert tb.asarray(x, copy=False) is x
    assert tb.asarray(x) is x is not tb.asarray(x, copy=True)
    with pytest.raises(ValueError, match="needs a copy"):
        tb.asarray(x, dtype=tb.float64, copy=False)
    with pytest.raises(ValueError, match="needs a copy"):
        tb.asarray(x, device="refdev", copy=False)
    with pytest.raises(tb.DtypeError, match=r"\.real"):
        tb.astype(on_cpu([1j]), tb.float32)
    assert tb.astype(x, "int8", device="refdev").device == tb.device("refdev")


def test_dlpack_between_devices_of_ours() -> None:
    x = tb.asarray([1.0, 2.0], device="refdev")
    assert tb.from_dlpack(x).device == x.device
    assert tb.from_dlpack(x, device="cpu").tolist() == [1.0, 2.0]
    with pytest.raises(BufferError, match="needs a copy"):
        tb.from_dlpack(x, device="cpu", copy=False)


def test_dlpack_asks_for_a_device() -> None:
    x = on_cpu([1.0, 2.0])
    assert x.__dlpack__(dl_device=(1, 0)) is not None
    with pytest.raises(BufferError, match="asked for on"):
        x.__dlpack__(dl_device=(2, 0))


def test_the_host_reads_other_devices_by_dlpack() -> None:
    x = tb.asarray([1.0, 2.0], device="refdev")
    for copy in (None, True, False):
        assert x.__dlpack__(dl_device=(1, 0), copy=copy) is not None
    with pytest.raises(BufferError, match=r"was asked for on \(2, 0\)"):
        x.__dlpack__(dl_device=(2, 0))


def test_an_old_consumer_shares_memory_that_is_lent() -> None:
    x = on_cpu([1.0, 2.0])

    class Old:
        """A consumer's view of ``x``, from before DLPack 1.0."""

        def __init__(self, **options: Any) -> None:
            self.options = options

        def __dlpack_device__(self) -> tuple[int, int]:
            return x.__dlpack_device__()

        def __dlpack__(self, **_: Any) -> Any:
            return x.__dlpack__(**self.options)

    for options in ({}, {"copy": False}):
        shown = np.from_dlpack(Old(**options))
        x[0] = shown[0] + 1
        assert shown.tolist() == x.tolist()
    assert not np.shares_memory(np.from_dlpack(Old(copy=True)), np.asarray(x))


def test_grids() -> None:
    x, y, z = tb.arange(2, device="cpu"), tb.arange(3, device="cpu"), tb.arange(4, device="cpu")
    for indexing in ("xy", "ij"):
        expected = np.meshgrid(x.numpy(), y.numpy(), z.numpy(), indexing=indexing)
        actual = tb.meshgrid(x, y, z, indexing=indexing)
        for a, b in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(a.numpy(), b)
    assert tb.meshgrid() == ()
    assert [a.tolist() for a in tb.meshgrid(on_cpu(1), on_cpu([2, 3]))] == [[[1], [1]], [[2], [3]]]
    with pytest.raises(tb.ArgumentError, match="'xy' or 'ij'"):
        tb.meshgrid(x, indexing="yx")
    with pytest.raises(tb.ShapeError, match="one axis"):
        tb.meshgrid(tb.zeros((2, 2), device="cpu"))
    with pytest.raises(tb.ShapeError, match="axis -1"):
        tb.broadcast_arrays(x, y)


@pytest.mark.parametrize("k", [-(2**70), -4, -3, 0, 2, 3, 2**63, 2**70])
def test_diagonals_anywhere(k: int) -> None:
    near = max(min(k, 100), -100)
    x = on_cpu(np.arange(1.0, 10.0).reshape(3, 3))
    np.testing.assert_array_equal(tb.eye(3, 2, k=k, device="cpu").numpy(), np.eye(3, 2, k=near))
    np.testing.assert_array_equal(tb.tril(x, k=k).numpy(), np.tril(x.numpy(), k=near))
    np.testing.assert_array_equal(tb.triu(x, k=k).numpy(), np.triu(x.numpy(), k=near))


class Producer:
    """An array of another library that can only be read by DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("one", [Producer, memoryview, np.asarray], ids=["dlpack", "buffer", "array"])
def test_host_memory_is_copied_unless_that_is_forbidden(one: Any) -> None:
    for copy, shared in ((None, False), (True, False), (False, True)):
        memory = np.array([1.0, 2.0])
        x = tb.asarray(one(memory), copy=copy, device="cpu")
        memory[0] = 5.0
        assert x.tolist() == [5.0 if shared else 1.0, 2.0]
    for asked in ({"device": "refdev"}, {"device": "cpu", "dtype": "float32"}):
        with pytest.raises(ValueError, match="copy"):
            tb.asarray(one(memory), copy=False, **asked)
