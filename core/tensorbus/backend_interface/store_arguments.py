"""Arguments of stores: what all kinds of them take, and refuse by the same errors.

A key is text that UTF-8 can encode, a value is bytes, a limit is a number of seconds, a sum has 64 bits. A
store that let anything else through would keep on one kind what it loses on another.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from ..errors import ArgumentError, DistributedError

LONGEST: Final = 1e8
"""Seconds, three years: what clocks and sockets of all platforms can wait, and so what "for ever" is."""
_BITS: Final = 63
_DIGITS: Final = 20
"""No number of 64 bits is longer as text, its sign included."""


def store_key(key: Any) -> str:
    """Return a key. Raises ``ArgumentError`` for what is no text, or none that can be encoded."""
    if not isinstance(key, str):
        raise ArgumentError(f"store: a key is a str, got {reprlib.repr(key)} of {type(key).__name__}.")
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(
            f"store: a key is text that UTF-8 can encode, got {reprlib.repr(key)}: {error.reason}."
        ) from None
    return key


def store_keys(keys: Iterable[Any]) -> list[str]:
    """Return several keys. One text alone is refused, whose letters would be keys.

    >>> store_keys(("a", "b"))
    ['a', 'b']
    """
    if isinstance(keys, str | bytes):
        raise ArgumentError(
            f"store: several keys are a list of str, got {reprlib.repr(keys)}; write [{reprlib.repr(keys)}]."
        )
    return [store_key(key) for key in keys]


def store_value(value: Any) -> bytes:
    """Return a copy of a value. Raises ``ArgumentError`` for what holds no bytes.

    >>> store_value(bytearray(b"ab"))
    b'ab'
    """
    if isinstance(value, str):
        text = reprlib.repr(value)
        raise ArgumentError(f"store: a value is bytes, got {text} of str; write {text}.encode().")
    if not isinstance(value, bytes | bytearray | memoryview):
        raise ArgumentError(f"store: a value is bytes, got {reprlib.repr(value)} of {type(value).__name__}.")
    return bytes(value)


def store_pairs(keys: Iterable[Any], values: Iterable[Any]) -> tuple[list[str], list[bytes]]:
    """Return several keys and as many values. Raises ``ArgumentError`` where they are not as many.

    >>> store_pairs(["a"], [bytearray(b"1")])
    (['a'], [b'1'])
    """
    names, contents = store_keys(keys), [store_value(value) for value in values]
    if len(names) != len(contents):
        raise ArgumentError(
            f"store: multi_set: {len(names)} keys and {len(contents)} values; each key has one value."
        )
    return names, contents


def store_seconds(seconds: Any, default: float) -> float:
    """Return a limit: at most ``LONGEST``, where infinity was asked for; None is the default.

    >>> store_seconds(timedelta(minutes=1), 0)
    60.0
    """
    if seconds is None:
        return default
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds):
        raise ArgumentError(f"store: a limit is a number of seconds, got {seconds!r}.")
    return float(max(min(seconds, LONGEST), -LONGEST))


def store_amount(amount: Any) -> int:
    """Return what is added. Raises ``ArgumentError`` for what is no integer of 64 bits."""
    if isinstance(amount, bool) or not isinstance(amount, int) or not _fits(amount):
        raise ArgumentError(f"store: add: an amount is an integer of 64 bits, got {reprlib.repr(amount)}.")
    return amount


def store_sum(key: str, current: bytes | None, amount: int) -> int:
    """Return the sum of what a key holds and an amount.

    Raises ``DistributedError`` where the key holds no number, or the sum has more than 64 bits.

    >>> store_sum("ranks", b"2", 3)
    5
    """
    text = b"0" if current is None else current
    if not text.removeprefix(b"-").isdigit() or (len(text) <= _DIGITS and str(int(text)).encode() != text):
        raise DistributedError(
            f"add: {key!r} holds {text[:80]!r}, which is no number, or not as add writes it: b'7', b'-7'."
        )
    total = int(text) + amount if len(text) <= _DIGITS else 1 << _BITS
    if not _fits(total):
        raise DistributedError(f"add: {key!r} holds {text[:80]!r}, and with {amount} has more than 64 bits.")
    return total


def _fits(number: int) -> bool:
    return -(1 << _BITS) <= number < 1 << _BITS
