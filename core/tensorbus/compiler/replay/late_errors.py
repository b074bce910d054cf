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
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...backend_interface.spec import Spec
from ...devices.device import Device, ValueType
from ...errors import TensorbusError
from ...interchange.host_array import CODES, scalars
from ...random.generator import Generator
from ...tensor.tensor import Tensor, wrap_settled
from ...tracing.lazy_value import LazyValue
from ...tracing.sym_int import is_open
from ..capture.side_effect_observer import unobserved
from ..programs.program_cache import compile_single_use
from ..state.object_view import Uncapturable
from .read_values import HostNumbers

if TYPE_CHECKING:
    from ..capture.tracer import Tracer
    from ..programs.op_trace import OpTrace

T = TypeVar("T")


_MOST_ERRORS: Final = 64
"""How many errors a device is asked for at most: one that is lost tells of it each time."""


class _OfThread(threading.local):
    error: Exception | None = None
    """What a program failed with that Python runs again."""


_failed: Final = _OfThread()


def tells_read_errors(device: Device) -> bool:
    """Return whether a device can be asked what its next read would raise."""
    from ...backend_interface.capabilities import SupportsReadErrors

    with unobserved():  # code of the device is none of the function
        return isinstance(device.runtime, SupportsReadErrors)


def _read_error(device: Device) -> Exception | None:
    """Return, and forget, what a read would raise now."""
    runtime: Any = device.runtime
    try:
        runtime.synchronize(device.index)
    except TensorbusError as error:
        return error
    return None


def take_read_errors(device: Device) -> list[Exception]:
    """Take all that reads of a device would raise now, the first first."""
    errors: list[Exception] = []
    with unobserved():
        while len(errors) < _MOST_ERRORS and (error := _read_error(device)) is not None:
            errors.append(error)
    return errors


def put_back_read_errors(device: Device, errors: Sequence[Exception]) -> None:
    """Have errors that were taken raised by the next reads after all."""
    runtime: Any = device.runtime
    with unobserved():
        for error in errors:
            runtime.put_back_read_error(error, device.index)


def known_values(tracer: Any, tensors: Sequence[Tensor]) -> list[Tensor] | None:
    """Return tensors of a capture with their values, computed aside; None where that is not possible.

    Of a run that computes nothing the list is empty.
    """
    if any(type(x._value) is LazyValue and x._value.tracer is not tracer for x in tensors):
        return None
    if tracer.prologue.dry:
        return []
    feeds = {d: [feed.value for feed in trace.sources] for d, trace in tracer.traces.items()}
    if not tracer.trial or tracer.shape_env.symbols or any(v is None for vs in feeds.values() for v in vs):
        return None
    computed: dict[int, Tensor] = {}
    for device, trace in tracer.traces.items():
        lazy = {id(x): x for x in tensors if type(x._value) is LazyValue and x.device == device}
        if lazy:
            places = [x._value.place for x in lazy.values()]
            values = tracer.untraced(partial(_values, trace, places, tracer.mode, feeds[device]))
            for x, value in zip(lazy.values(), values, strict=True):
                computed[id(x)] = wrap_settled(value, ValueType.of(x.dtype, device))
    return [computed.get(id(x), x) for x in tensors]


def _values(trace: OpTrace, places: list[int], mode: str, feed: Sequence[Any]) -> Sequence[Any]:
    return compile_single_use(trace, places, mode)(feed)


class LateErrors:
    """The late reads of a program: of these outputs, each with what its numbers are."""

    __slots__ = ("_device", "_index", "_outputs", "_runtime")

    def __init__(self, device: Device, outputs: Sequence[tuple[int, Spec]]) -> None:
        self._runtime: Any = device.runtime
        self._device, self._index, self._outputs = device, device.index, outputs

    def before(self) -> bool:
        """Return whether a read would raise before anything runs; the first of Python's run does then."""
        error = _read_error(self._device)
        if error is None:
            return False
        self._runtime.put_back_read_error(error, self._index)
        return True

    def read(self, results: Sequence[Any]) -> dict[int, HostNumbers]:
        """Return the numbers of outputs by their index, of those that are plain; raises what failed."""
        numbers = {}
        for k, spec in self._outputs:
            data = self._runtime.to_host(results[k], spec.dtype, self._index)
            if is_plain(spec):
                numbers[k] = HostNumbers(scalars(data, spec.dtype), spec.shape)
        if not self._outputs and (error := _read_error(self._device)) is not None:
            raise error
        return numbers

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
            own = _read_error(self._device)
            self._runtime.put_back_read_error(own or error, self._index)
        return result


def late_errors(tracer: Tracer, outputs: list[Any]) -> LateErrors | None:
    """Return the late reads of what a tracer recorded, which become ``outputs``, if there are any.

    Raises ``Uncapturable`` for what Python cannot do again, and notes that the reads cannot wait.
    """
    sites, traces = tracer.sites, [*tracer.traces.values()]
    if not sites.late:
        return None
    places = list(dict.fromkeys(place for place, *_ in sites.late if place is not None))
    is_one = {*tracer.traces} == {device for _, device, _ in sites.late} and traces[0].last_ordered is None
    if not is_one or any(type(x) is not Generator for x in tracer.prologue.owners):
        sites.divide_at_late_reads()
        raise Uncapturable("shows numbers in the middle of work that Python cannot do again")
    outputs += [place for place in places if place not in outputs]
    (trace,) = traces
    return LateErrors(trace.device, [(outputs.index(p), trace.nodes[p].spec) for p in places])


def is_plain(spec: Any) -> bool:
    """Return whether bytes of such values are numbers of Python's as they stand."""
    return spec.dtype in CODES and not is_open(spec.shape)


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
        *body[:at], "try:", *run, *["    n = late.read(o)"] * (late is not None), f"except {errors}:",
        *["    late.note(error)"] * (late is not None),
        *[f"    {name}.set_state(s{name})" for name in streams], "    return FALL_BACK",
    ]  # fmt: skip
