"""``Parameter``: a tensor that a module learns."""

from __future__ import annotations

import copy
from typing import Any, Final

from ..autograd import view_changes, views
from ..autograd.engine import no_grad
from ..tensor.tensor import Leaf, Tensor, plain_classes
from ..tracing.mutation_counter import bump_mutation_counter


class Parameter(Tensor):
    """A tensor that modules list among their parameters; it requires a gradient unless told otherwise.

    It is a view of ``data``, as in PyTorch: a write to one of the two is seen in the other. Raises
    ``TypeError`` for ``data`` that is no tensor, ``AutogradError`` for a dtype that has no derivative. It
    takes attributes: marks such as ``weight.no_decay = True``, which copies have too.

    >>> import tensorbus as tb
    >>> weight = tb.nn.Parameter(tb.ones((2, 3)))
    >>> weight.requires_grad, weight.is_leaf, isinstance(weight, tb.Tensor)
    (True, True, True)
    """

    def __new__(cls, data: Tensor, requires_grad: bool = True) -> Parameter:
        """Make the cell; there is no ``__init__``, so that copies need no arguments."""
        if not isinstance(data, Tensor):
            raise TypeError(
                f"a Parameter is made from a tensor, got {type(data).__name__}; use tensorbus.asarray."
            )
        cell = data._vtype.cell
        self: Parameter = object.__new__(cls if cell is None else _class_of_both(cls, cell))
        self._set_value(data)
        self._node = None
        views.link(self, data, views.DETACHED)
        if requires_grad:
            self.requires_grad_()
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copied = super().__deepcopy__(memo)
        memo[id(self)] = copied
        vars(copied).update(copy.deepcopy(vars(self), memo))
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        return (*super().__reduce__(), vars(self) or None)

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


plain_classes.add(Parameter)
_of_both: Final[dict[tuple[type, type], Any]] = {}


def _class_of_both(cls: type, cell: type) -> Any:
    """Return the class of parameters whose values have a class of tensors of their own."""
    if issubclass(cls, cell):
        return cls
    both = _of_both.get((cls, cell))
    if both is None:
        joint = type(f"{cell.__name__}{cls.__name__}", (cell, cls), {"__module__": cls.__module__})
        both = _of_both.setdefault((cls, cell), joint)
    return both


STORED: Final = "_stored"
"""The mark of a parameter that is there for a while: the one whose value it was made of."""


def stored(parameter: Tensor) -> Tensor:
    """Return the parameter whose value ``parameter`` was made of for a while, or itself.

    States have that, and it moves: the one of a divided module is in parts.
    """
    known: Tensor = vars(parameter).get(STORED, parameter)
    return known


def hold(cell: Tensor, value: Tensor) -> None:
    """Make ``cell`` hold ``value``, of any dtype and device, and stay the same object.

    Whoever refers to the cell, an optimizer above all, keeps working. A gradient moves along.
    """
    node = cell._node
    gradient = None
    if (
        isinstance(node, Leaf)
        and node.grad is not None
        and node.grad._vtype.materialized is not value._vtype.materialized
    ):
        with no_grad():
            gradient = node.grad.to(value.device, value.dtype)
    if not view_changes.replace(cell, value):
        cell._set_value(value)
    bump_mutation_counter()
    if gradient is not None:
        node.grad = gradient
    elif node is not None and not isinstance(node, Leaf):
        cell._node = value._node
