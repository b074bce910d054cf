"""The calls by which rewritten functions copy numbers that are read later: see ``late_reads``.

What cannot be read later is read at once, which ends a capture, and raises what it raises.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from ...devices.device import Device
from ...dispatch.modes import is_value_mode
from ...dtypes.definition import bool_
from ...tensor.tensor import Tensor
from ...tracing.active_tracer import active_tracer
from ...tracing.lazy_value import LazyValue
from ...tracing.sym_int import SymInt
from ...tracing.sym_number import SymNumber
from ..capture.side_effect_observer import unobserved
from ..replay.late_errors import known_values, put_back_read_errors, take_read_errors, tells_read_errors
from ..replay.read_values import NOT_READ, ReadValue
from ..state.value_identity import exact_isinstance

SEQUENCES: Final = frozenset({"tolist", "numpy"})
"""The kinds of reads that give more than one number."""
VALUE: Final = "value"
"""The kind of what is no read: a plain value, which is what it is where the statement is written."""


SCALARS: Final = frozenset({bool, int, float, str, bytes, type(None)})
_NUMBERS: Final = (bool, int, float)


_IN_PLACE: Final[dict[str, Callable[[int, Any], object]]] = {"+=": operator.iadd, "-=": operator.isub}


def snapshot(x: Any, kind: str, probe: Callable[[Any], object] | str | None = None) -> Any:
    """Return what ``x.item()``, ``float(x)`` and the like, by ``kind``, gives later what it gives now.

    A capture for a device whose reads raise errors of other work computes the value aside first: where that
    fails, it fails at the line. What is computed late of the number works for each that is real: ``probe``
    fails as it does for others, or is what adds it to a number.
    """
    if type(x) is ReadValue:
        return x
    is_value = kind.startswith(VALUE)
    if is_value and is_fixed(x, kind):
        return x
    if is_readable(x, kind) and (probe is None or not x.dtype.is_complex):
        if never_fails(x, kind) and kind != "numpy":  # which may be the memory itself
            return x.detach().clone()
        tracer = active_tracer()
        known = known_values(tracer, [x]) if tracer is not None and may_wait_for_errors(x, kind) else None
        if known is not None:
            return copies(tracer, [(kind, x)], known)[0]
    value = read(x, kind)
    if (
        is_value and (tracer := active_tracer()) is not None
    ):  # what may change is shown at its line from now on
        tracer.materialize("a value is shown that may change")
    if probe is not None and type(value) not in _NUMBERS and not is_value:
        if isinstance(probe, str):
            _IN_PLACE[probe](0, value)
        else:
            probe(value)
    return ReadValue(value)


def copies(tracer: Any, reads: Sequence[tuple[str, Any]], known: Sequence[Any]) -> list[Any]:
    """Return what a capture hands on for reads that wait; ``known`` are their tensors, computed aside.

    These are read at once: where one fails, it fails where eager code does.
    """
    waiting = [(kind, x) for kind, x in reads if exact_isinstance(x, Tensor)]
    values: list[Any] = [NOT_READ] * len(waiting)
    if not tracer.prologue.dry:
        kinds = [kind for kind, _ in waiting]
        devices = {x.device for _, x in waiting}
        values = _read_known(tracer, lambda: [*map(read, known, kinds)], devices)
    copied = iter([_copied(tracer, x, value, kind) for (kind, x), value in zip(waiting, values, strict=True)])
    return [next(copied) if exact_isinstance(x, Tensor) else x for _, x in reads]


def _copied(tracer: Any, x: Tensor, value: Any, kind: str) -> ReadValue:
    copy = x.detach().clone()
    place = copy._value.place if type(copy._value) is LazyValue else None
    tracer.sites.note_late_read(place, x.device)
    return ReadValue(value, copy, kind == "numpy")


def _read_known(tracer: Any, read_all: Callable[[], list[Any]], devices: Iterable[Device]) -> list[Any]:
    """Return what is read of what a capture has computed aside.

    Where that fails the capture is over, and what somebody holds of it is computed: eager code has computed
    it once, and not failed again.
    """
    try:
        values: list[Any] = tracer.untraced(read_all)
    except Exception:
        waiting = {device: take_read_errors(device) for device in devices}
        tracer.run()
        for device, errors in waiting.items():
            take_read_errors(device)
            put_back_read_errors(device, errors)
        raise
    return values


def read(x: Any, kind: str) -> Any:
    """Return what a read gives now."""
    if kind.startswith(VALUE):
        return x
    if kind in ("float", "int"):
        return float(x) if kind == "float" else int(x)
    return getattr(x, kind)()


def is_fixed(x: Any, kind: str) -> bool:
    """Return whether a value is plain: what it shows stays as it is, and an entry has it or computes it.

    ``kind`` has the format behind a colon, in which it has to be shown: that depends on the type.
    """
    plain = x.hint if type(x) is SymInt else x.plain if type(x) is SymNumber else x
    if type(plain) not in SCALARS:
        return False
    try:
        format(plain, kind.partition(":")[2])
    except (TypeError, ValueError):
        return False
    return True


def is_readable(x: Any, kind: str) -> bool:
    """Return whether ``x`` is a tensor with what a read by ``kind`` gives, whatever is in it."""
    return exact_isinstance(x, Tensor) and (kind in SEQUENCES or x.size == 1) and has_numbers(x, kind)


def never_fails(x: Tensor, kind: str) -> bool:
    """Return whether a read by ``kind`` raises for no value of ``x``, nor the error of other work."""
    from ...backend_interface.capabilities import SupportsImmediateErrors

    if not has_numbers(x, kind):
        return False
    runtime = x.device.runtime
    with unobserved():  # code of the device is none of the function
        return isinstance(runtime, SupportsImmediateErrors) and runtime.raises_at_once(x.device.index)


def may_wait_for_errors(x: Tensor, kind: str) -> bool:
    """Return whether a read may wait for its program where others are asked what they would raise."""
    return not never_fails(x, kind) and tells_read_errors(x.device)


def has_numbers(x: Tensor, kind: str) -> bool:
    """Return whether a read by ``kind`` raises for no value of ``x``."""
    if kind == "int" and not (x.dtype.is_integer or x.dtype is bool_):
        return False
    return not ((kind == "float" and x.dtype.is_complex) or is_value_mode(x.device.type))
