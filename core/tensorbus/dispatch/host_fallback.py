"""Running on the host what a device has no kernel for: only where the user asked, and always counted.

Operands are copied to the host device, its kernel runs, the result is copied back. Kernels that a backend
registers as going through the host are counted here too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Final, NamedTuple

from ..devices.device import Device
from ..dtypes.definition import DType
from ..errors import UnsupportedOpError, suggest
from ..ops.call_errors import flags
from ..plugins import backend, host_backend
from ..system import fork_safe_locks
from ..system.user_frame import user_frame

MODES: Final = ("error", "warn", "allow")
_mode: ContextVar[str] = ContextVar("tensorbus_fallback", default="error")
_counts: dict[tuple[str, str], HostCount] = {}
_lock = fork_safe_locks.simple()


class FallbackWarning(UserWarning):
    """An op ran on the host because its device has no kernel for it."""


class HostCount(NamedTuple):
    """The number of times that an op of a device went through the host, and of bytes copied for it."""

    calls: int = 0
    bytes: int = 0


class fallback:  # noqa: N801 - a function to its users
    """Say what happens when a device has no kernel for an op, and the op no decomposition.

    ``"error"`` (the default): ``UnsupportedOpError``. ``"warn"`` and ``"allow"``: the op runs on the host and
    its result is copied back, with a ``FallbackWarning`` or without. It takes effect at once, for this thread
    or task; as a context manager it ends with the block. Creation and random numbers never fall back.
    Collectives on a device that no communicator takes go through the host alike.
    ``tb.fallback_counts()`` tells what did.

    >>> import tensorbus as tb
    >>> with tb.fallback("allow"):
    ...     total = tb.asarray([1.0, 2.0]).sum().item()
    >>> total
    3.0
    """

    def __init__(self, mode: str) -> None:
        if mode not in MODES:
            raise ValueError(
                f"fallback: the mode is one of {', '.join(MODES)}, got {mode!r}.{suggest(mode, MODES)}"
            )
        self._token: Token[str] | None = _mode.set(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _mode.reset(self._token)
            self._token = None


def fallback_mode() -> str:
    """Return what happens here when a device has no kernel: ``"error"``, ``"warn"`` or ``"allow"``."""
    return _mode.get()


def refusal(family: str) -> str | None:
    """Return why ops of a family do not run on the host here; None where they may."""
    if family in ("creation", "random"):
        return "creation and random numbers never fall back"
    return "tensorbus.fallback is 'error' here" if _mode.get() == "error" else None


def fallback_counts(*, reset: bool = False) -> dict[tuple[str, str], HostCount]:
    """Return, for each op and device type that went through the host, how often and with how many bytes.

    That includes kernels which the device's manifest declares as ``host``. ``reset`` starts again from zero.
    """
    flags("fallback_counts", reset=reset)
    with _lock:
        counts = dict(_counts)
        if reset:
            _counts.clear()
    return counts


def count(op: str, device_type: str, nbytes: int) -> None:
    """Note that an op of a device, or a collective on its tensors, went through the host."""
    with _lock:
        known = _counts.get((op, device_type), HostCount())
        _counts[op, device_type] = HostCount(calls=known.calls + 1, bytes=known.bytes + nbytes)


def through_host(
    op: str, device: Device, dtypes: Sequence[DType | type], outs: Sequence[DType], several: bool,
    find: Callable[[Device], Callable[..., Any]],
) -> Callable[..., Any]:  # fmt: skip
    """Return what runs ``op`` on the host for values of ``device``; ``find`` gives the host's kernel."""
    host = Device(host_backend().type, 0)
    if host.type == device.type:
        raise UnsupportedOpError(f"{op}: {device} is the host itself, there is nothing to fall back to.")
    kernel = find(host)

    def run(*values: Any) -> Any:
        mode = _mode.get()
        if mode == "error":
            raise UnsupportedOpError(f"{op}: no kernel on {device}, and tensorbus.fallback is 'error' here.")
        if mode == "warn":
            warnings.warn(
                f"{op} has no kernel on {device} and ran on {host}; its operands were copied there and back.",
                FallbackWarning, stacklevel=user_frame()[1],
            )  # fmt: skip
        return on_host(op, device, host, kernel, values, dtypes, outs, several)

    return run


def on_host(
    op: str, device: Device, host: Device, kernel: Callable[..., Any], values: Sequence[Any],
    dtypes: Sequence[DType | type], outs: Sequence[DType], several: bool,
) -> Any:  # fmt: skip
    """Copy ``values`` to the host, run its kernel, copy the result back; count the bytes of both ways."""
    here, there = backend(device.type).runtime, backend(host.type).runtime
    copied, arguments = 0, []
    for value, dtype in zip(values, dtypes, strict=True):
        if isinstance(dtype, DType) and hasattr(value, "shape"):
            data = here.to_host(value, dtype, device.index)
            copied += data.nbytes
            value = there.from_host(data, value.shape, dtype, host.index)
        arguments.append(value)
    results = kernel(*arguments)
    back = []
    for value, dtype in zip(results if several else (results,), outs, strict=True):
        data = there.to_host(value, dtype, host.index)
        copied += data.nbytes
        back.append(here.from_host(data, value.shape, dtype, device.index))
    count(op, device.type, copied)
    return tuple(back) if several else back[0]
