"""A count of changes to parts of modules and to leaves, which guards compare instead of everything.

It lies this low because parts of modules and leaves of the tape bump it, and guards of compiled code read it.
"""

from __future__ import annotations

from typing import Final

mutation_counter: Final = [0]
"""Counts changes to parts of modules, and to which tensors ask for gradients."""


def bump_mutation_counter() -> None:
    """Count such a change: guards that rely on the counter are checked again."""
    mutation_counter[0] += 1
