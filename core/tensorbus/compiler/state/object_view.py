"""The view of one Python object: its state, in a form to compare later, and its references to others.

A captured function reads and mutates the state of objects. ``inspection`` makes their views.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ...devices.device import ValueType
from ...tensor.tensor import Leaf, Tensor

_LITERAL_KEY_TYPES: Final = frozenset({type(None), bool, int, str, bytes})
"""The types of keys whose ``repr`` is their expression."""


class Uncapturable(Exception):  # noqa: N818 - it is told, not raised to users
    """The reason why Python must run the function itself at each call."""


class OpaqueObject(Uncapturable):
    """The code names something that Python cannot look into, such as a file: it may show something on it."""


class StateNotSettled(Uncapturable):
    """The run initialized state that the next one finds: the next call is worth another capture."""


class ChildRef(NamedTuple):  # created by the thousand, like views: thrice as fast as a frozen dataclass
    """A reference to a child: ``access`` is the code that gets it, ``stable``: it never changes.

    ``constant``: the child is known without its holder, as an object that is the key of a dict.
    """

    key: Any
    access: str
    value: Any
    stable: bool = False
    constant: bool = False


class ExtraGuard(NamedTuple):
    """A guard beyond those on children: ``code`` of the object ``{at}`` and the constant ``{k}``."""

    code: str
    value: Callable[[], Any]
    text: str


class ObjectView(NamedTuple):
    """The ``kind`` of an object, its own ``state``, and its ``children``: see ``inspection``.

    ``extra_guards`` are conditions on absent names that code reads, for example.
    """

    kind: str
    state: Any
    children: tuple[ChildRef, ...] = ()
    extra_guards: tuple[ExtraGuard, ...] = ()


@dataclass(slots=True, eq=False)
class TensorState:
    """The contents of a tensor, compared by identity."""

    value: Any
    vtype: ValueType
    node: Any
    grad: Any
    hooks: int

    @staticmethod
    def of(x: Tensor) -> TensorState:
        """Return the contents of ``x``."""
        node = x._node
        leaf = isinstance(node, Leaf)
        return TensorState(
            x._value,
            x._vtype.materialized,
            node,
            node.grad if leaf else None,
            len(getattr(node, "hooks", ())) if leaf else 0,
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TensorState) and self.value is other.value and self.vtype is other.vtype
            and self.node is other.node and self.grad is other.grad and self.hooks == other.hooks
        )  # fmt: skip

    __hash__ = None  # type: ignore[assignment]


class AllAttributes(frozenset[str]):
    """All attributes are inspected; of tensorbus's own modules, which have hundreds, only these names."""


class KeyAccess(str):
    """The access to an entry of a dict, by ``key``, which may be an object without an expression."""

    key: Any

    def __new__(cls, key: Any) -> KeyAccess:
        """Return the access by an expression of the key where it has one, else by a placeholder."""
        access = super().__new__(cls, f"[{key!r}]" if type(key) in _LITERAL_KEY_TYPES else "[?]")
        access.key = key
        return access
