"""Checks of what plugins hand over: an error names the plugin, and what its protocol asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..errors import PluginError, TensorbusError


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Let errors of a plugin's code, but for tensorbus's own, say what raised them."""
    try:
        yield
    except TensorbusError:
        raise
    except Exception as error:
        raise PluginError(f"{what} raised {type(error).__name__}: {error}.") from error


def check_methods(what: str, value: object, methods: Sequence[str], protocol: str) -> None:
    """Raise ``PluginError`` where what a plugin returned lacks one of the methods of a protocol."""
    missing = [method for method in methods if not callable(getattr(value, method, None))]
    if missing:
        raise PluginError(
            f"{what} returned {type(value).__name__!r}, which has no {', '.join(missing)};"
            f" tensorbus.backend_api.{protocol} says what is needed."
        )
