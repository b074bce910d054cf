"""From a call to what runs: which kernel is chosen, what is cached, and that threads keep out of the way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import plugins
from tensorbus.backend_api import Kernel, dtypes, hookimpl
from tensorbus.dispatch import kernel_tables, plan
from tensorbus.ops.definition import table
from tensorbus.ops.movement import movement
from tensorbus.plugins.extension import check_table

from numpy_runtime import NumpyRuntime


class SmallRuntime(NumpyRuntime):
    dtypes = (dtypes.float32, dtypes.int64, dtypes.bool_)


def _kernels(**more: Any) -> dict[str, Any]:
    def fail(*_: Any) -> Any:
        raise RuntimeError("the fan fell off")

    return {
        "add": lambda x, y: np.add(x, y),
        "multiply": lambda x, y: np.multiply(x, y).astype(np.float32),
        "negative": fail,
        "sqrt": lambda x: np.sqrt(x), "divide": lambda x, y: np.divide(x, y).astype(np.float32),
        "reshape": lambda x, shape: x.reshape(shape),
    } | more  # fmt: skip


@pytest.fixture
def toy() -> Iterator[dict[str, Any]]:
    """A device type ``toy`` whose kernel table may be changed before its first use."""
    kernels = _kernels()
    extension = SimpleNamespace(
        __name__="toy-package",
        tensorbus_device=hookimpl(_named("tensorbus_device", lambda device_type: SmallRuntime())),
        tensorbus_kernels=hookimpl(
            _named("tensorbus_kernels", lambda device_type: kernels if device_type == "toy" else None)
        ),
    )
    plugins.register("toy", extension)
    yield kernels
    plugins.unregister("toy")


def _named(name: str, function: Any) -> Any:
    namespace: dict[str, Any] = {"f": function}
    exec(f"def {name}(device_type):\n    return f(device_type)", namespace)
    return namespace[name]


def toys(*values: float) -> tb.Tensor:
    return tb.asarray(list(values), device="toy")


def test_a_composite_decomposes_where_there_is_no_kernel(toy: dict[str, Any]) -> None:
    assert tb.rsqrt(toys(4.0, 16.0)).tolist() == [0.5, 0.25]
    assert tb.square(toys(3.0)).tolist() == [9.0]


def test_a_kernel_of_a_composite_is_preferred(toy: dict[str, Any]) -> None:
    toy["square"] = lambda x: np.full_like(x, 42)
    assert tb.square(toys(3.0)).tolist() == [42.0]


def test_a_prim_without_a_kernel_is_refused(toy: dict[str, Any]) -> None:
    tb.exp(tb.ones((1,), device="cpu"))
    with pytest.raises(
        tb.UnsupportedOpError, match=r"exp: no kernel on toy:0 for float32.*supported on .*cpu"
    ):
        tb.exp(toys(1.0))
    with pytest.raises(NotImplementedError, match="toy:0"):
        tb.zeros((2,), device="toy")


def test_a_dtype_that_the_device_lacks_is_refused(toy: dict[str, Any]) -> None:
    with pytest.raises(tb.UnsupportedDtypeError, match="toy:0 has no float64; it has bool, float32, int64"):
        tb.asarray([1.0], dtype="float64", device="toy")
    with pytest.raises(tb.UnsupportedDtypeError, match="add: toy:0 has no complex64"):
        toys(1.0) + 1j


def test_a_failing_kernel_names_the_op(toy: dict[str, Any]) -> None:
    x = toys(1.0, 2.0)
    with pytest.raises(
        tb.DeviceError, match=r"negative\(float32\[2\]\) on toy:0: .*the fan fell off"
    ) as caught:
        tb.negative(x)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert x.tolist() == [1.0, 2.0]


def test_supports_and_order(toy: dict[str, Any]) -> None:
    seen = []

    def supports(call: Any) -> str:
        seen.append(call.op)
        return "only on Sundays"

    toy["sqrt"] = Kernel(name="picky", function=np.sqrt, supports=supports)
    with pytest.raises(tb.UnsupportedOpError, match="picky of toy-package: only on Sundays"):
        tb.sqrt(toys(4.0))
    assert seen == ["sqrt"]
    slow, fast = Kernel(name="slow", function=abs), Kernel(name="fast", function=abs, before=("slow",))
    assert [k.name for _, k in kernel_tables.in_order("op", [("a", slow), ("b", fast)])] == [
        "fast",
        "slow",
    ]
    late = Kernel(name="late", function=abs, after=("slow",))
    assert [k.name for _, k in kernel_tables.in_order("op", [("a", late), ("b", slow)])] == [
        "slow",
        "late",
    ]
    with pytest.raises(tb.PluginError, match=r"'fast' of 'b'.*'slow' of 'a'|'slow' of 'a'.*'fast' of 'b'"):
        kernel_tables.in_order(
            "op", [("a", Kernel(name="slow", function=abs, before=("fast",))), ("b", fast)]
        )


def test_an_op_may_have_several_kernels_best_first(toy: dict[str, Any]) -> None:
    def is_single(call: Any) -> bool | str:
        return call.dtypes[0] is dtypes.float32 or "takes single precision"

    toy["negative"] = [
        Kernel(name="single", function=lambda x: np.full_like(x, 42), supports=is_single),
        Kernel(name="any", function=np.negative),
    ]
    whole = tb.asarray([1, 2], device="toy")
    assert tb.negative(toys(4.0, 9.0)).tolist() == [42, 42]
    assert tb.negative(whole).tolist() == [-1, -2]
    assert "takes single precision" in str(tb.explain("negative", whole))
    with tb.prefer_kernel(negative="any"):
        assert tb.negative(toys(4.0)).tolist() == [-4]


def test_a_change_in_place_that_fails_names_the_kernel(toy: dict[str, Any]) -> None:
    """It is not done again as a new value: nobody knows what was written."""

    def over(call: Any, place: int) -> Any:
        def write(*values: Any) -> bool:
            raise ValueError("the head crashed")

        return write

    toy["add"] = Kernel(name="careless", function=np.add, inplace=over)
    x = tb.asarray(np.ones(1 << 16, np.float32)).to("toy")
    with pytest.raises(tb.DeviceError, match=r"add: kernel 'careless'.*on toy:0 in place.*the head crashed"):
        x += 1.0


@pytest.mark.parametrize("entry", [[], [np.sqrt], "sqrt", None])
def test_what_is_no_kernel_is_refused(entry: Any) -> None:
    with pytest.raises(tb.PluginError, match=r"the kernel table of tb-npu maps 'sqrt' to .*best first"):
        check_table({"sqrt": entry}, "tb-npu")


def test_plans_are_forgotten_when_devices_go(toy: dict[str, Any]) -> None:
    assert (toys(1.0) + toys(2.0)).tolist() == [3.0]
    plugins.unregister("toy")
    toy["add"] = lambda x, y: np.subtract(x, y)
    extension = SimpleNamespace(
        tensorbus_device=hookimpl(_named("tensorbus_device", lambda device_type: SmallRuntime())),
        tensorbus_kernels=hookimpl(_named("tensorbus_kernels", lambda device_type: toy)),
    )
    plugins.register("toy", extension)
    assert (toys(1.0) + toys(2.0)).tolist() == [-1.0]


def test_prepare_runs_once_for_a_signature(toy: dict[str, Any]) -> None:
    prepared = []

    def prepare(call: Any) -> Any:
        prepared.append((call.dtypes, call.shapes))
        return np.add

    toy["add"] = Kernel(name="add", prepare=prepare)
    for size in (1, 2, 3, 3):
        x = toys(*[0.5] * size)
        assert (x + x).size == size
    assert prepared == [((tb.float32, tb.float32), None)]


def test_how_a_composite_decomposes_is_worked_out_once_for_a_signature(toy: dict[str, Any]) -> None:
    asked = []

    def supports(call: Any) -> str:
        asked.append((call.op, call.shapes))
        return "only on Sundays"

    toy["square"] = toy["mean"] = Kernel(name="picky", function=np.square, supports=supports)
    toy["sum"] = lambda x, axis, keepdims: x.sum(axis, keepdims=keepdims)
    for size in (1, 2, 2, 1):
        x = toys(*[3.0] * size)
        assert tb.square(x).tolist() == [9.0] * size
        assert tb.mean(x).item() == 3.0
    assert asked == [("square", None), ("mean", ((1,),)), ("mean", ((2,),))]


def test_attributes_that_are_equal_but_not_the_same() -> None:
    x = tb.asarray([1.0], device="cpu")
    for value in (0.0, -0.0, 0.0):
        actual = movement.pad(x, (1,), (0,), value).numpy()
        assert np.signbit(actual[0]) == np.signbit(value)
        assert np.signbit(tb.full((1,), value, device="cpu").numpy()[0]) == np.signbit(value)
    for fill in (True, 1, 1.0, 1 + 0j, False, 0, -0.0):
        actual = tb.full((1,), fill, device="cpu")
        assert actual.tolist() == [fill]
        assert type(actual.item()) is type(fill)


def test_threads_share_plans_and_not_results() -> None:
    values, wrong = [tb.asarray([float(k)] * 50, device="cpu") for k in range(8)], []

    def work(k: int) -> None:
        for _ in range(200):
            x = values[k]
            actual = ((x + x) * 2.0 - tb.sqrt(x * x)).sum().item()
            if actual != k * 3.0 * 50:
                wrong.append((k, actual))

    plan.invalidate()
    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_warnings_of_numpy_stay_quiet_in_every_thread() -> None:
    x = tb.asarray([0.0, -1.0, 1e30], device="cpu")
    results: list[Any] = []

    def work() -> None:
        results.append(
            (tb.log(x), x / 0.0, x * x * x, tb.sqrt(x), x.to("int8"), tb.full((1,), 1e300, device="cpu"))
        )

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4


def test_an_op_is_called_like_its_function() -> None:
    x = tb.asarray([1.0, 4.0], device="cpu")
    assert table["sqrt"](x).tolist() == tb.sqrt(x).tolist() == x.sqrt().tolist() == [1.0, 2.0]
    assert tb.sqrt.__name__ == "sqrt"
    assert "square root" in (tb.sqrt.__doc__ or "")
    with pytest.raises(tb.UnsupportedOpError, match="Did you mean 'sqrt'"):
        table["sqrtt"]


def test_a_float_is_no_axis_however_often_the_integer_was() -> None:
    x = tb.ones((2, 3))
    for _ in range(2):
        assert x.sum(axis=1).tolist() == [3.0, 3.0]
        with pytest.raises(tb.ShapeError, match="an axis is an integer"):
            x.sum(axis=1.0)
        with pytest.raises(tb.ShapeError, match="an axis is an integer"):
            tb.sum(x, 1.0)
