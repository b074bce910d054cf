"""Python's operators and the methods of ``Tensor``, attached from the op table."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable
from functools import wraps
from math import prod
from typing import Any, Final

from ..autograd.node_order import order
from ..compat import torch_names
from ..dtypes.definition import DType, bool_, integer_range
from ..errors import DtypeError, ShapeError, TensorbusError
from ..interchange import ufuncs
from ..ops.call_errors import misfit, renamed, with_form
from ..ops.creation import creation
from ..ops.definition import InPlaceCall, Op, table
from ..ops.elementwise import activation, arithmetic, special, transcendental
from ..ops.elementwise.complex import angle
from ..ops.elementwise.where_cast import cast
from ..ops.indexing import indexing, nonzero, take_along_axis, torch_gather
from ..ops.matmul import matmul
from ..ops.movement import movement
from ..ops.movement.torch_view import view
from ..ops.ordering import sorting
from ..ops.reduction import reduction, scan, softmax
from ..tensor.tensor import Tensor
from ..tracing.sym_int import SymInt
from ..tracing.sym_number import SymNumber
from .inplace_kernel import INPLACE_MIN_SIZE
from .rounded_divide import divide
from .setitem import assign
from .tensor_methods import attach_methods

BINARY: Final = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip
_SYMBOLS: Final = {
    "add": "+=", "sub": "-=", "mul": "*=", "truediv": "/=", "floordiv": "//=", "mod": "%=", "pow": "**=",
    "and": "&=", "or": "|=", "xor": "^=", "lshift": "<<=", "rshift": ">>=",
}  # fmt: skip
COMPARISON: Final = {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal"
}  # fmt: skip
OPERATOR_OF: Final = {name: short for short, name in BINARY.items()}
COMPARISON_OF: Final = {name: short for short, name in COMPARISON.items()}
UNARY: Final = {"neg": "negative", "abs": "abs", "invert": "bitwise_invert"}

_FUNCTIONS: Final[tuple[Callable[..., Any], ...]] = (
    reduction.var, reduction.std, movement.expand_dims, movement.squeeze, movement.flatten, indexing.take,
    nonzero.argwhere, nonzero.nonzero, matmul.matmul, matmul.vecdot, creation.tril, creation.triu,
    activation.gelu,
    activation.clip, reduction.count_nonzero, scan.cummax, scan.cummin, scan.cumprod, scan.cumsum,
    scan.cumulative_prod, scan.cumulative_sum, scan.diff, sorting.kthvalue, sorting.median,
    sorting.quantile, sorting.topk, take_along_axis.scatter_add, take_along_axis.scatter_reduce,
    movement.moveaxis, torch_gather.gather, torch_gather.scatter, arithmetic.conj, arithmetic.addcdiv,
    arithmetic.addcmul, arithmetic.nan_to_num, arithmetic.rounded, angle, special.logit,
    transcendental.float_power, softmax.logsumexp,
)  # fmt: skip
"""Functions, written in ops, that are methods too. Ops become methods by their field ``method``."""
_LAZY_FUNCTIONS: Final = {
    "ops.movement.tile_roll_split": """chunk repeat repeat_interleave roll rot90 split swapaxes unfold
    unstack""",
    "ops.elementwise.isclose": "allclose isclose",
    "ops.movement.diagonal": "diag diag_embed diagflat diagonal trace",
    "ops.matmul.einsum": "corrcoef cov kron outer",
    "ops.ordering.search": "bincount histogram searchsorted",
    "ops.movement.view_scatter": "diagonal_scatter narrow select select_scatter slice_scatter",
    "ops.reduction.nan_reductions": "aminmax nanmean nanmedian nanquantile nansum",
    "ops.movement.combining": "dsplit hsplit tensor_split vsplit",
    "ops.matmul.added_products": "addbmm addmm addmv addr baddbmm inner",
    "ops.ordering.unique_along": "unique unique_consecutive",
    "ops.matmul.distance": "dist renorm",
    "ops.linalg.determinant": "logdet",
    "ops.indexing.index_select": """index_add index_copy index_fill index_put index_select masked_fill
    masked_scatter masked_select""",
}
"""The same of modules that are imported when one of their functions is first looked up."""
_IN_PLACE: Final = """copy_ fill_ zero_ add_ sub_ mul_ div_ pow_ lerp_ clamp_ clip_ addcmul_ addcdiv_
    masked_fill_ normal_ uniform_ multiply_ subtract_ divide_"""


class _LazyMethod:
    """A method whose module is imported when it is first looked up; the function then takes its place."""

    def __init__(self, module: str, name: str, alias: str = "") -> None:
        self.module, self.name, self.alias = module, name, alias or name

    def __get__(self, instance: Tensor | None, owner: type[Tensor]) -> Any:
        part = importlib.import_module(f"tensorbus.{self.module}")
        entry = getattr(part, "METHODS", {}).get(self.name) or getattr(part, self.name)
        function = entry.function if isinstance(entry, Op) else entry
        setattr(Tensor, self.alias, function)
        return function.__get__(instance, owner)


class _MissingMethod:
    """In the place of an attribute of PyTorch's tensors that tensors here lack: its error says what to write.

    A ``__getattr__`` would say it as well, but makes every attribute of a tensor slower to read.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Tensor | None, owner: type[Tensor]) -> Any:
        message = f"{owner.__name__!r} object has no attribute {self.name!r}"
        raise AttributeError(message + torch_names.hint(self.name, method=True), name=self.name)

    def __set__(self, instance: Tensor, value: Any) -> None:
        self.__get__(instance, type(instance))


def _names_for_dir(x: Tensor) -> list[str]:
    """Return what ``dir`` tells of a tensor."""
    return [name for name in object.__dir__(x) if not isinstance(vars(Tensor).get(name), _MissingMethod)]


def with_reflected(run: Callable[..., Any], short: str) -> Callable[..., Any]:
    """Return ``run`` of two operands, which asks the second one's own operator where it knows no tensors.

    Python would ask it, had the tensor's operator no answer; this way the tensor's error is not lost.
    """
    reflected = f"__r{short}__"

    def run_or_ask(operands: Any, attrs: Any) -> Any:
        try:
            return run(operands, attrs)
        except (DtypeError, ShapeError):
            x, y = operands
            known = isinstance(y, (*_NUMBERS, str, list, tuple)) or hasattr(y, "__array_interface__")
            ask = None if known else getattr(type(y), reflected, None)
            answer = NotImplemented if ask is None else ask(y, x)
            if answer is NotImplemented:
                raise
            return answer

    return run_or_ask


def _reflected(function: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
    return lambda self, other: function(other, self)


def _in_place(
    function: Callable[[Any, Any], Tensor], symbol: str, name: str = ""
) -> Callable[[Any, Any], Tensor]:
    def change(self: Tensor, other: Any) -> Tensor:
        large = name and prod(self._value.shape) >= INPLACE_MIN_SIZE
        if large and table.run_in_place(InPlaceCall(name, (self, other), {}, by=symbol)):
            return self
        since = next(order)
        out = function(self, other)
        if not isinstance(out, Tensor):  # the other operand's answer
            return out
        if out.dtype is not self.dtype and out.dtype.kind == self.dtype.kind:
            out = cast(out, self.dtype)  # as an assignment to x[...] does
        self.rebind(out, by=symbol, since=since)
        return self

    return change


def comparison_function(name: str) -> Callable[[Any, Any], Tensor]:
    """Return the function of a comparison: it also knows whole numbers that the dtype does not hold."""
    function, holds = table.function(name), getattr(operator, COMPARISON_OF[name])

    @wraps(function)
    def compare(x: Any, y: Any, /) -> Tensor:
        if type(y) is int and isinstance(x, Tensor) and not _fits(y, x.dtype):
            return creation.full(x.shape, holds(0, y), dtype=bool_, device=x.device)
        if type(x) is int and isinstance(y, Tensor) and not _fits(x, y.dtype):
            return creation.full(y.shape, holds(x, 0), dtype=bool_, device=y.device)
        result: Tensor = function(x, y)
        return result

    return compare


def _fits(number: int, dtype: DType) -> bool:
    if not dtype.is_integer:
        return True
    low, high = integer_range(dtype)
    return low <= number <= high


_NUMBERS: Final = (Tensor, bool, int, float, complex, SymNumber, SymInt)


_ask = with_reflected(lambda operands, _: matmul.matmul(*operands), "matmul")


@with_form
def where(self: Tensor, condition: Any, other: Any, /) -> Tensor:
    """Return this tensor's elements where ``condition`` is true, those of ``other`` elsewhere.

    The method of PyTorch: ``tensorbus.where(condition, x, other)``.

    >>> import tensorbus as tb
    >>> x = tb.asarray([-1.0, 2.0])
    >>> x.where(x > 0, 0.0).tolist()
    [0.0, 2.0]
    """
    chosen: Tensor = table.function("where")(condition, self, other)
    return chosen


def _product(self: Tensor, other: Any) -> Any:
    if type(other) is Tensor:
        return matmul.matmul(self, other)
    other = ufuncs.as_operand("matmul", other, self) if hasattr(other, "__array_interface__") else other
    return _ask((self, other), {})


def _comparison_method(name: str) -> Callable[[Any, Any], Any]:
    """``x == None`` and the like are left to Python, which compares identities."""
    function, general = table.function(name), comparison_function(name)

    def compare(self: Tensor, other: Any) -> Any:
        if type(other) is Tensor:
            return function(self, other)
        known = isinstance(other, _NUMBERS) or hasattr(other, "dtype")
        return general(self, other) if known else NotImplemented

    return compare


def _with_unpacked_sizes(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Let lengths or axes be given as one tuple or one by one."""

    def method(self: Tensor, *lengths: Any, **named: Any) -> Tensor:
        try:
            if not lengths:
                return function(self, **named)
            single = len(lengths) == 1 and not hasattr(lengths[0], "__index__")
            return function(self, lengths[0] if single else lengths, **named)
        except (TypeError, TensorbusError) as error:
            name = function.__name__
            own = renamed(name, error) if isinstance(error, TensorbusError) else misfit(function, name, error)
            raise own or error from error.__cause__

    method.__name__, method.__qualname__ = function.__name__, f"Tensor.{function.__name__}"
    return method


def attach_op(op: Op[...]) -> None:
    """Make a method of an op whose first operand is a tensor, unless the name is taken."""
    takes_tensor = op.method and op.operands and not op.operands[0].startswith("*")
    if takes_tensor and not hasattr(Tensor, op.name):
        setattr(Tensor, op.name, table.function(op.name))


def detach_op(op: Op[...]) -> None:
    """Take the method of an op away again."""
    if getattr(Tensor, op.name, None) is table.function(op.name):
        delattr(Tensor, op.name)


def _attach_aliases() -> None:
    """Attach PyTorch's second names, forms and in-place variants; nothing is imported for them."""
    own: Any = vars(Tensor)
    for name in (*torch_names.FORMS, *torch_names.METHOD_FORMS):
        setattr(Tensor, name, _LazyMethod("eager.torch_forms", name))
    for alias, name in {**torch_names.ALIASES, **torch_names.METHOD_ALIASES}.items():
        module, _, short = name.rpartition(".")
        method = own.get(name)
        if type(method) is _LazyMethod:
            setattr(Tensor, alias, _LazyMethod(method.module, method.name, alias))
        elif method is not None and not isinstance(method, property):
            setattr(Tensor, alias, method)
        elif module == "linalg":
            setattr(Tensor, alias, _LazyMethod(module, short, alias))
    for name in torch_names.IN_PLACE:
        setattr(Tensor, f"{name}_", _LazyMethod("eager.inplace_methods", f"{name}_"))
    for alias, name in torch_names.ALIASES.items():
        if f"{name}_" in own and f"{alias}_" not in own:
            setattr(Tensor, f"{alias}_", _LazyMethod("eager.inplace_methods", f"{name}_", f"{alias}_"))
    dynamic: Any = Tensor
    dynamic.permute, dynamic.divide = dynamic.permute_dims, divide
    dynamic.div = dynamic.true_divide = divide
    dynamic.H = dynamic.mH = property(lambda x: arithmetic.conj(x.mT), doc="The conjugate transpose.")


def attach() -> None:
    """Attach every operator and method. Called once, when tensorbus is imported."""
    attach_methods()
    for short, name in BINARY.items():
        function: Any = table.function(name)
        function.operator.__qualname__ = f"Tensor.__{short}__"  # as errors about arguments name it
        setattr(Tensor, f"__{short}__", function.operator)
        setattr(Tensor, f"__r{short}__", _reflected(function))
        setattr(Tensor, f"__i{short}__", _in_place(function.operator, _SYMBOLS[short], name))
    for short, name in COMPARISON.items():
        setattr(Tensor, f"__{short}__", _comparison_method(name))
    for short, name in UNARY.items():
        setattr(Tensor, f"__{short}__", table.function(name))
    dynamic: Any = Tensor
    dynamic.__hash__ = object.__hash__
    dynamic.__pos__ = Tensor._alias
    dynamic.__setitem__ = assign
    dynamic.__matmul__ = _product
    dynamic.__rmatmul__ = _reflected(matmul.matmul)
    dynamic.__imatmul__ = _in_place(_product, "@=")
    dynamic.reshape = _with_unpacked_sizes(table.function("reshape"))
    dynamic.permute_dims = _with_unpacked_sizes(table.function("permute_dims"))
    dynamic.flip = _with_unpacked_sizes(table.function("flip"))
    dynamic.where = where
    dynamic.view = _with_unpacked_sizes(view)
    for function in _FUNCTIONS:
        setattr(Tensor, function.__name__, function)
    for module, names in _LAZY_FUNCTIONS.items():
        for name in names.split():
            setattr(Tensor, name, _LazyMethod(module, name))
    for name in _IN_PLACE.split():
        setattr(Tensor, name, _LazyMethod("eager.inplace_methods", name))
    dynamic.multinomial = _LazyMethod("random.sampling", "multinomial")
    dynamic.real = property(arithmetic.real, doc="The real part.")
    dynamic.imag = property(arithmetic.imag, doc="The imaginary part; zeros of a real tensor.")
    dynamic.__dir__ = _names_for_dir
    for op in table:
        attach_op(op)
    _attach_aliases()
    for name in torch_names.MISSING:
        if name not in vars(Tensor):
            setattr(Tensor, name, _MissingMethod(name))
