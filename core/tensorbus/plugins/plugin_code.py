"""Runs the code of plugins, and says whose it is before it runs: a process that dies of it names the plugin.

A crash leaves Python no time to say anything. What Python's ``faulthandler`` writes then are the names of
functions and files that run, so the frame that calls a plugin has the plugin and what it is asked for in the
place of a file.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any, Final, TypeVar

from .foreign_text import error_text

T = TypeVar("T")
Listener = Callable[[str, str, bool], None]
"""Is told the owner, what it is asked for, and whether that begins (True) or has ended."""

_ERROR_STREAM: Final = 2
_listeners: Final[list[Listener]] = []


def run_plugin_code(owner: str, request: str, work: Callable[[], T]) -> T:
    """Return what ``work`` returns, which runs code of the plugin ``owner`` (distribution and version).

    ``request`` says what it is asked for, such as ``"importing it"``.
    """
    _report_crashes()
    for listener in _listeners:
        listener(owner, request, True)
    try:
        result: T = _frame(owner, request)(work)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        error_text(error)  # which may be code of the plugin's too, and takes part in its time
        raise
    finally:
        for listener in _listeners:
            listener(owner, request, False)
    return result


def on_plugin_code(listener: Listener) -> None:
    """Call ``listener`` before and after all code of plugins from now on, in the thread that runs it."""
    _listeners.append(listener)


def _call(work: Callable[[], Any]) -> Any:
    return work()


@lru_cache(256)
def _frame(owner: str, request: str) -> Callable[[Callable[[], Any]], Any]:
    """Return ``_call`` with the plugin in the place of its file, as tracebacks show it."""
    return FunctionType(_call.__code__.replace(co_filename=f"<plugin {owner}: {request}>"), globals())


def _report_crashes() -> None:
    """Let Python write what runs to the error stream if the process crashes, as far as nobody does it yet.

    It stays so: to undo it could undo handlers that the plugin has installed for itself.
    """
    if faulthandler.is_enabled():
        return
    try:
        os.fstat(_ERROR_STREAM)
        faulthandler.enable(_ERROR_STREAM)
    except (OSError, RuntimeError, ValueError):  # a process without an error stream
        pass
