"""A count of changes to parts of modules, to leaves and to the state of optimizers: guards compare it alone.

It lies this low because all of those bump it, and guards of compiled code read it.
"""

from __future__ import annotations

from typing import Any, Final

mutation_counter: Final = [0]
"""Counts changes to parts of modules, to the state of optimizers, and to which tensors ask for gradients."""
NUMBERS: Final = (int, float)
"""The types of the numbers of ``CountedDict`` that are not counted."""


def bump_mutation_counter() -> None:
    """Count such a change: guards that rely on the counter are checked again."""
    mutation_counter[0] += 1


class CountedDict(dict[Any, Any]):
    """A dict that counts its changes: the state of an optimizer, and that of each parameter in it.

    A number in the place of a number is not counted, as counts of steps change at each step: guards compare
    numbers themselves. Methods of ``dict`` that are called by its name on one of these are not seen.
    """

    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> None:
        is_number = type(value) in NUMBERS and type(self.get(key)) in NUMBERS
        super().__setitem__(key, value)
        if not is_number:
            bump_mutation_counter()

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        bump_mutation_counter()

    def __ior__(self, other: Any) -> CountedDict:  # type: ignore[misc]
        self.update(other)
        return self

    def clear(self) -> None:
        """Remove all entries."""
        super().clear()
        bump_mutation_counter()

    def pop(self, *args: Any) -> Any:
        """Remove an entry and return its value."""
        value = super().pop(*args)
        bump_mutation_counter()
        return value

    def popitem(self) -> tuple[Any, Any]:
        """Remove the last entry and return its key and value."""
        item = super().popitem()
        bump_mutation_counter()
        return item

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return the value of an entry, which is ``default`` from now on where there is none."""
        value = super().setdefault(key, default)
        bump_mutation_counter()
        return value

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add the entries of others; one that fails may have added some."""
        try:
            super().update(*args, **kwargs)
        finally:
            bump_mutation_counter()
