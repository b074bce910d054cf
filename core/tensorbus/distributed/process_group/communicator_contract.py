"""Checks of a communicator: a fault of a plugin is told with its name, and gives no wrong tensors."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

from ...backend_interface.communication import CommunicatorFactory, Rendezvous, Shape
from ...devices.device import Device
from ...dtypes.definition import DType
from ...errors import DistributedError, PluginError, TensorbusError
from ...plugins.contract import check_methods
from ...tensor.tensor import Tensor
from .unreturned_calls import limited

METHODS: Final = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "receive", "barrier",
    "abort", "close",
)  # fmt: skip
"""The methods that every communicator has."""


class CheckedCommunicator:
    """A rank's end of what is called ``name``, whose errors and results name it where they are none.

    What else the end has is had as it is.
    """

    def __init__(self, name: str, end: Any, meeting: Rendezvous) -> None:
        rank = meeting.rank
        self.name, self._end, self._rank = name, end, meeting.ranks[rank]
        for method in ("all_reduce", "broadcast", "receive"):
            self._check(method, lambda x, *_: [_like(x)])
        self._check("reduce_scatter", lambda xs, *_: [_like(xs[rank])])
        for method in ("all_gather", "all_to_all"):
            self._check(method, lambda x, shapes: _of_shapes(x, shapes))
        for method in ("send", "barrier"):
            self._check(method, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._end, name)

    def _check(self, method: str, due: Callable[..., list[_Spec]] | None) -> None:
        name, here, call = self.name, self._rank, getattr(self._end, method)

        @functools.wraps(call)
        def checked(*args: Any, **kwargs: Any) -> Any:
            try:
                result = call(*args, **kwargs)
            except TensorbusError:
                raise
            except Exception as error:
                raise DistributedError(
                    f"communicator {name!r}: {method} raised {type(error).__name__} on rank {here}: {error}."
                ) from error
            if due is not None:
                _check_result(name, method, result, due(*args))
            return result

        setattr(self, method, checked)


_Spec = tuple[Shape, DType, Device]


def _like(x: Tensor) -> _Spec:
    return x.shape, x.dtype, x.device


def _of_shapes(x: Tensor | Sequence[Tensor], shapes: Sequence[Shape]) -> list[_Spec]:
    first = x if isinstance(x, Tensor) else x[0]
    return [(tuple(shape), first.dtype, first.device) for shape in shapes]


def _check_result(name: str, method: str, result: Any, due: list[_Spec]) -> None:
    results = [result] if isinstance(result, Tensor) else result
    is_list = isinstance(results, (list, tuple))
    if is_list and [_like(x) if isinstance(x, Tensor) else None for x in results] == due:
        return
    returned = [_described(x) for x in results] if is_list else type(result).__name__
    wanted = [f"{dtype}{[*shape]} on {device}" for shape, dtype, device in due]
    raise PluginError(
        f"communicator {name!r}: {method} returned {returned}, where {wanted} is due. `tensorbus conformance"
        f" --communicator {name}` examines it."
    )


def _described(x: object) -> str:
    return f"{x.dtype}{[*x.shape]} on {x.device}" if isinstance(x, Tensor) else type(x).__name__


def verdict_of(name: str, factory: CommunicatorFactory, device_type: str, meeting: Rendezvous) -> bool | str:
    """Return whether it connects tensors of a device type for these ranks, or the reason why not.

    One whose answer is none, or that raises, does not; a warning says so.
    """
    try:
        answer = factory.verdict(device_type, meeting)
    except Exception as error:
        answer = f"its verdict raised {type(error).__name__}: {error}"
        problem = answer
    else:
        if isinstance(answer, bool | str):
            return answer
        problem = f"its verdict is {answer!r}, and must be True, or the reason why not"
    warnings.warn(f"communicator {name!r} is left out: {problem}.", RuntimeWarning, stacklevel=2)
    return problem


def connected(name: str, factory: CommunicatorFactory, meeting: Rendezvous) -> CheckedCommunicator:
    """Return this rank's end of a communicator. Raises ``DistributedError`` or ``PluginError``, naming it."""
    here = f"rank {meeting.ranks[meeting.rank]} in group {meeting.name!r}"
    try:
        with limited(f"communicator {name!r}: connect of {here}", meeting.timeout):
            end = factory.connect(meeting)
    except TensorbusError:
        raise
    except Exception as error:
        raise DistributedError(
            f"communicator {name!r} does not connect group {meeting.name!r}: {type(error).__name__}: {error}."
        ) from error
    check_methods(f"communicator {name!r}: connect", end, METHODS, "Communicator")
    return CheckedCommunicator(name, end, meeting)
