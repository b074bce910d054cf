"""Passes in a list: each has a name, a function from graph to graph, and what it requires.

``run_passes`` is all that runs them. ``TENSORBUS_VERIFY=1`` checks the graph after each, and names the pass
in the error; ``TENSORBUS_DUMP`` shows the graph after each that changed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..backend_interface.graph import Graph
from ..system.env import verifying
from .verify import GraphError, verify

C = TypeVar("C")
_log: ContextVar[list[tuple[str, str]] | None] = ContextVar("passes", default=None)


def always(_: Any) -> bool:
    """Require nothing but a verified graph."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass(Generic[C]):
    """A rewrite of whole graphs. ``run(graph, context)`` returns the same object where nothing changes.

    It runs where ``requires(context)`` holds: of facts of the target, of what the device serves.
    """

    name: str
    run: Callable[[Graph, C], Graph]
    requires: Callable[[C], bool] = always


def run_passes(graph: Graph, passes: Sequence[Pass[C]], context: C) -> Graph:
    """Return the graph after all passes, in order, whose requirements ``context`` meets."""
    check, log = verifying(), _log.get()
    for each in passes:
        if not each.requires(context):
            continue
        rewritten = each.run(graph, context)
        if rewritten is graph:
            continue
        if check:
            try:
                verify(rewritten)
            except GraphError as error:
                raise GraphError(f"after the pass {each.name!r}: {error}") from error
        if log is not None:
            log.append((each.name, str(rewritten)))
        graph = rewritten
    return graph


@contextmanager
def logged_passes(wanted: bool = True) -> Iterator[list[tuple[str, str]]]:
    """Collect the names of the passes that change a graph meanwhile, each with the graph's text after it."""
    log: list[tuple[str, str]] = []
    token = _log.set(log if wanted else _log.get())
    try:
        yield log
    finally:
        _log.reset(token)


def pass_texts(log: Sequence[tuple[str, str]]) -> str:
    """Return a log as one text, without the graphs that read as the one before them."""
    texts, last = [], ""
    for name, text in log:
        if text != last:
            texts.append(f"after {name}:\n{text}\n")
        last = text
    return "\n".join(texts)
