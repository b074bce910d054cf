"""The derivative of ``flex_attention`` as an op: scores are computed again, block by block, none is kept.

With the shares ``p`` of the keys, the gradient of a changed score is ``p * (g @ value.mT - d)``, where ``d``
is the sum over a row of ``g * out``, less the gradient of the row's logarithm (Dao et al. 2022). The
program's own derivative takes it from there to the score, and to what the program captured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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


def _infer(specs: Sequence[Spec], **named: Any) -> tuple[Spec, ...]:
    attrs = Attrs(**named)
    grad, grad_lse, out, lse, query, key, value, *extra = specs
    results = flex_infer((query, key, value, *extra), attrs)
    if (grad.shape, grad_lse.shape, out.shape, lse.shape) != tuple(r.shape for r in results) * 2:
        raise ShapeError(
            f"{_NAME}: these operands of {NAME} give {results[0].shape} and {results[1].shape}; gradients and"
            f" results of these shapes are needed, got {grad.shape}, {grad_lse.shape}, {out.shape} and"
            f" {lse.shape}."
        )
    captured = extra[attrs.block_size is not None :]
    return (query, key, value, *(captured[k] for k in attrs.program.learned))


def _compute(operand_dtypes: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
    dtype, *rest = flex_compute(operand_dtypes[4:])
    wide = dt.float64 if dtype is dt.float64 else dt.float32
    return (dtype, wide, dtype, wide, dtype, *rest)


class _Sums:
    """The gradients of one call, as far as blocks have been added to them.

    Those of keys and values are sums by block of keys, joined in the end: nothing writes into a tensor.
    """

    def __init__(self, blocks: Blocks, values: Any, g: Any, behind: Any, lse: Any) -> None:
        self.blocks, self.values, self.g, self.behind, self.lse = blocks, values, g, behind, lse
        self.keys: dict[int, Any] = {}
        self.of_values: dict[int, Any] = {}
        self.learned: dict[int, Any] = {}

    def chunk(self, rows: Range, columns: Sequence[Range]) -> Any:
        """Add the blocks of some queries; return the gradient of those queries."""
        blocks, program = self.blocks, self.blocks.attrs.program
        query, g, behind, lse = (rows.of(x, 2) for x in (blocks.query, self.g, self.behind, self.lse))
        total = zeros(query.shape, dtype=query.dtype, device=query.device)
        for part in columns:
            block = blocks.block(rows, part)
            shares = exp(blocks.masked(block) - lse)
            changed = shares * (shared_product(g, matrix_transpose(part.of(self.values, 2))) - behind)
            assert program.derivative is not None
            scores, *rest = run_scalars(program.derivative, (changed, *block.inputs))
            # Where a score does not count its derivative may be anything, infinity times 0 included.
            scores = _counted(broadcast_to(scores, changed.shape), block) * blocks.attrs.scale
            key = part.of(blocks.key, 2)
            total = total + shared_product(scores, key)
            self._add(self.keys, part.start, _over_queries(scores, query, key))
            self._add(self.of_values, part.start, _over_queries(shares, g, key))
            for read in program.reads:
                at = [rest[i - 1] for i in read.indices]
                self._add(
                    self.learned,
                    read.captured,
                    self._spread(_counted(rest[read.gradient - 1], block), at, read.captured),
                )
        return total

    def along_keys(self, sums: dict[int, Any], width: int) -> Any:
        """Return the sums by block of keys as one tensor: zeros for blocks that nobody saw."""
        key, at = self.blocks.key, 0
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

    def _spread(self, gradient: Any, at: Sequence[Any], captured: int) -> Any:
        """Return the gradient of a captured tensor from those of its elements that a block read."""
        x = self.blocks.captured[captured]
        wide = widened(gradient)
        if not at:
            return sum_to(wide, ())
        shape = broadcast_shapes(*(i.shape for i in at))
        whole = broadcast_shapes(shape, wide.shape)
        wide = wide if wide.shape == whole else broadcast_to(wide, whole)
        wide = sum_to(wide, shape)
        places = [broadcast_to(i, shape) for i in at]
        return scatter(zeros(x.shape, dtype=wide.dtype, device=x.device), wide, *places, mode="add")

    @staticmethod
    def _add(sums: dict[int, Any], at: int, value: Any) -> None:
        sums[at] = sums[at] + value if at in sums else value


def _counted(gradient: Any, block: BlockScores) -> Any:
    return gradient if block.keep is None else where(block.keep, gradient, 0)


def _over_queries(x: Any, y: Any, key: Any) -> Any:
    """Return ``x.mT @ y``, summed over the heads and the batch that share keys."""
    found = product(matrix_transpose(merged(x, key)), merged(y, key))
    return sum_to(found, (*key.shape[:3], y.shape[3]))


def _decompose(*operands: Any, **named: Any) -> tuple[Any, ...]:
    grad, grad_lse, out, lse, query, key, value, *extra = operands
    attrs = Attrs(**named)
    g, values = widened(grad), widened(value)
    behind = sum(g * widened(out), axis=-1, keepdims=True) - reshape(grad_lse, (*grad_lse.shape, 1))
    # A row that sees nothing has the logarithm -inf: its scores are -inf too, and their shares 0.
    lse = reshape(where(equal(lse, float("-inf")), 0.0, lse), (*lse.shape, 1))
    blocks = Blocks(widened(query), widened(key), extra, attrs)
    sums = _Sums(blocks, values, g, behind, lse)
    parts = [sums.chunk(rows, columns) for rows, columns in blocks.chunks()]
    queries = parts[0] if len(parts) == 1 else concat(parts, axis=2)
    learned = []
    for k in attrs.program.learned:
        x = blocks.captured[k]
        made = sums.learned.get(k)
        learned.append(
            zeros(x.shape, dtype=x.dtype, device=x.device) if made is None else cast(made, x.dtype)
        )
    return (
        narrowed(queries, query.dtype),
        narrowed(sums.along_keys(sums.keys, key.shape[3]), query.dtype),
        narrowed(sums.along_keys(sums.of_values, value.shape[3]), query.dtype),
        *learned,
    )


flex_attention_gradients = table.add(
    Op(
        name=_NAME, family="attention",
        operands=("grad", "grad_lse", "out", "lse", "query", "key", "value", "*extra"),
        results=("query", "key", "value", "*captured"), arguments=_arguments, infer=_infer,
        compute=_compute, decompose=_decompose, dtypes=FLOATING, method=False,
        doc="The gradients of the operands of ``flex_attention``, and of what its program captured, from its"
        " results and their gradients.",
    )
)  # fmt: skip
