"""The errors that tensorbus raises on purpose.

Every message says what was asked, what was got, what is needed and what to do. Each class also derives
from the built-in exception that Python programs would expect, so ``except ValueError`` keeps working.
"""

from __future__ import annotations

from collections.abc import Iterable


class TensorbusError(Exception):
    """Base of every error that tensorbus raises on purpose."""


class ShapeError(TensorbusError, ValueError):
    """Shapes, axes or sizes do not fit the op: nothing was computed and no tensor was changed."""


class AxisError(ShapeError, IndexError):
    """A tensor has no such axis: also an ``IndexError``, as the array API standard asks for."""


class DtypeError(TensorbusError, TypeError):
    """The op is not defined for these dtypes, or they have no common dtype to promote to."""


class UnsupportedDtypeError(DtypeError):
    """The op is defined for this dtype but the device does not have it; nothing is widened silently."""


class ValuesError(TensorbusError):
    """The op does not exist for the values that its operands turned out to hold; for others it may.

    Kernels raise a class derived from this one, and nothing else, for what depends on values. A function
    whose compiled program raises it is run by Python, which finds the line and what handles the error.
    """


class IndexingError(ValuesError, IndexError):
    """An index is out of range, or of a kind that indexes nothing."""


class ArgumentError(TensorbusError, ValueError):
    """A setting is out of its range, unknown, or contradicts another one: nothing was made or changed."""


class LinAlgError(ValuesError, ValueError):
    """A matrix has no such factors: it is singular, not positive definite, or holds NaN or infinities."""


class StateError(TensorbusError, RuntimeError):
    """A state dict, or the file it is kept in, is damaged or does not fit: nothing was changed."""


class AutogradError(TensorbusError, RuntimeError):
    """A gradient was asked for that the recorded history cannot give."""


class UnsupportedOpError(TensorbusError, NotImplementedError):
    """No kernel and no decomposition serves the op on this device. Names where it is supported."""


class CaptureError(TensorbusError, RuntimeError):
    """A function cannot be compiled as it was asked for: the message shows the line and says why."""


class PluginError(TensorbusError, RuntimeError):
    """A plugin broke its contract: manifest, API range, hook signature, or two claims to one name."""


class DeviceError(TensorbusError, RuntimeError):
    """A device failed while working, or tensors of several devices met in one op."""


class DeviceUnavailableError(DeviceError):
    """A device type cannot be used here. Says whether it is installed, its version, why, what to do."""


class DistributedError(TensorbusError, RuntimeError):
    """Ranks do not fit together, one of them failed, or what connects them did.

    >>> import tensorbus as tb
    >>> try:
    ...     tb.distributed.get_rank()
    ... except DistributedError as error:
    ...     print(str(error)[:27])
    this program is no rank yet
    """


class DistributedTimeoutError(DistributedError, TimeoutError):
    """Another rank did not do in time what this one waits for.

    >>> import tensorbus as tb
    >>> try:
    ...     tb.distributed.MemoryStore().get("address", 0.01)
    ... except DistributedTimeoutError as error:
    ...     print(error)
    store: nobody set 'address' within 0.01 seconds.
    """


class OutOfMemoryError(DeviceError, MemoryError):
    """A device has no room for the value asked for. Every existing tensor is still valid."""


def suggest(word: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the nearest of ``known``, or the empty string.

    >>> suggest("OpenCLL", ["cpu", "opencl"])
    " Did you mean 'opencl'?"
    >>> suggest("nope", ["cpu", "opencl"])
    ''
    """
    import difflib  # only where something is already wrong

    names = {name.lower(): name for name in reversed(list(known))}
    near = difflib.get_close_matches(word.lower(), list(names)[::-1], n=1, cutoff=0.65)
    return f" Did you mean {names[near[0]]!r}?" if near else ""
