"""A stand-in for NCCL that moves bytes of the host between threads."""

from __future__ import annotations

import ctypes
import queue
import sys
import threading
import types
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus.backend_api import Rendezvous

RANKS = 3
NUMPY = {4: np.float32, 5: np.int32, 6: np.uint8, 7: np.int64}
NAMES = {"FLOAT32": 4, "INT32": 5, "UINT8": 6, "INT64": 7, "SUM": 0, "PROD": 1, "MIN": 2, "MAX": 3}
COMBINE = (np.add, np.multiply, np.minimum, np.maximum)


def _at(address: int, count: int, kind: int) -> Any:
    size = count * np.dtype(NUMPY[kind]).itemsize
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), NUMPY[kind])


class Nccl:
    """One thread's NCCL: what ranks queue between the same two meetings is matched, and then done."""

    meeting = threading.Barrier(RANKS)
    calls: dict[int, list[tuple[Any, ...]]] = {}
    messages: dict[tuple[int, int], queue.SimpleQueue[Any]] = {}
    """What was sent by itself, from whom to whom."""
    own = threading.local()

    def __init__(self, size: int, identity: bytes, rank: int) -> None:
        assert size == RANKS
        assert len(identity) == 128
        assert isinstance(identity, bytes)
        self.rank, self.aborted = rank, False

    def __getattr__(self, name: str) -> Any:
        return partial(self._queue, name)

    def check_async_error(self) -> None:
        pass

    def _queue(self, name: str, *values: int) -> None:
        grouped = getattr(self.own, "grouped", None)
        self.own.comm = self
        if grouped is not None:
            grouped.append((name, *values))
        elif name == "send":
            source, count, kind, to, _ = values
            self.messages.setdefault((self.rank, to), queue.SimpleQueue()).put(
                _at(source, count, kind).copy()
            )
        elif name == "recv":
            target, count, kind, source, _ = values
            sent = self.messages.setdefault((source, self.rank), queue.SimpleQueue()).get(timeout=20)
            ctypes.memmove(target, sent.tobytes(), min(sent.nbytes, count * np.dtype(NUMPY[kind]).itemsize))
        else:
            self.run([(name, *values)])

    def run(self, calls: list[tuple[Any, ...]]) -> None:
        self.calls[self.rank] = calls
        self.meeting.wait(20)
        done = [self._done(call, n) for n, call in enumerate(calls)]
        self.meeting.wait(20)
        for target, values in filter(None, done):
            ctypes.memmove(target, values.tobytes(), values.nbytes)
        self.meeting.wait(20)

    def _done(self, call: tuple[Any, ...], n: int) -> tuple[int, Any] | None:
        name, *values = call
        everyone = range(RANKS)
        if name == "send":
            return None
        if name == "recv":
            target, count, kind, peer, _ = values
            place = sum(c[0] == "recv" and c[4] == peer for c in self.calls[self.rank][:n])
            sent = [c for c in self.calls[peer] if c[0] == "send" and c[4] == self.rank][place]
            assert sent[2:4] == (count, kind)
            return target, _at(sent[1], count, kind).copy()
        source, target, count, kind, *rest = values
        if name == "allGather":
            whole = [_at(self.calls[k][n][1], count, kind) for k in everyone]
            return target, np.concatenate(whole)
        if name == "broadcast":
            return target, _at(self.calls[rest[0]][n][1], count, kind).copy()
        scattered = RANKS if name == "reduceScatter" else 1
        total = _at(source, count * scattered, kind)
        combine = COMBINE[rest[0]]
        total = combine.reduce([_at(self.calls[k][n][1], count * scattered, kind) for k in everyone])
        if name == "reduce":
            return (target, total) if rest[1] == self.rank else None
        return target, total[count * self.rank :][:count] if scattered > 1 else total

    def abort(self) -> None:
        self.aborted = True

    destroy = abort


def _group_start() -> None:
    Nccl.own.grouped = []


def _group_end() -> None:
    calls, Nccl.own.grouped = Nccl.own.grouped, None
    Nccl.own.comm.run(calls)


def nccl_communicators(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Any]:
    """Return what connects a rank by a stand-in for NCCL, as long as ``monkeypatch`` holds."""
    nccl: Any = types.ModuleType("cupy.cuda.nccl")
    nccl.NcclCommunicator, nccl.NcclError = Nccl, RuntimeError
    nccl.groupStart, nccl.groupEnd = _group_start, _group_end
    nccl.get_unique_id = lambda: bytes(range(128, 256))
    for name, number in NAMES.items():
        setattr(nccl, f"NCCL_{name}", number)
    cupy: Any = types.ModuleType("cupy")
    cupy.cuda = types.ModuleType("cupy.cuda")
    cupy.cuda.nccl = nccl
    cupy.cuda.Device = lambda index: nullcontext()
    stream = types.SimpleNamespace(ptr=0)
    cupy.cuda.get_current_stream = lambda index: stream
    cupy.cuda.alloc_pinned_memory = Pinned
    cupy.cuda.runtime = types.SimpleNamespace(
        CUDARuntimeError=OSError, deviceSynchronize=lambda: None, memcpyDeviceToHost=2,
        getDevice=partial(next, cycle((0, 1))),
        memcpyAsync=lambda target, source, nbytes, kind, stream: ctypes.memmove(target, source, nbytes),
    )  # fmt: skip
    for module in (cupy, cupy.cuda, nccl):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("tensorbus_nccl.communicator.device_address", _address)
    monkeypatch.setattr("tensorbus_nccl.communicator.device_contiguous", _contiguous)
    empty = lambda shape, dtype, device: tb.empty(tuple(shape), dtype=dtype, device=device)  # noqa: E731
    monkeypatch.setattr("tensorbus_nccl.communicator.device_empty", empty)
    from tensorbus_nccl.communicator import Factory

    store = dist.MemoryStore()
    return lambda rank: Factory().connect(Rendezvous("g", tuple(range(RANKS)), rank, store, 10.0))


class Pinned:
    """Memory of the host."""

    def __init__(self, nbytes: int) -> None:
        self.memory = (ctypes.c_uint8 * nbytes)()
        self.ptr = ctypes.addressof(self.memory)


def _address(x: tb.Tensor) -> int | None:
    if not x.size:
        return 0
    array = np.from_dlpack(x)
    return array.ctypes.data if array.flags.c_contiguous else None


def _contiguous(x: tb.Tensor) -> tb.Tensor:
    return x if _address(x) is not None else tb.asarray(np.ascontiguousarray(x.numpy()))
