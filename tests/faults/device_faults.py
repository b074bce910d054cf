"""Faults of other packages' devices: kernels that return or write what they must not, failing executables."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorbus as tb
from tensorbus.backend_interface.compilation import CompileRequest, Executable
from tensorbus.compiler.programs import program_cache
from tensorbus.executors.kernel_interpreter import Interpreting

import faulty
from error_bounds import gamma
from numpy_runtime import NumpyRuntime
from registry import fault

ROUNDED = gamma(4, "float32")
"""An exponential of few ops, and a few after it."""

_OPS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (np.add, lambda x, y: x + y),
    "multiply": (np.multiply, lambda x, y: x * 2.0),
    "exp": (np.exp, lambda x, y: tb.exp(x)),
    "where": (np.where, lambda x, y: tb.where(x > 0, x, y) + tb.where(x > 0, x, 2.0)),
    "matmul": (np.matmul, lambda x, y: tb.matmul(x, y)),
    "sum": (
        lambda x, axis, keepdims: np.asarray(np.sum(x, axis=tuple(axis), keepdims=keepdims, dtype=x.dtype)),
        lambda x, y: tb.sum(x, axis=1),
    ),
}
_LIES: dict[str, Callable[[Any], Any]] = {
    "another length": lambda x: np.concatenate([x, x]),
    "another rank": lambda x: x[None],
    "one element": lambda x: np.zeros((1,) * (x.ndim or 1) + (() if x.ndim else (1,)), x.dtype),
    "another dtype": lambda x: x.astype(np.int64),
    "nothing": lambda x: None,
    "a list": lambda x: x.tolist() or [0],
}


class _Lying:
    """A kernel that is right but for one call."""

    def __init__(self, function: Callable[..., Any], place: int, lie: Callable[[Any], Any]) -> None:
        self.function, self.place, self.lie, self.calls = function, place, lie, 0

    def __call__(self, *values: Any, **attrs: Any) -> Any:
        out = self.function(*values, **attrs)
        if out.dtype == np.float64:
            out = out.astype(np.float32)  # a scalar operand
        self.calls += 1
        return self.lie(out) if self.calls == self.place else out


def _error(function: Callable[[], Any], kind: type[Exception]) -> Exception | None:
    """Return what a function raises of a kind; None where it does not."""
    try:
        function()
    except kind as error:
        return error
    return None


@fault("devices.kernel_result", trials=40)
def kernel_result(draw: random.Random) -> None:
    """A kernel that returns something else at whichever call is named, with what was due."""
    op = draw.choice([*_OPS])
    function, call = _OPS[op]
    kernel = _Lying(function, draw.randint(1, 4), _LIES[draw.choice([*_LIES])])
    compiled = draw.random() < 0.3
    with faulty.device({op: kernel}) as device:
        run = tb.compile(call) if compiled else call
        for _ in range(6):
            n = 3 if draw.random() < 0.5 else draw.randint(2, 4)
            arrays = [np.ones((n, n), np.float32) * draw.random() for _ in range(2)]
            if op == "add" and draw.random() < 0.3:
                arrays[1] = arrays[1][:1]  # broadcast
            x, y = (tb.asarray(a.tolist(), device=device) for a in arrays)
            before, outs = kernel.calls, []
            message = _error(lambda x=x, y=y, outs=outs: outs.append(run(x, y)), tb.PluginError)
            assert (message is not None) == (before < kernel.place <= kernel.calls), (op, message)
            if message is not None:
                assert re.search(
                    rf"{op} on {device}.* kernel .* of SimpleNamespace returned", str(message)
                ), message
                assert "must return" in str(message)
            else:
                assert outs[0].numpy().shape == outs[0].shape
                assert outs[0].numpy().dtype == np.float32


@fault("devices.kernel_writes", trials=20)
def kernel_writes(draw: random.Random) -> None:
    """A kernel that writes into an operand is named where TENSORBUS_DEBUG is set."""
    place, written = draw.randint(1, 3), draw.randrange(2)
    calls = 0

    def add(x: Any, y: Any) -> Any:
        nonlocal calls
        calls += 1
        out = np.add(x, y)
        if calls == place:
            (x, y)[written][...] = -7.0
        return out

    setting = os.environ.get("TENSORBUS_DEBUG")
    os.environ["TENSORBUS_DEBUG"] = "1"
    try:
        with faulty.device({"add": add}) as device:
            for _ in range(4):
                x, y = (tb.asarray([draw.random()] * 3, device=device) for _ in range(2))
                message = _error(lambda x=x, y=y: x + y, tb.PluginError)
                assert (message is not None) == (calls == place), message
                if message is not None:
                    assert f"add on {device}" in str(message)
                    assert f"of SimpleNamespace wrote into its operand {written}" in str(message)
    finally:
        os.environ.pop("TENSORBUS_DEBUG")
        if setting is not None:
            os.environ["TENSORBUS_DEBUG"] = setting


class _Failing:
    """A lowering whose executables fail at one run, and have attributes that mean nothing to tensorbus."""

    modes: dict[str, str] = {}

    def __init__(self, device: str, draw: random.Random) -> None:
        self.device, self.place, self.runs = device, draw.randint(1, 5), 0
        kind = draw.choice([RuntimeError, KeyError, TypeError, AttributeError, ZeroDivisionError])
        self.error: Exception = kind("the driver's own")
        self.decoy = draw.choice([None, "text", 7, lambda *_: 1 / 0])

    def compile(self, order: CompileRequest) -> Executable:
        outer, inner = self, Interpreting(self.device).compile(order)

        class Failed:
            run = player = launch = outer.decoy

            def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
                outer.runs += 1
                if outer.runs == outer.place:
                    raise outer.error
                return inner(values)

            def stages(self) -> dict[str, str]:
                return {}

        return Failed()


@fault("devices.executable", trials=30)
def executable(draw: random.Random) -> None:
    """An executable that fails at whichever run is named with its device and package; then all goes on."""
    failing = _Failing(faulty.NAME, draw)
    gradient, broken = draw.random() < 0.5, draw.random() < 0.3

    def function(x: tb.Tensor) -> tb.Tensor:
        y = tb.exp(x) * 2.0
        if broken and y.sum().item() < 0:
            return y
        return y + 1.0

    with faulty.device(lowering=failing) as device:
        program_cache.clear()
        compiled = tb.compile(function)
        for _ in range(6):
            x = tb.asarray([draw.random()] * 3, device=device)
            if gradient:
                x.requires_grad_()
            before, outs = failing.runs, []

            def run(x: tb.Tensor = x, outs: list[tb.Tensor] = outs) -> None:
                outs.append(compiled(x))
                if gradient:
                    outs[0].sum().backward()

            message = _error(run, tb.DeviceError)
            assert (message is not None) == (before < failing.place <= failing.runs), message
            if message is not None:
                assert f"device type {device!r} of SimpleNamespace: its executable failed" in str(message)
                assert message.__cause__ is failing.error
            else:
                np.testing.assert_allclose(outs[0].numpy(), np.exp(x.numpy()) * 2 + 1, ROUNDED)
        program_cache.clear()


class _Size(tuple[int, ...]):
    """A shape that prints as PyTorch's does."""

    def __repr__(self) -> str:
        return f"Size({[*self]})"


class _Shaped(np.ndarray):
    @property
    def shape(self) -> Any:
        return _Size(np.ndarray.shape.__get__(self))


@fault("devices.shape_type", trials=5)
def shape_type(draw: random.Random) -> None:
    """Values whose shape is a subclass of tuple, eager and compiled."""

    def shaped(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *values, **attrs: np.asarray(function(*values, **attrs)).view(_Shaped)

    runtime = NumpyRuntime()
    runtime.from_host = shaped(runtime.from_host)
    with faulty.device({"add": shaped(np.add), "exp": shaped(np.exp)}, runtime=runtime) as device:
        compiled = tb.compile(lambda x: tb.exp(x + x))
        for _ in range(4):
            data = [[draw.random()] * draw.randint(1, 3)] * draw.randint(1, 2)
            x = tb.asarray(data, device=device)
            assert type(x._value.shape) is _Size
            for _ in range(2):
                np.testing.assert_allclose(compiled(x).numpy(), np.exp(2 * x.numpy()), ROUNDED)
        assert compiled.replays, compiled.reasons
