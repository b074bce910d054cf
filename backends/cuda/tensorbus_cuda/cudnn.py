"""cuDNN through its frontend for Python: a handle for each GPU, graphs, and the memory that they work in."""

from __future__ import annotations

import atexit
import importlib.util
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tensorbus.backend_api import DeviceError, StridedArray
from tensorbus.backend_api import dtypes as dt

from .device import runtime

if TYPE_CHECKING:
    from .unit import Unit

KINDS: Final = {dt.float16: "HALF", dt.bfloat16: "BFLOAT16", dt.float32: "FLOAT"}
MAX_WORKSPACE: Final = 1 << 30
"""Bytes that a graph may work in beside its operands, where there is a choice."""
INSTALL: Final = "pip install tensorbus-cuda[cudnn12] (or [cudnn13])"
ALIGNED: Final = 16
"""Bytes at whose multiples operands and their rows begin."""


@cache
def is_installed() -> bool:
    """Return whether cuDNN's frontend for Python is there. Nothing is imported."""
    return importlib.util.find_spec("cudnn") is not None


@cache
def trouble(index: int) -> str:
    """Return why cuDNN does not start on a GPU though its frontend is there; empty: it does."""
    try:
        library(index)
    except Exception as error:  # OSError where the frontend finds no library, its own classes, RuntimeError
        return f"cuDNN does not start ({INSTALL} brings it): {error}"
    return ""


@dataclass(eq=False, slots=True, weakref_slot=True)
class Plan:
    """A graph that is built: it works in ``room`` bytes beside its operands.

    ``queue(places, space)`` queues it, by the addresses of operands by number, and of these bytes.
    """

    graph: Any
    room: int
    queue: Callable[[dict[int, int], int], None] | None

    def __post_init__(self) -> None:
        _plans.add(self)


_plans: Final[weakref.WeakSet[Plan]] = weakref.WeakSet()
"""All that live: the library reports each graph that outlives the program on standard error."""


@atexit.register
def _release() -> None:
    for plan in _plans:
        plan.graph = plan.queue = None
    library.cache_clear()


class Library:
    """cuDNN for one GPU."""

    def __init__(self, unit: Unit) -> None:
        import cudnn

        self.unit = unit
        self.cudnn = cudnn
        self.lock = threading.Lock()
        with unit.current():  # a handle is for the GPU that is current when it is made
            self.handle = cudnn.create_handle()
        self._spaces: dict[tuple[int, int], list[Any]] = {}
        self._stream: int | None = None

    def graph(self, dtype: dt.DType) -> Any:
        """Return a new graph on values of ``dtype``, which computes in float32."""
        wide = self.cudnn.data_type.FLOAT
        return self.cudnn.pygraph(
            io_data_type=self.kind(dtype), intermediate_data_type=wide, compute_data_type=wide,
            handle=self.handle,
        )  # fmt: skip

    def kind(self, dtype: dt.DType) -> Any:
        """Return the library's name of a dtype."""
        return getattr(self.cudnn.data_type, KINDS[dtype])

    def operand(self, graph: Any, number: int, like: StridedArray) -> Any:
        """Return a tensor of a graph that lies as ``like``; its address is given as ``number``."""
        return graph.tensor(
            dim=list(like.shape), stride=list(like.strides), data_type=self.kind(like.dtype), uid=number
        )

    def result(
        self, tensor: Any, number: int, shape: Sequence[int], dtype: dt.DType, strides: Sequence[int] = ()
    ) -> None:
        """Have what a graph makes stored, in C order or by strides, at the address given as ``number``."""
        strides = strides or StridedArray.contiguous(None, tuple(shape), dtype).strides
        tensor.set_output(True).set_dim(list(shape)).set_stride(list(strides))
        tensor.set_data_type(self.kind(dtype)).set_uid(number)

    def built(self, graph: Any, avoided: Sequence[Any] = ()) -> Plan:
        """Return the plan of a graph. Raises the library's error where it has no kernel for it."""
        self.check(graph, avoided)
        graph.build_plans()
        return Plan(graph, graph.get_workspace_size(), self._queue(graph))

    def _queue(self, graph: Any) -> Callable[[dict[int, int], int], None]:
        """Return what queues a graph that is built, in the handle's stream.

        Newer frontends look at each operand in Python, and at an address there is nothing to see: that takes
        four times as long as queueing. Their compiled part is called where they show it.
        """
        handle, lowered = self.handle, getattr(graph, "_lowered_graph", None)
        number, at = getattr(handle, "backend_handle", None), getattr(graph, "_plan_index", None)
        execute = getattr(lowered, "_execute", None)
        execute_at = getattr(lowered, "_execute_plan_at_index", None)
        plans = getattr(graph, "_plans", None)
        is_python = getattr(graph, "selected_engine", graph) is not None
        if execute is None or execute_at is None or number is None or is_python or (plans and at is None):
            return lambda places, space: graph.execute(places, space, handle=handle)
        place = plans[at].cpp_index if plans else None
        if place is None:
            return lambda places, space: execute(places, space, number)
        return lambda places, space: execute_at(places, space, place, number)

    def check(self, graph: Any, avoided: Sequence[Any] = ()) -> None:
        """Raise the library's error where it has no kernel for a graph, or none without what is ``avoided``.

        These are numerical notes of the library.
        """
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([self.cudnn.heur_mode.A, self.cudnn.heur_mode.FALLBACK])
        if avoided:
            graph.deselect_numeric_notes([*avoided])
            graph.deselect_workspace_greater_than(MAX_WORKSPACE)
        graph.check_support()

    def run(self, plan: Plan, places: dict[int, int], space: int, stream: Any) -> None:
        """Queue a plan. ``places`` are addresses by number; the lock is held by the caller."""
        if stream.ptr != self._stream:
            self.cudnn.set_stream(handle=self.handle, stream=stream.ptr)
            self._stream = stream.ptr
        assert plan.queue is not None, "only at exit there is none"
        plan.queue(places, space)

    def space(self, room: int, stream: Any) -> int:
        """Return the address of memory that plans of one stream work in, one after the other.

        Recorded programs name it, so that what became too small stays.
        """
        known = self._spaces.setdefault(self.unit.workplace(stream), [])
        if not known or known[-1].nbytes < room:
            known.append(self.unit.pool.allocate(max(room, 1)))
        return int(known[-1].ptr)


@cache
def library(index: int) -> Library:
    """Return cuDNN for a GPU."""
    return Library(runtime().units[index])


def failed(unit: Unit, what: str, error: Exception) -> DeviceError:
    """Return the error of a graph that could not be built or queued: of earlier work, if that has failed."""
    if isinstance(error, DeviceError):
        return error
    try:
        unit.wait()
    except DeviceError as earlier:
        return earlier
    return DeviceError(f"{unit.name}: {what} by cuDNN: {type(error).__name__}: {error}")


def is_plain(x: StridedArray) -> bool:
    """Return whether the library takes a value where it lies: the last axis packed, all else aligned."""
    step = max(ALIGNED // x.dtype.itemsize, 1)
    outer = zip(x.shape[:-1], x.strides[:-1], strict=True)
    return (
        x.strides[-1] == 1 and x.offset % step == 0
        and all(n == 1 or (s > 0 and s % step == 0) for n, s in outer) and x.buffer.ptr % ALIGNED == 0
    )  # fmt: skip


def tidy(x: StridedArray) -> StridedArray:
    """Return a plain value with a stride that the library takes along axes of length 1 as well."""
    if 1 not in x.shape[:-1]:
        return x
    width = x.shape[-1]
    strides = [width if n == 1 else s for n, s in zip(x.shape[:-1], x.strides[:-1], strict=True)]
    return x.view(x.shape, (*strides, 1))
