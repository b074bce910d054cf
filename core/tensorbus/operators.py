"""Python's operators and the methods of ``Tensor``, attached from the op table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .ops import activation, creation, indexing, matmul, movement, reduction, softmax
from .ops.op import Op, table
from .tensor import Tensor

BINARY: Final = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip
COMPARISON: Final = {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal"
}  # fmt: skip
UNARY: Final = {"neg": "negative", "abs": "abs", "invert": "bitwise_invert"}

_PLAIN_METHODS: Final[tuple[Callable[..., Any], ...]] = (
    reduction.var, reduction.std, softmax.logsumexp, movement.expand_dims, movement.squeeze, movement.flatten,
    indexing.take, indexing.nonzero, matmul.matmul, creation.tril, creation.triu, activation.gelu,
    activation.clip,
)  # fmt: skip


def _reflected(function: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
    return lambda self, other: function(other, self)


def _in_place(function: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
    def change(self: Tensor, other: Any) -> Tensor:
        self.rebind(function(self, other))
        return self

    return change


def _compared(function: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Any]:
    """``x == None`` and the like are left to Python, which compares identities."""

    def compare(self: Tensor, other: Any) -> Any:
        if type(other) is Tensor or isinstance(other, (Tensor, bool, int, float, complex)):
            return function(self, other)
        return function(self, other) if hasattr(other, "dtype") else NotImplemented

    return compare


def _one_by_one(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Let lengths or axes be given as one tuple or one by one."""

    def method(self: Tensor, *lengths: Any, **named: Any) -> Tensor:
        if not lengths:
            return function(self, **named)
        single = len(lengths) == 1 and not hasattr(lengths[0], "__index__")
        return function(self, lengths[0] if single else lengths, **named)

    return method


def attach_op(op: Op[...]) -> None:
    """Make a method of an op whose first operand is a tensor, unless the name is taken."""
    if op.operands and not op.operands[0].startswith("*") and not hasattr(Tensor, op.name):
        setattr(Tensor, op.name, table.function(op.name))


def detach_op(op: Op[...]) -> None:
    """Take the method of an op away again."""
    if getattr(Tensor, op.name, None) is table.function(op.name):
        delattr(Tensor, op.name)


def attach() -> None:
    """Attach every operator and method. Called once, when tensorbus is imported."""
    for short, name in BINARY.items():
        function = table.function(name)
        setattr(Tensor, f"__{short}__", function)
        setattr(Tensor, f"__r{short}__", _reflected(function))
        setattr(Tensor, f"__i{short}__", _in_place(function))
    for short, name in COMPARISON.items():
        setattr(Tensor, f"__{short}__", _compared(table.function(name)))
    for short, name in UNARY.items():
        setattr(Tensor, f"__{short}__", table.function(name))
    dynamic: Any = Tensor
    dynamic.__hash__ = object.__hash__
    dynamic.__pos__ = Tensor._again
    dynamic.__matmul__ = matmul.matmul
    dynamic.__rmatmul__ = _reflected(matmul.matmul)
    dynamic.__imatmul__ = _in_place(matmul.matmul)
    dynamic.reshape = _one_by_one(table.function("reshape"))
    dynamic.permute_dims = _one_by_one(table.function("permute_dims"))
    for function in _PLAIN_METHODS:
        setattr(Tensor, function.__name__, function)
    for op in table:
        attach_op(op)
