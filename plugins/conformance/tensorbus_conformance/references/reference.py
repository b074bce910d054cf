"""``Reference``: the right result of one op, and the tolerance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The function ``function(*operands, **attrs)`` over arrays, with attributes as kernels see them.

    Operands come in float64 or complex128 (integers and bools as they are, all as they are for ``own``), and
    so may results; of an op of several results it gives a tuple. ``ulps`` is the error allowed, in units in
    the last place of the result, or of what ``scale(*operands, **attrs)`` says where a sum or a difference
    loses digits. ``terms(*operands, **attrs)`` is how many numbers of one sign a result adds up: one after
    the other in a dtype of 32 bits or more, n of them are off by sqrt(n) / 6 units as a rule, and six times
    that is allowed beside ``ulps``. ``exact`` asks for the same bits, signs of zeros too; ``zeros`` for those
    signs alone, where the standard states them: of real floats. A result of which only some properties are
    determined (a decomposition of a matrix) has ``judge(results, operands, attrs)`` instead, over widened
    arrays, which gives triples: what should be equal, twice, and the scale of the difference.
    """

    function: Callable[..., Any] | None = None
    ulps: float = 0.0
    scale: Callable[..., Any] | None = None
    terms: Callable[..., int] | None = None
    exact: bool = False
    own: bool = False
    zeros: bool = False
    judge: Callable[..., Any] | None = None
