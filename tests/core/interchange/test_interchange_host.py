"""What a device in host memory gives without a copy: NumPy views, buffers, DLPack; and pickles."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorbus as tb
from tensorbus import plugins


def on_cpu(values: Any, **options: Any) -> tb.Tensor:
    return tb.asarray(values, device="cpu", **options)


def test_numpy_shares_memory_and_cannot_write() -> None:
    t = on_cpu([1.0, 2.0])
    view = t.numpy()
    assert np.shares_memory(view, t.numpy())
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 5
    t += 1
    assert view.tolist() == [1.0, 2.0]
    assert np.asarray(t).tolist() == [2.0, 3.0]
    assert np.shares_memory(np.asarray(t), t.numpy())


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_small_floats_are_those_of_ml_dtypes(name: str) -> None:
    source = np.array([1.5, -0.25, np.nan], getattr(ml_dtypes, name))
    t = on_cpu(source)
    assert t.dtype.name == name
    assert t.numpy().dtype == source.dtype
    assert t.tolist()[:2] == [1.5, -0.25]


def test_numpy_protocol_options() -> None:
    t = on_cpu([1.0, 2.0])
    assert np.asarray(t, dtype="float64").tolist() == [1.0, 2.0]
    assert not np.shares_memory(np.array(t, copy=True), t.numpy())
    with pytest.raises(ValueError, match="copy"):
        np.array(t, dtype="float64", copy=False)


def test_sharing_on_request() -> None:
    source = np.arange(3.0)
    assert np.shares_memory(on_cpu(source, copy=False).numpy(), source)
    with pytest.raises(ValueError, match="byte order"):
        on_cpu(source.astype(source.dtype.newbyteorder()), copy=False)
    with pytest.raises(ValueError, match="copied"):
        on_cpu([1, 2], copy=False)


def test_buffer_protocol() -> None:
    t = on_cpu([[1, 2, 3], [4, 5, 6]], dtype="int16")
    view: Any = t.__buffer__(0)
    assert (view.format, view.shape, view.readonly, view.tolist()) == (
        "h",
        (2, 3),
        False,
        [[1, 2, 3], [4, 5, 6]],
    )
    view[0, 1] = 9
    assert t.tolist() == [[1, 9, 3], [4, 5, 6]]
    if sys.version_info >= (3, 12):
        assert memoryview(t).tolist() == view.tolist()
    with pytest.raises(BufferError, match="bfloat16"):
        on_cpu([1.0], dtype="bfloat16").__buffer__(0)


@pytest.mark.parametrize(
    "name", ["bool", "int8", "int64", "uint16", "float16", "float32", "float64", "complex64"]
)
def test_dlpack_to_numpy_and_back(name: str) -> None:
    t = on_cpu([[0, 1, 1], [1, 0, 1]], dtype=name)[:, ::-1]
    assert t.__dlpack_device__() == (1, 0)
    exported = np.from_dlpack(t)
    assert exported.dtype.name == name
    assert np.array_equal(exported, t.numpy())
    back = tb.from_dlpack(np.array(t.numpy()))
    assert (back.dtype.name, back.tolist()) == (name, t.tolist())


def test_dlpack_shares_or_copies() -> None:
    source = np.arange(3.0)
    assert np.shares_memory(tb.from_dlpack(source).numpy(), source)
    assert not np.shares_memory(tb.from_dlpack(source, copy=True).numpy(), source)
    t = tb.from_dlpack(source, copy=True)
    t += 1
    assert source.tolist() == [0.0, 1.0, 2.0]


def test_dlpack_types_come_from_the_manifests() -> None:
    assert plugins.dlpack_types()[1] == "cpu"


class Foreign:
    """An array on a device that nobody reads."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (99, 0)

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("it must not be asked")


def test_dlpack_of_an_unknown_device() -> None:
    with pytest.raises(BufferError, match="device type 99"):
        tb.from_dlpack(Foreign())


def test_dlpack_refusals() -> None:
    with pytest.raises(BufferError, match="detach"):
        np.from_dlpack(on_cpu([1.0]).requires_grad_())
    with pytest.raises((RuntimeError, BufferError), match="Unsupported dtype"):  # NumPy, of a good capsule
        np.from_dlpack(on_cpu([1.0], dtype="bfloat16"))


def test_copies() -> None:
    x = on_cpu([1.0, 2.0]).requires_grad_()
    for value in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert (value.tolist(), value.dtype, value.device, value.requires_grad) == (
            [1.0, 2.0],
            x.dtype,
            x.device,
            True,
        )
    deep = copy.deepcopy(x)
    with tb.no_grad():
        deep += 1
    assert x.tolist() == [1.0, 2.0]
    deep.sum().backward()
    assert x.grad is None


def test_a_recorded_result_is_not_pickled() -> None:
    with pytest.raises(tb.AutogradError, match="detach"):
        pickle.dumps(on_cpu([1.0]).requires_grad_() * 2)


LENDERS: dict[str, Callable[[tb.Tensor], Any]] = {"asarray": np.asarray, "dlpack": np.from_dlpack}


@pytest.mark.parametrize("how", LENDERS)
def test_lent_memory_is_that_of_one_tensor(how: str) -> None:
    lend = LENDERS[how]
    t = tb.arange(6.0, device="cpu")
    before = [t.clone(), +t, t * 1]
    row, lent = t[1:4], lend(t)
    after = [t.clone(), +t, tb.asarray(t, copy=True), copy.deepcopy(t), tb.compile(lambda x: x * 1)(t)]
    leaf = tb.ones(6, device="cpu").requires_grad_()
    products = [(leaf * t).sum(), tb.compile(lambda x, y: (x * y).sum())(leaf, t)]
    lent[2] = 99
    assert t[2].item() == row[1].item() == 99
    assert all(x[2].item() == 2 for x in (*before, *after))
    for y in products:
        assert tb.grad(y, leaf)[0].tolist() == [0, 1, 2, 3, 4, 5]
    t += 1
    row *= 2
    t[0] = -1
    assert lent.tolist() == t.tolist() == [-1, 4, 200, 8, 5, 6]
    part = lend(row[1:])
    part[0] = 7
    assert lent[2] == t[2].item() == row[1].item() == 7
    compiled = tb.compile(lambda x: x.mul_(2))
    assert compiled(t.clone()).tolist()[2] == 14
    assert t[2].item() == 7
    broadcast = tb.broadcast_to(t, (2, 6))
    assert not lend(broadcast).flags.writeable
    with pytest.raises((ValueError, BufferError)):
        lend(tb.ones(2, device="cpu").requires_grad_())[0] = 1


@pytest.mark.parametrize("how", LENDERS)
def test_views_left_side_by_side_lend_the_memory_that_they_share(how: str) -> None:
    lend = LENDERS[how]
    x = tb.arange(6.0, device="cpu")
    a, b, c = x[:4], x[3:], x.reshape(2, 3).T
    del x
    for lent in (lend(a), lend(a)):
        lent[3] += 10
    assert (b.tolist(), c.tolist()) == ([23, 4, 5], [[0, 23], [1, 4], [2, 5]])
    lend(b)[1:] = -1
    b[0] = 7
    assert (lent.tolist(), c.tolist()) == ([0, 1, 2, 7], [[0, 7], [1, -1], [2, -1]])
    row = c[0]
    del a, b, c
    lent[3] = 8
    assert row.tolist() == [0, 8]


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.mT.diagonal(1, -1, -2), lambda x: x[:, ::-1].diagonal(-1), tb.view_as_real,
        lambda x: tb.view_as_real(x.mT)[0], lambda x: tb.view_as_complex(tb.view_as_real(x)[1:]),
    ],
)  # fmt: skip
def test_views_of_every_kind_lend_the_memory_of_their_base(view: Callable[[tb.Tensor], tb.Tensor]) -> None:
    x = tb.zeros((2, 3, 4), dtype="complex64", device="cpu")
    before, lent = view(x), np.asarray(x)
    lent[...] = 5
    assert (before == view(tb.full_like(x, 5))).all()
    np.asarray(before)[...] = 7
    assert (view(x) == before).all()
    assert (before == 7).all()


@pytest.mark.parametrize("how", LENDERS)
def test_views_write_to_lent_memory_whose_base_is_gone(how: str) -> None:
    x = tb.zeros(4, device="cpu")
    before = x[1:]
    lent = LENDERS[how](x)
    after, copied = tb.compile(lambda x: x[:2].detach())(x), x.clone()
    del x
    before += 1
    after[0] = 7
    lent[3] = 5
    assert (lent.tolist(), before.tolist(), after.tolist()) == ([7, 1, 1, 5], [1, 1, 5], [7, 1])
    assert copied.tolist() == [0] * 4


@pytest.mark.parametrize("take", [tb.from_dlpack, partial(tb.asarray, device="cpu", copy=False)])
def test_memory_of_others_is_written_to(take: Callable[[Any], tb.Tensor]) -> None:
    source = np.arange(4.0)
    t = take(source)
    t += 1
    t[1:3].zero_()
    source[0] = 9
    assert source.tolist() == t.tolist() == [9, 0, 0, 4]
    copied = t.clone()
    t.fill_(5)
    assert (source.tolist(), copied.tolist()) == ([5] * 4, [9, 0, 0, 4])
    source.flags.writeable = False
    t = take(source[:2])
    t += 1
    assert (source.tolist(), t.tolist()) == ([5] * 4, [6, 6])


def test_consumers_before_dlpack_1() -> None:
    t = tb.ones((4,), device="cpu")

    class Old:
        """A consumer of the protocol before 1.0, which knows no read-only arrays."""

        def __dlpack__(self, **_: Any) -> Any:
            return t.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return t.__dlpack_device__()

    shown = np.from_dlpack(Old())
    assert np.shares_memory(shown, t.numpy())
