"""A throw-away device over NumPy arrays, right but for the kernels and claims that a test replaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from tensorbus import plugins
from tensorbus.backend_api import from_namespace, hookimpl
from tensorbus_conformance.examination import Options, examine
from tensorbus_conformance.outcome import Case, Outcome

from numpy_runtime import NATIVE, NumpyRuntime

NAME = "faulty"


def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*values: Any, **attrs: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*values, **attrs)

    return run


@contextmanager
def device(
    kernels: Mapping[str, Any] | None = None, manifest: str = "", without: tuple[str, ...] = (),
    lowering: Any = None, runtime: Any = None,
) -> Iterator[str]:  # fmt: skip
    """Register the device with ``kernels`` in the place of the right ones, and text added to its manifest.

    Without a ``lowering`` its programs run kernel by kernel.
    """
    right = {k: v for k, v in from_namespace(np, NATIVE, quiet).items() if k not in without}
    names = ", ".join(f'"{d.name}"' for d in NATIVE)
    text = f'[plugin]\nname = "faulty"\napi = ">=0.1,<1"\n[device]\ntype = "{NAME}"\n'
    if "dtypes =" not in manifest:
        text += f"dtypes = [{names}]\n"
    hooks = SimpleNamespace(
        tensorbus_device=hookimpl(lambda device_type: runtime or NumpyRuntime()),
        tensorbus_kernels=hookimpl(lambda device_type: {**right, **(kernels or {})}),
        tensorbus_lowering=hookimpl(lambda device_type: lowering),
    )
    plugins.register(NAME, hooks, text + manifest)
    try:
        yield NAME
    finally:
        plugins.unregister(NAME)


def outcome(op: str, dtype: str = "float32", **options: Any) -> Outcome:
    return examine(Case(device=NAME, op=op, dtype=dtype), Options(**options))


def problems(op: str, dtype: str = "float32", **options: Any) -> dict[str, str]:
    """Return what is found, by check: the first of each."""
    results: dict[str, str] = {}
    for finding in outcome(op, dtype, **options).findings:
        results.setdefault(finding.check, finding.problem)
    return results
