"""The derivative of ``flex_attention`` as ops: scores are computed again, block by block, none is kept.

With the shares ``p`` of the keys, the gradient of a changed score is ``p * (g @ value.mT - d)``, where ``d``
is the sum over a row of ``g * out``, less the gradient of the row's logarithm (Dao et al. 2022). The
program's own derivative takes it from there to the score, and, in an op of its own, to what the program
captured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...dtypes import definition as dt
from ...dtypes.definition import FLOATING, DType
from ...errors import ShapeError
from ..creation.creation import zeros
from ..definition import Op, Spec, table
from ..elementwise.comparison import equal
from ..elementwise.family import broadcast_shapes
from ..elementwise.transcendental import exp
from ..elementwise.where_cast import cast, narrowed, where, widened
from ..indexing.gather_scatter import scatter
from ..matmul.matmul import matrix_transpose, product
from ..movement.movement import broadcast_to, concat, reshape, sum_to
from ..reduction.reduction import sum
from .attention_blocks import NAME, Attrs, Blocks, BlockScores, Range, flex_compute, flex_infer
from .attention_scores import merged, shared_product
from .score_program import ScoreProgram, run_scalars

_NAME = f"{NAME}_gradients"


def _arguments(
    grad: Any, grad_lse: Any, out: Any, lse: Any, query: Any, key: Any, value: Any, /, *extra: Any,
    program: ScoreProgram, scale: float, enable_gqa: bool = False,
    block_size: tuple[int, int] | None = None, visits: tuple[int, ...] | None = None,
) -> tuple[tuple[Any, ...], dict[str, Any]]:  # fmt: skip
    return (grad, grad_lse, out, lse, query, key, value, *extra), {
        "program": program, "scale": float(scale), "enable_gqa": enable_gqa, "block_size": block_size,
        "visits": visits,
    }  # fmt: skip


def _checked(specs: Sequence[Spec], attrs: Attrs) -> tuple[Spec, ...]:
    """Return the specs of query, key, value and what is captured. Raises ``ShapeError``."""
    grad, grad_lse, out, lse, query, key, value, *extra = specs
    results = flex_infer((query, key, value, *extra), attrs)
    if (grad.shape, grad_lse.shape, out.shape, lse.shape) != tuple(r.shape for r in results) * 2:
        raise ShapeError(
            f"{_NAME}: these operands of {NAME} give {results[0].shape} and {results[1].shape}; gradients and"
            f" results of these shapes are needed, got {grad.shape}, {grad_lse.shape}, {out.shape} and"
            f" {lse.shape}."
        )
    return (query, key, value, *extra[attrs.block_size is not None :])


def _infer(specs: Sequence[Spec], **named: Any) -> tuple[Spec, ...]:
    return _checked(specs, Attrs(**named))[:3]


def _captured_infer(specs: Sequence[Spec], **named: Any) -> tuple[Spec, ...]:
    attrs = Attrs(**named)
    captured = _checked(specs, attrs)[3:]
    return tuple([captured[k] for k in attrs.program.learned])


def _compute(operand_dtypes: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
    dtype, *rest = flex_compute(operand_dtypes[4:])
    wide = dt.float64 if dtype is dt.float64 else dt.float32
    return (dtype, wide, dtype, wide, dtype, *rest)


@dataclass(frozen=True, slots=True)
class _Slopes:
    """A block of scores on the way back: their shares, and the gradients of the scores as changed."""

    block: BlockScores
    shares: Any
    changed: Any


class _Backward:
    """The blocks of one call, and the operands of its derivative, widened."""

    def __init__(self, operands: Sequence[Any], attrs: Attrs) -> None:
        grad, grad_lse, out, lse, query, key, value, *extra = operands
        self.g, self.values = widened(grad), widened(value)
        delta = sum(self.g * widened(out), axis=-1, keepdims=True)
        self.behind = delta - reshape(grad_lse, (*grad_lse.shape, 1))
        # A row that sees nothing has the logarithm -inf: its scores are -inf too, and their shares 0.
        self.lse = reshape(where(equal(lse, float("-inf")), 0.0, lse), (*lse.shape, 1))
        self.blocks = Blocks(widened(query), widened(key), extra, attrs)

    def slopes(self, rows: Range, part: Range) -> _Slopes:
        """Return a block with its scores computed again."""
        g, behind, lse = (rows.of(x, 2) for x in (self.g, self.behind, self.lse))
        block = self.blocks.block(rows, part)
        shares = exp(self.blocks.masked(block) - lse)
        changed = shares * (shared_product(g, matrix_transpose(part.of(self.values, 2))) - behind)
        return _Slopes(block, shares, changed)

    def derivative(self, slopes: _Slopes) -> list[Any]:
        """Return the outputs of the program's derivative."""
        program = self.blocks.attrs.program
        assert program.derivative is not None
        return run_scalars(program.derivative, (slopes.changed, *slopes.block.inputs))


def _along_keys(sums: dict[int, Any], key: Any, width: int) -> Any:
    """Return sums by block of keys as one tensor: zeros for blocks that nobody saw."""
    at = 0
    batch, heads, length, _ = key.shape
    parts = []
    for start in sorted(sums):
        if start > at:
            parts.append(zeros((batch, heads, start - at, width), dtype=key.dtype, device=key.device))
        parts.append(sums[start])
        at = start + sums[start].shape[2]
    if at < length or not parts:
        parts.append(zeros((batch, heads, length - at, width), dtype=key.dtype, device=key.device))
    return parts[0] if len(parts) == 1 else concat(parts, axis=2)


def _spread(x: Any, gradient: Any, at: Sequence[Any]) -> Any:
    """Return the gradient of a captured tensor from those of its elements that a block read."""
    wide = widened(gradient)
    if not at:
        return sum_to(wide, ())
    shape = broadcast_shapes(*(i.shape for i in at))
    whole = broadcast_shapes(shape, wide.shape)
    wide = wide if wide.shape == whole else broadcast_to(wide, whole)
    wide = sum_to(wide, shape)
    places = [broadcast_to(i, shape) for i in at]
    return scatter(zeros(x.shape, dtype=wide.dtype, device=x.device), wide, *places, mode="add")


def _add(sums: dict[int, Any], at: int, value: Any) -> None:
    sums[at] = sums[at] + value if at in sums else value


def _counted(gradient: Any, block: BlockScores) -> Any:
    return gradient if block.keep is None else where(block.keep, gradient, 0)


def _over_queries(x: Any, y: Any, key: Any) -> Any:
    """Return ``x.mT @ y``, summed over the heads and the batch that share keys."""
    total = product(matrix_transpose(merged(x, key)), merged(y, key))
    return sum_to(total, (*key.shape[:3], y.shape[3]))


def _decompose(*operands: Any, **named: Any) -> tuple[Any, ...]:
    attrs = Attrs(**named)
    backward = _Backward(operands, attrs)
    blocks, of_keys, of_values, parts = backward.blocks, dict[int, Any](), dict[int, Any](), []
    for rows, columns in blocks.chunks():
        query, g = rows.of(blocks.query, 2), rows.of(backward.g, 2)
        total = zeros(query.shape, dtype=query.dtype, device=query.device)
        for part in columns:
            slopes = backward.slopes(rows, part)
            scores = broadcast_to(backward.derivative(slopes)[0], slopes.changed.shape)
            # Where a score does not count its derivative may be anything, infinity times 0 included.
            scores = _counted(scores, slopes.block) * attrs.scale
            key = part.of(blocks.key, 2)
            total = total + shared_product(scores, key)
            _add(of_keys, part.start, _over_queries(scores, query, key))
            _add(of_values, part.start, _over_queries(slopes.shares, g, key))
        parts.append(total)
    dtype = operands[4].dtype
    queries = parts[0] if len(parts) == 1 else concat(parts, axis=2)
    return (
        narrowed(queries, dtype),
        narrowed(_along_keys(of_keys, blocks.key, blocks.key.shape[3]), dtype),
        narrowed(_along_keys(of_values, blocks.key, backward.values.shape[3]), dtype),
    )


def _captured_decompose(*operands: Any, **named: Any) -> tuple[Any, ...]:
    attrs = Attrs(**named)
    backward, sums = _Backward(operands, attrs), dict[int, Any]()
    captured = backward.blocks.captured
    for rows, columns in backward.blocks.chunks():
        for part in columns:
            slopes = backward.slopes(rows, part)
            outputs = backward.derivative(slopes)
            for read in attrs.program.reads:
                gradient = _counted(outputs[read.gradient], slopes.block)
                at = [outputs[i] for i in read.indices]
                _add(sums, read.captured, _spread(captured[read.captured], gradient, at))
    learned = []
    for k in attrs.program.learned:
        x, total = captured[k], sums.get(k)
        none = total is None
        learned.append(zeros(x.shape, dtype=x.dtype, device=x.device) if none else cast(total, x.dtype))
    return tuple(learned)


_OPERANDS: Final = ("grad", "grad_lse", "out", "lse", "query", "key", "value", "*extra")
flex_attention_gradients = table.add(
    Op(
        name=_NAME, family="attention", operands=_OPERANDS, results=("query", "key", "value"),
        arguments=_arguments, infer=_infer, compute=_compute, decompose=_decompose, dtypes=FLOATING,
        method=False,
        doc="The gradients of query, key and value of ``flex_attention``, from its results and theirs.",
    )
)  # fmt: skip
flex_attention_captured_gradients = table.add(
    Op(
        name=f"{NAME}_captured_gradients", family="attention", operands=_OPERANDS, results=("*captured",),
        arguments=_arguments, infer=_captured_infer, compute=_compute, decompose=_captured_decompose,
        dtypes=FLOATING, method=False,
        doc="The gradients of what the program of ``flex_attention`` captured and has a derivative by.",
    )
)  # fmt: skip
