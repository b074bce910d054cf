"""Requests: which there are, and of what types their arguments are. What a client sends is not trusted."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from operator import call
from typing import Any, Final


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_bytes(value: Any) -> bool:
    return type(value) is bytes


def _is_integer(value: Any) -> bool:
    return type(value) is int


def _is_number(value: Any) -> bool:
    return type(value) is float or type(value) is int


def _is_number_or_none(value: Any) -> bool:
    return value is None or _is_number(value)


def _are_texts(value: Any) -> bool:
    return type(value) is list and all(type(each) is str for each in value)


def _are_bytes(value: Any) -> bool:
    return type(value) is list and all(type(each) is bytes for each in value)


AT_ONCE: Final[dict[str, tuple[Callable[[Any], bool], ...]]] = {
    "set": (_is_text, _is_bytes, _is_number_or_none),
    "add": (_is_text, _is_integer),
    "check": (_are_texts,),
    "compare_set": (_is_text, _is_bytes, _is_bytes),
    "delete_key": (_is_text,),
    "multi_get": (_are_texts,),
    "multi_set": (_are_texts, _are_bytes),
    "list_keys": (_is_text,),
    "num_keys": (),
    "append": (_is_text, _is_bytes),
    "queue_push": (_is_text, _is_bytes),
    "queue_len": (_is_text,),
}
"""Those that are answered at once, by the method of the table that is called the same."""
_WAITING: Final[dict[str, tuple[Callable[[Any], bool], ...]]] = {
    "get": (_is_text, _is_number),
    "wait": (_are_texts, _is_number),
    "queue_pop": (_is_text, _is_number),
}
_OF_CONNECTIONS: Final[dict[str, tuple[Callable[[Any], bool], ...]]] = {
    "set_on_loss": (_is_text, _is_bytes),
}  # fmt: skip
_ALL: Final = {**AT_ONCE, **_WAITING, **_OF_CONNECTIONS}


def request_of(message: Any) -> tuple[str, list[Any]]:
    """Return the operation and the arguments of a message. Raises ``ValueError`` for what is no request.

    >>> request_of(["add", "ranks", 1])
    ('add', ['ranks', 1])
    """
    if not isinstance(message, list) or not message:
        raise ValueError("a request is a list of an operation and its arguments")
    operation, *arguments = message
    kinds = _ALL.get(operation) if isinstance(operation, str) else None
    if kinds is None:
        raise ValueError(f"no operation is called {reprlib.repr(operation)}")
    if len(arguments) != len(kinds) or not all(map(call, kinds, arguments)):
        names = [is_it.__name__.split("_", 2)[2].replace("_", " ") for is_it in kinds]
        raise ValueError(f"{operation} takes {', '.join(names)}; these arguments are others")
    return operation, arguments
