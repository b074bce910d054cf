"""``KnownByIdentity``: a base class of what captured programs hold, and never look into."""

from __future__ import annotations


class KnownByIdentity:
    """An object that decides what a captured function does by being itself, whatever changes inside of it.

    A group of ranks is one: it counts calls and holds connections, and what a program does with it stays the
    same. A guard compares its identity.
    """

    __slots__ = ()
