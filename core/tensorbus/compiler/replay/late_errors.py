"""Programs with reads that were put off, on devices that queue their work: what eager reads would raise.

A read of such a device raises what failed before it, of the function or of its caller, and eager code then
goes no further. So a program that takes copies of numbers to be shown behind it writes over nothing that was
there before; once it has run, the copies are read, and only then is anything rebound. Where that raises,
nothing has happened yet, and Python runs the call: the line that eager code raises on raises, behind all that
eager code does before it. What the caller had queued is asked for before the program is, as nothing tells the
two apart later, and put back for the first read of Python's run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...devices.device import Device, ValueType
from ...dtypes.definition import DType
from ...errors import TensorbusError
from ...random.generator import Generator
from ...tensor.tensor import Tensor, wrap_settled
from ...tracing.lazy_value import LazyValue
from ..capture.side_effect_observer import unobserved
from ..programs.program_cache import compile_single_use
from ..state.object_view import Uncapturable

if TYPE_CHECKING:
    from ..capture.tracer import Tracer

T = TypeVar("T")


class _OfThread(threading.local):
    error: Exception | None = None
    """What a program failed with that Python runs again."""


_failed: Final = _OfThread()


def tells_read_errors(device: Device) -> bool:
    """Return whether a device can be asked what its next read would raise."""
    from ...backend_interface.capabilities import SupportsReadErrors

    with unobserved():  # code of the device is none of the function
        return isinstance(device.runtime, SupportsReadErrors)


def known_values(tracer: Any, tensors: Sequence[Tensor]) -> list[Tensor] | None:
    """Return tensors of a capture with their values, computed aside; None where that is not possible.

    Of a run that computes nothing the list is empty. Values that were there before are none of a program's.
    """
    if any(type(x._value) is not LazyValue or x._value.tracer is not tracer for x in tensors):
        return None
    if tracer.prologue.dry:
        return []
    feeds = {d: [feed.value for feed in trace.sources] for d, trace in tracer.traces.items()}
    if not tracer.trial or tracer.shape_env.symbols or any(v is None for vs in feeds.values() for v in vs):
        return None
    return [tracer.untraced(partial(_known, tracer, feeds, x)) for x in tensors]


def _known(tracer: Tracer, feeds: Mapping[Device, Sequence[Any]], x: Tensor) -> Tensor:
    device = x.device
    program = compile_single_use(tracer.traces[device], [x._value.place], tracer.mode)
    return wrap_settled(program(feeds[device])[0], ValueType.of(x.dtype, device))


class LateErrors:
    """The late reads of a program: of these outputs, each with its dtype."""

    __slots__ = ("_index", "_outputs", "_runtime")

    def __init__(self, device: Device, outputs: Sequence[tuple[int, DType]]) -> None:
        self._runtime: Any = device.runtime
        self._index, self._outputs = device.index, outputs

    def _taken(self) -> Exception | None:
        """Return, and forget, what a read would raise now."""
        try:
            self._runtime.synchronize(self._index)
        except TensorbusError as error:
            return error
        return None

    def before(self) -> bool:
        """Return whether a read would raise before anything runs; the first of Python's run does then."""
        error = self._taken()
        if error is None:
            return False
        self._runtime.put_back_read_error(error, self._index)
        return True

    def read(self, results: Sequence[Any]) -> None:
        """Read the outputs; raises what failed."""
        for k, dtype in self._outputs:
            self._runtime.to_host(results[k], dtype, self._index)

    def note(self, error: Exception) -> None:
        """Note what failed in a program that Python runs again."""
        _failed.error = None if isinstance(error, MemoryError) else error

    def run_in_python(self, function: Callable[[], T]) -> T:
        """Return ``function()``, which fails where eager code does; no error is lost where it does not.

        The program may have failed behind the reads, and what was raised may have been of another thread.
        """
        error, _failed.error = _failed.error, None
        result = function()
        if error is not None:
            own = self._taken()
            self._runtime.put_back_read_error(own or error, self._index)
        return result


def late_errors(tracer: Tracer, outputs: list[Any]) -> LateErrors | None:
    """Return the late reads of what a tracer recorded, which become ``outputs``, if there are any.

    Raises ``Uncapturable`` for what Python cannot do again, and notes that the reads cannot wait.
    """
    sites, traces = tracer.sites, [*tracer.traces.values()]
    places = list(dict.fromkeys(place for place, _ in sites.late))
    if not places:
        return None
    is_one = len(traces) == 1 and traces[0].last_ordered is None
    if not is_one or any(type(x) is not Generator for x in tracer.prologue.owners):
        sites.divide_at_late_reads()
        raise Uncapturable("shows numbers in the middle of work that Python cannot do again")
    outputs += [place for place in places if place not in outputs]
    (trace,) = traces
    return LateErrors(trace.device, [(outputs.index(p), trace.nodes[p].spec.dtype) for p in places])


def guarded(body: Sequence[str], at: int, streams: Sequence[str], late: LateErrors | None) -> list[str]:
    """Return generated code that leaves the call to Python where the run, its lines from ``at`` on, fails.

    ``streams`` are generators that Python draws from again. What has no room leaves the rest as it was too,
    where nothing is written over: eager code may do with less.
    """
    run = [f"    {line}" for line in body[at:]]
    errors = "ValuesError" if late is None else "(ValuesError, MemoryError) as error"
    return [
        *["if late.before(): return FALL_BACK"] * (late is not None),
        *[f"s{name} = {name}.get_state()" for name in streams],
        *body[:at], "try:", *run, *["    late.read(o)"] * (late is not None), f"except {errors}:",
        *["    late.note(error)"] * (late is not None),
        *[f"    {name}.set_state(s{name})" for name in streams], "    return FALL_BACK",
    ]  # fmt: skip
