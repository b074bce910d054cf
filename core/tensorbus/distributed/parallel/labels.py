"""Labels by which ranks compare what they communicate: names of parameters, and a number of their module.

Modules of one class have parameters of the same names, shapes and dtypes: without a number, a rank that runs
another one than the rest would exchange values with them that nobody notices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from zlib import crc32

from ...nn.module import Module
from ..process_group.group import ProcessGroup

_SHOWN: Final = 3
"""How many names a label has; of more it has a checksum."""


def label_of(group: ProcessGroup, module: Module, names: Sequence[str]) -> str:
    """Return the label of a module's parameters with these names, which the ranks of a group spread."""
    shown = ", ".join(map(repr, names[:_SHOWN]))
    if len(names) > _SHOWN:
        shown += f" and {len(names) - _SHOWN} more ({crc32(' '.join(names).encode()):08x})"
    return numbered(group, f"{shown} of {type(module).__name__}")


def label_as(module: Module, label: str) -> None:
    """Keep the label of a module that is split over ranks."""
    vars(module)["_label"] = label


def labeled(module: Module, what: str) -> str:
    """Return the label of what goes into a module that is split over ranks, or comes out, "" without one."""
    label = vars(module).get("_label", "")
    return label and f"{what} of {label}"


def numbered(group: ProcessGroup, text: str) -> str:
    """Return the text with a number: how many the ranks of the group have spread before that it fits."""
    number = group.label_counts[text] = group.label_counts.get(text, 0) + 1
    return f"{text} #{number}"
