"""Broken plugins of many kinds: each is named by an error of tensorbus's, and other devices go on."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorbus as tb
from tensorbus import plugins
from tensorbus.backend_api import from_namespace, hookimpl

from numpy_runtime import NATIVE, NumpyRuntime
from registry import fault

NAME = "brokenunit"
_OPENS = ("device_count", "properties", "tensorbus_device", "tensorbus_kernels")
"""What is called as a device is opened, where even exceptions that are no errors end nothing else."""
_WORKS = ("from_host", "to_host", "synchronize", "memory_stats", "add", "sum", "lowering")


def _raising(draw: random.Random, place: str) -> Callable[..., Any]:
    kinds: list[type[BaseException]] = [ValueError, KeyError, OSError, MemoryError, RecursionError]
    if place in _OPENS:
        kinds += [SystemExit, GeneratorExit, StopIteration, type("Own", (BaseException,), {})]
    kind = draw.choice(kinds)

    def fail(*_: Any, **__: Any) -> Any:
        raise kind("broken on purpose")

    return fail


def _giving(draw: random.Random, place: str) -> Callable[..., Any]:
    what = draw.choice([None, 3, "text", [], {}, object(), (), -1, 1 << 70, float("nan"), b"x", np.ones(3)])
    return lambda *_, **__: what


@fault("plugins.broken", trials=20)
def broken(draw: random.Random) -> None:
    """One function of a device, or a hook, raises or returns something else; what uses it is told."""
    place = draw.choice([*_OPENS, *_WORKS])
    wrong = draw.choice([_raising, _giving])(draw, place)
    runtime: Any = NumpyRuntime()
    kernels: Any = dict(from_namespace(np, NATIVE))
    hooks: dict[str, Any] = {
        "tensorbus_device": lambda device_type: runtime,
        "tensorbus_kernels": lambda device_type: kernels,
    }
    if place in hooks:
        hooks[place] = wrong
    elif place in kernels:
        kernels[place] = wrong
    elif place == "lowering":
        hooks["tensorbus_lowering"] = wrong
    else:
        setattr(runtime, place, wrong)
    if place != "tensorbus_device" and draw.random() < 0.1:
        hooks["tensorbus_device"] = lambda device_type, more: runtime
    named = {name: hookimpl(function) for name, function in hooks.items() if function is not wrong}
    if any(function is wrong for function in hooks.values()):
        hook = next(name for name, function in hooks.items() if function is wrong)
        named[hook] = hookimpl(lambda device_type: wrong())
    names = ", ".join(f'"{d.name}"' for d in NATIVE)
    manifest = f'[plugin]\nname = "{NAME}"\napi = ">=0.1,<1"\n[device]\ntype = "{NAME}"\ndtypes = [{names}]\n'

    def use() -> None:
        x = tb.asarray([1.0, 2.0], device=NAME)
        (x + x).sum().tolist()
        tb.compile(lambda a: (a + a).sum() * 2)(x).item()
        tb.Device(NAME, 0).synchronize()
        tb.Device(NAME, 0).memory_stats()

    try:
        plugins.register(NAME, SimpleNamespace(**named), manifest)
    except tb.TensorbusError:
        return
    try:
        with suppress(tb.TensorbusError, MemoryError):
            use()
    except BaseException as error:
        raise AssertionError(f"{place} that is {wrong}: {error!r} is not tensorbus's own") from error
    finally:
        plugins.unregister(NAME)
    assert (tb.ones((3,), device="cpu") + 1).tolist() == [2.0, 2.0, 2.0]
    assert any(unit.type == "cpu" for unit in tb.devices())
