"""A device's share of the machine: the threads it computes with, and memory kept for reuse."""

from __future__ import annotations

from .. import plugins
from ..backend_interface.capabilities import SupportsCache, SupportsThreads
from ..errors import ArgumentError, UnsupportedOpError
from ..system.env import MAX_THREADS
from .device import Device, DeviceLike
from .device import device as find_device


def set_num_threads(count: int, device: DeviceLike = None) -> None:
    """Compute with up to ``count`` threads on ``device``; None: the device that lives in host memory.

    It starts with ``TENSORBUS_NUM_THREADS``, else as many as this process may use cores. Raises
    ``UnsupportedOpError`` where the device has no threads to set.

    >>> import tensorbus as tb
    >>> before = tb.get_num_threads()
    >>> tb.set_num_threads(1)
    >>> tb.get_num_threads()
    1
    >>> tb.set_num_threads(before)
    """
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_THREADS:
        raise ArgumentError(
            f"set_num_threads: a number of threads from 1 to {MAX_THREADS} is needed, got {count!r}."
        )
    host = _host(device)
    _threads(host).set_num_threads(count, host.index)


def get_num_threads(device: DeviceLike = None) -> int:
    """Return how many threads ``device`` computes with; None: the device that lives in host memory."""
    host = _host(device)
    return _threads(host).num_threads(host.index)


def empty_cache(device: DeviceLike = None) -> None:
    """Give the memory that ``device`` keeps for reuse back to the system; None: the default device.

    Values are untouched. A device that keeps none has nothing to do.
    """
    target = find_device(device)
    runtime = target.runtime
    if isinstance(runtime, SupportsCache):
        runtime.empty_cache(target.index)


def _host(device: DeviceLike) -> Device:
    return find_device(plugins.host_backend().type if device is None else device)


def _threads(device: Device) -> SupportsThreads:
    runtime = device.runtime
    if not isinstance(runtime, SupportsThreads):
        raise UnsupportedOpError(
            f"{device} has no threads that can be set; name a device that computes on the host."
        )
    return runtime
