"""The names that device types may have."""

from __future__ import annotations


def is_type_name(text: str) -> bool:
    """Return whether ``text`` can name a device type: ASCII letters, digits, ``_`` and ``-``.

    >>> is_type_name("my_npu"), is_type_name("npu:0")
    (True, False)
    """
    return text.isascii() and text.replace("_", "").replace("-", "").isalnum()
