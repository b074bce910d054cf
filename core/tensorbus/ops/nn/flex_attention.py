"""Attention whose scores a program changes and masks: ``flex_attention`` (He et al. 2024).

One op, so that a device can have one kernel for it: with the program in its innermost loop, and without the
blocks that a block mask says are empty. Elsewhere it runs block by block, with the softmax made on the way
(Milakov and Gimelshein 2018, Dao et al. 2022). Names and values are PyTorch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dtypes.definition import FLOATING
from ..creation.creation import full, zeros
from ..definition import Op, table
from ..elementwise.arithmetic import maximum
from ..elementwise.comparison import equal
from ..elementwise.transcendental import exp, log
from ..elementwise.where_cast import narrowed, where, widened
from ..movement.movement import concat, reshape
from ..reduction.reduction import max, sum
from .attention_blocks import NAME, Attrs, Blocks, Range, flex_compute, flex_infer
from .attention_scores import shared_product
from .flex_attention_gradients import flex_attention_captured_gradients, flex_attention_gradients
from .score_program import ScoreProgram


def _arguments(
    query: Any, key: Any, value: Any, /, *extra: Any, program: ScoreProgram, scale: float,
    enable_gqa: bool = False, block_size: tuple[int, int] | None = None,
    visits: tuple[int, ...] | None = None,
) -> tuple[tuple[Any, ...], dict[str, Any]]:  # fmt: skip
    return (query, key, value, *extra), {
        "program": program, "scale": float(scale), "enable_gqa": enable_gqa, "block_size": block_size,
        "visits": visits,
    }  # fmt: skip


def _decompose(query: Any, key: Any, value: Any, *extra: Any, **named: Any) -> tuple[Any, Any]:
    dtype, values = query.dtype, widened(value)
    blocks = Blocks(widened(query), widened(key), extra, Attrs(**named))
    parts = [_chunk(blocks, values, rows, columns) for rows, columns in blocks.chunks()]
    outs, logs = ([x for x, _ in parts], [x for _, x in parts])
    out, lse = (outs[0], logs[0]) if len(parts) == 1 else (concat(outs, axis=2), concat(logs, axis=2))
    return narrowed(out, dtype), reshape(lse, lse.shape[:3])


def _chunk(blocks: Blocks, values: Any, rows: Range, columns: Sequence[Range]) -> tuple[Any, Any]:
    """Return the answers to some queries, and the logarithms of the sums of their exponentials."""
    batch, heads, _, _ = blocks.query.shape
    dtype, device = blocks.query.dtype, blocks.query.device
    none = float("-inf")
    if not columns:
        nothing = zeros((batch, heads, rows.size, values.shape[3]), dtype=dtype, device=device)
        return nothing, full((batch, heads, rows.size, 1), none, dtype=dtype, device=device)
    highest: Any = None
    total: Any = None
    out: Any = None
    for part in columns:
        scores = blocks.masked(blocks.block(rows, part))
        higher = max(scores, axis=-1, keepdims=True)
        higher = higher if highest is None else maximum(highest, higher)
        top = where(equal(higher, none), 0.0, higher)
        shares = exp(scores - top)
        answer, sums = shared_product(shares, part.of(values, 2)), sum(shares, axis=-1, keepdims=True)
        if highest is not None:
            fade = exp(highest - top)
            answer, sums = out * fade + answer, total * fade + sums
        highest, total, out = higher, sums, answer
    dead = equal(total, 0.0)
    by = where(dead, 1.0, total)
    return out / by, where(dead, none, highest + log(by))


def _vjp(
    g: Any, out: Any, query: Any, key: Any, value: Any, extra: Sequence[Any], program: ScoreProgram,
    scale: float, enable_gqa: bool, block_size: tuple[int, int] | None, visits: tuple[int, ...] | None,
    wanted: tuple[bool, ...],
) -> tuple[Any, ...]:  # fmt: skip
    attrs = {"program": program, "scale": scale, "enable_gqa": enable_gqa, "block_size": block_size,
             "visits": visits}  # fmt: skip
    operands = (*g, *out, query, key, value, *extra)
    back: list[Any] = [None] * (3 + len(extra))
    if any(wanted[:3]):
        back[:3] = table.run(flex_attention_gradients.name, operands, attrs)
    if any(wanted[3:]) and program.learned:
        lead = 3 + (block_size is not None)
        gradients = table.run(flex_attention_captured_gradients.name, operands, attrs)
        for k, learned in zip(program.learned, gradients, strict=True):
            back[k + lead] = learned
    return tuple(back)


flex_attention = table.add(
    Op(
        name=NAME, family="attention", operands=("query", "key", "value", "*extra"), results=("out", "lse"),
        arguments=_arguments, infer=lambda specs, **named: flex_infer(specs, Attrs(**named)),
        compute=flex_compute, decompose=_decompose, vjp=_vjp, dtypes=FLOATING, autocast="narrow",
        method=False,
        doc="``softmax`` of what ``program`` makes of the scaled scores, times ``value``, and the logarithms"
        " of its denominators. ``extra`` are the states of a mask's blocks, if any, and what is captured.",
    )
)  # fmt: skip
