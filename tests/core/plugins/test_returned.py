"""Kernels, programs and functions of the runtime that return or raise what they must not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import plugins
from tensorbus.backend_api import (
    Executable,
    Interpreting,
    Kernel,
    from_namespace,
    hookimpl,
    linalg_from_namespace,
)
from tensorbus.plugins.manifest import Manifest

from numpy_runtime import NATIVE, NumpyRuntime

Register = Callable[..., None]


def kaput(*_: Any, **__: Any) -> Any:
    raise ValueError("kaput")


class Spoiled:
    """An executable whose results are spoiled."""

    def __init__(self, executable: Executable, spoil: Callable[[Sequence[Any]], Any]) -> None:
        self.executable, self.spoil = executable, spoil

    def __call__(self, values: Sequence[Any]) -> Any:
        return self.spoil(self.executable(values))

    def stages(self) -> Any:
        return self.executable.stages()


def lowering(make: Callable[[Executable], Any]) -> Any:
    """Return a lowering that makes something of what the usual one makes."""
    return SimpleNamespace(compile=lambda order: make(Interpreting("faulty").compile(order)))


def spoiled(spoil: Callable[[Sequence[Any]], Any]) -> Any:
    return lowering(lambda x: Spoiled(x, spoil))


@pytest.fixture
def register() -> Iterator[Register]:
    """Return what registers the device with the faults given; it is taken out afterwards."""
    table = {**from_namespace(np, NATIVE), **linalg_from_namespace(np)}

    def install(
        runtime: Any = None, kernels: Any = None, compiles: Any = None, manifest: Manifest | None = None
    ) -> None:
        result = runtime or NumpyRuntime()
        hooks: dict[str, Any] = {"tensorbus_device": lambda device_type: result}
        hooks["tensorbus_kernels"] = lambda device_type: {**table, **(kernels or {})}
        if compiles is not None:
            hooks["tensorbus_lowering"] = lambda device_type: compiles
        extension = SimpleNamespace(**{k: hookimpl(_named(k, f)) for k, f in hooks.items()})
        plugins.register("faulty", extension, manifest)

    yield install
    plugins.unregister("faulty")


def _named(name: str, function: Any) -> Any:
    function.__name__ = function.__qualname__ = name
    return function


def program(x: Any) -> Any:
    return tb.sum((x + 1) * 2)


def ones() -> Any:
    return tb.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device="faulty")


KERNELS: dict[str, tuple[dict[str, Any], str]] = {
    "shape": (
        {"add": lambda x, y: (x + np.float32(y))[0]},
        r"add on faulty:0: kernel 'default' of SimpleNamespace returned a value of shape \(3,\), and must"
        r" return a value of shape \(2, 3\)",
    ),
    "dtype": (
        {"multiply": lambda x, y: x.astype(np.float64) * y},
        "multiply on faulty:0: .* dtype float64, and must return one of dtype float32",
    ),
    "nothing": ({"add": lambda x, y: None}, r"returned None, and must return a value of shape \(2, 3\)"),
    "a number": (
        {"sum": Kernel(name="short", function=lambda x, axis, keepdims: float(x.sum()))},
        r"kernel 'short' of SimpleNamespace returned a float, which has no shape",
    ),
    "no dtype": (
        {"add": lambda x, y: memoryview(np.ascontiguousarray(x + np.float32(y)))},
        "add on faulty:0: .* returned a memoryview, which has no dtype, and must return one of dtype float32",
    ),
    "no function": (
        {"add": Kernel(name="late", prepare=lambda call: None)},
        "prepare of kernel 'late' of SimpleNamespace returned None, and must return a function",
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_what_a_kernel_returns_is_held_to_the_op(register: Register, name: str) -> None:
    kernels, words = KERNELS[name]
    register(kernels=kernels)
    x = ones()
    compiled = tb.compile(program)
    for run in (program, compiled, compiled, compiled, program):  # never taken for right after the first time
        with pytest.raises(tb.PluginError, match=words):
            run(x)
    assert x.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


@pytest.mark.parametrize(
    ("examined", "debug", "noticed"), [(False, False, True), (True, False, False), (True, True, True)]
)
def test_later_results_of_kernels_that_nobody_examined_are_compared(
    register: Register, monkeypatch: pytest.MonkeyPatch, examined: bool, debug: bool, noticed: bool
) -> None:
    """The package's manifest says whether its kernels are examined; the first result is always compared."""
    if debug:
        monkeypatch.setenv("TENSORBUS_DEBUG", "1")
    results = iter([np.ones((2, 3), np.float32), np.ones((2, 3), np.float32), np.ones((3,), np.float32)])
    manifest = Manifest(name="faulty", type="faulty", examined=examined)
    register(kernels={"negative": lambda x: next(results)}, manifest=manifest)
    x = ones()
    assert (-x).tolist() == (-x).tolist() == [[1.0] * 3] * 2
    if noticed:
        with pytest.raises(
            tb.PluginError, match=r"negative on faulty:0: .* returned a value of shape \(3,\)"
        ):
            tb.negative(x)
    else:
        assert (-x).shape == (3,)


def test_several_results_are_counted(register: Register) -> None:
    register(kernels={"slogdet": lambda x: (np.float32(1),)})
    x = tb.asarray([[1.0, 0.0], [0.0, 1.0]], device="faulty")
    with pytest.raises(tb.PluginError, match=r"slogdet on faulty:0: .* returned 1 values, and must return 2"):
        tb.linalg.slogdet(x)


def test_a_kernel_is_looked_at_once_for_each_signature(register: Register) -> None:
    register()
    x = ones()
    assert (x + x).shape == (2, 3)
    add = tb.dispatch.plan.plan(tb.ops.definition.table["add"], [x._vtype, x._vtype], None, {})
    first = add.run
    first(x._value, x._value)
    assert add.run is not first
    ready = add.run
    ready(x._value, x._value)
    assert add.run is ready


@pytest.mark.parametrize("where", ["function", "prepare"])
def test_a_kernel_that_raises_is_named(register: Register, where: str) -> None:
    register(kernels={"add": Kernel(name="mine", **{where: kaput})})
    x = ones()
    compiled = tb.compile(program)
    for run in (program, compiled, compiled, compiled):
        with pytest.raises(tb.DeviceError, match="kernel 'mine' of SimpleNamespace failed with ValueError"):
            run(x)


def run_and_wait() -> None:
    program(ones()).item()
    tb.device("faulty").synchronize()


RUNTIMES: dict[str, tuple[str, Any, type[Exception], str]] = {
    "from_host shape": (
        "from_host", lambda data, shape, dtype, index: np.frombuffer(data, NATIVE[dtype]),
        tb.PluginError, r"runtime.from_host\(...\) returned a value of shape \(6,\); it must return a value",
    ),
    "from_host nothing": ("from_host", lambda *args: None, tb.PluginError, "returned None; it must return"),
    "from_host raises": (
        "from_host", kaput, tb.DeviceError, r"runtime.from_host\(...\) failed with ValueError: kaput",
    ),
    "to_host raises": (
        "to_host", kaput, tb.DeviceError, r"runtime.to_host\(...\) failed with ValueError: kaput",
    ),
    "synchronize raises": (
        "synchronize", kaput, tb.DeviceError, r"runtime.synchronize\(0\) failed with ValueError: kaput",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_function_of_the_runtime_is_named(register: Register, name: str) -> None:
    function, fault, kind, words = RUNTIMES[name]
    runtime = NumpyRuntime()
    setattr(runtime, function, fault)
    register(runtime)
    with pytest.raises(kind, match=words):
        run_and_wait()


LOWERINGS: dict[str, tuple[Any, type[Exception], str]] = {
    "too few": (spoiled(lambda x: x[:-1]), tb.PluginError, "executable returned 0 values"),
    "none": (spoiled(lambda x: None), tb.PluginError, "executable returned None"),
    "shape": (
        spoiled(lambda x: [x.reshape(1, 1) for x in x]), tb.PluginError,
        r"returned a value of shape \(1, 1\), and must return a value of shape \(\)",
    ),
    "dtype": (
        spoiled(lambda x: [x.astype(np.float64) for x in x]), tb.PluginError, "one of dtype float32",
    ),
    "raises": (spoiled(kaput), tb.DeviceError, "executable failed with ValueError: kaput"),
    "no executable": (lowering(lambda x: None), tb.PluginError, r"lowering.compile\(...\) returned None"),
    "compile raises": (
        SimpleNamespace(compile=kaput), tb.DeviceError, r"compile\(...\) failed with ValueError: kaput",
    ),
}  # fmt: skip


@pytest.mark.parametrize("place", [2, 5])
@pytest.mark.parametrize("dynamic", [False, True])
def test_later_results_of_executables_that_nobody_examined_are_compared(
    register: Register, place: int, dynamic: bool
) -> None:
    runs = 0

    def spoil(x: Sequence[Any]) -> Sequence[Any]:
        nonlocal runs
        runs += 1
        return [x[:-1] for x in x] if runs == place else x

    register(compiles=spoiled(spoil))
    compiled = tb.compile(lambda x: (x + 1) * 2, dynamic=dynamic)
    for run in range(1, 8):
        x = tb.asarray([[1.0, 2.0]] * (2 + run % 2 * dynamic), device="faulty")
        before = runs
        if before < place <= before + 1:
            with pytest.raises(tb.PluginError, match="its executable returned a value of shape"):
                compiled(x)
        else:
            assert compiled(x).tolist() == [[4.0, 6.0]] * x.shape[0]
    assert runs >= place


@pytest.mark.parametrize("name", LOWERINGS)
def test_what_a_lowering_makes_is_held_to_the_program(register: Register, name: str) -> None:
    compiles, kind, words = LOWERINGS[name]
    register(compiles=compiles)
    x = ones()
    compiled = tb.compile(program)
    for _ in range(4):
        with pytest.raises(kind, match=words):
            compiled(x)
    assert program(x).item() == 54.0
    assert tb.compile(program)(tb.ones(3, device="refdev")).item() == 12.0
