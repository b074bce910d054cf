"""Forward mode by dual numbers: ``dual_level``, ``make_dual``, ``unpack_dual``.

``func.jvp`` is the same as a transform of functions; this is for code that is no function.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..dispatch.levels import levels
from ..errors import AutogradError
from ..tensor.tensor import Tensor
from .forward_mode import ForwardLevel, check_tangent

__all__ = ["UnpackedDual", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


class UnpackedDual(NamedTuple):
    """A primal, and its tangent or None."""

    primal: Tensor
    tangent: Tensor | None


class dual_level(ForwardLevel):  # noqa: N801 - PyTorch's name
    """Context in which tensors can carry tangents. Levels nest: a tensor has a tangent for each.

    At its end, tangents are gone: take them with ``unpack_dual`` before.

    >>> import tensorbus as tb
    >>> import tensorbus.autograd.forward_ad as fwAD
    >>> with fwAD.dual_level():
    ...     x = fwAD.make_dual(tb.asarray([2.0, 3.0]), tb.asarray([1.0, 0.0]))
    ...     fwAD.unpack_dual(x * x).tangent.tolist()
    [4.0, 0.0]
    """

    def __init__(self) -> None:
        self._entered = False

    def __enter__(self) -> Any:
        if self._entered:
            raise AutogradError("dual_level: this level has been entered before; make another one.")
        self._entered = True
        super().__init__()
        return super().__enter__()


_open: list[dual_level] = []


def enter_dual_level() -> int:
    """Enter a level, until ``exit_dual_level``; return its number. ``with dual_level():`` is safer."""
    level = dual_level()
    level.__enter__()
    _open.append(level)
    return level.device.index


def exit_dual_level(*, level: int | None = None) -> None:
    """Leave the level that was entered last by ``enter_dual_level``.

    Raises ``AutogradError`` where there is none, or it has another number than ``level``.
    """
    if not _open or level not in (None, _open[-1].device.index):
        raise AutogradError(
            "exit_dual_level: levels are left in the order opposite to that in which they were entered;"
            f" {'none is entered' if not _open else f'the last one is {_open[-1].device.index}'}."
        )
    _open.pop().__exit__(None, None, None)


def _innermost() -> ForwardLevel | None:
    return next((level for level in reversed(levels()) if isinstance(level, ForwardLevel)), None)


def _level(who: str) -> ForwardLevel:
    if (level := _innermost()) is not None:
        return level
    raise AutogradError(f"{who}: there is no level to carry tangents; use it inside of 'with dual_level():'.")


def make_dual(primal: Tensor, tangent: Tensor) -> Tensor:
    """Return ``primal`` with a tangent, for the innermost level; gradients flow to both.

    Raises ``AutogradError`` outside of a ``dual_level``, and for a tangent of another shape or dtype.
    """
    level = _level("make_dual")
    check_tangent("make_dual", primal, tangent)
    primal, known = level.parts_of(primal)
    if known is not None:
        raise AutogradError(
            "make_dual: this tensor carries a tangent of this level already; unpack it first."
        )
    return level.dual(primal, tangent)


def unpack_dual(x: Tensor) -> UnpackedDual:
    """Return the primal of a tensor, and its tangent in the innermost level, None where that is zero.

    Outside of a ``dual_level`` no tensor has one.
    """
    if not isinstance(x, Tensor):
        raise AutogradError(f"unpack_dual: a tensor is needed, got {type(x).__name__}.")
    level = _innermost()
    return UnpackedDual(x, None) if level is None else UnpackedDual(*level.parts_of(x))
