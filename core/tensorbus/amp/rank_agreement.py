"""Decisions that ranks take together: the package of ranks says how, when it is imported.

Without it there is one rank, and parameters are all its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..tensor.tensor import Tensor


@dataclass(frozen=True)
class RankAgreement:
    """Ways to ask other ranks."""

    part_of: Callable[[Tensor], Tensor]
    """Return what this rank has of a tensor."""
    groups_of: Callable[[Sequence[Tensor]], Sequence[Any]]
    """Return the groups of ranks that share parameters, the same on each of their ranks."""
    any_of: Callable[[bool, Sequence[Any]], bool]
    """Return whether a flag is set on any rank of the groups; all of them ask."""


def _itself(x: Tensor) -> Tensor:
    return x


def _none(parameters: Sequence[Tensor]) -> Sequence[Any]:
    return ()


def _own(flag: bool, groups: Sequence[Any]) -> bool:
    return flag


_current = [RankAgreement(_itself, _none, _own)]


def current() -> RankAgreement:
    """Return the way to ask other ranks."""
    return _current[0]


def provide_agreement(agreement: RankAgreement) -> None:
    """Let ranks be asked by ``agreement``."""
    _current[0] = agreement
