"""Remarks on a run that parts above dispatch leave for ``explain``: collectives of a redistribution, say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_remarks: Final[ContextVar[list[str] | None]] = ContextVar("tensorbus_remarks", default=None)


def remark(text: Callable[[], str]) -> None:
    """Tell ``text()`` to whoever listens in this thread or task; it is not called where nobody does."""
    noted = _remarks.get()
    if noted is not None:
        noted.append(text())


@contextmanager
def remarks() -> Iterator[list[str]]:
    """Collect what is remarked in this thread or task meanwhile.

    >>> with remarks() as noted:
    ...     remark(lambda: "all_gather")
    >>> noted
    ['all_gather']
    """
    noted: list[str] = []
    token = _remarks.set(noted)
    try:
        yield noted
    finally:
        _remarks.reset(token)
