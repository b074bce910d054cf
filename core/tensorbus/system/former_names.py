"""Fields that have a new name: the former one is taken and read as well, so that packages go on working."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T", bound=type)


def former_names(**fields: str) -> Callable[[T], T]:
    """Let a dataclass take and show ``fields`` under their former names too: ``former="field"``.

    >>> from dataclasses import dataclass
    >>> @former_names(width="size")
    ... @dataclass(frozen=True, kw_only=True)
    ... class Vector:
    ...     size: int = 0
    >>> Vector(width=16).size, Vector(size=16).width
    (16, 16)
    """

    def decorate(cls: T) -> T:
        init = vars(cls)["__init__"]

        @wraps(init)
        def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
            for name in kwargs.keys() & fields.keys():
                kwargs[fields[name]] = kwargs.pop(name)
            init(self, *args, **kwargs)

        type.__setattr__(cls, "__init__", initialize)
        for former, field in fields.items():
            setattr(cls, former, property(attrgetter(field), doc=f"The former name of ``{field}``."))
        return cls

    return decorate
