"""The schedule of ``flex_attention`` for few queries of many keys on GPUs, as where tokens are generated.

A work-item for each query would leave most of a device idle, so that the keys are cut into parts, which are
gone over side by side; a second kernel joins what they found (flash decoding, Dao et al. 2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ....dtypes.definition import bool_
from ....ops.nn.attention_blocks import Attrs
from ...ir import index_expr as ix
from ...ir.builder import Builder, literal
from ...ir.index_expr import ONE, ZERO, const
from ...ir.kernel_task import LaunchList
from ...ir.loop_ir import INDEX, Apply, Expr, Load, Select, Var
from ...target import Target
from ..schedule import Schedule, ScheduleRequest, Verdict
from .forward import KeyParts, Problem, emit_forward
from .score_code import negative_infinity
from .tile import cast


def cut_keys(p: Problem, wanted: int, unit: int, shortest: int) -> KeyParts:
    """Return ``wanted`` parts of whole units of keys, or fewer: none is shorter than ``shortest``.

    Nor does what they leave to be joined take more memory than the keys and values themselves, so that memory
    grows as the lengths do.
    """
    lines = max(p.batch * p.heads * p.queries, 1)
    read = p.own_batch * p.own_heads * p.keys * (p.width + p.deep) * p.key.spec.dtype.itemsize
    most = min(-(-p.keys // max(unit, shortest)), read // (lines * (p.deep + 2) * p.dtype.itemsize))
    count = max(1, min(most, wanted))
    length = -(-p.keys // (count * unit)) * unit
    return KeyParts(-(-p.keys // length) if length else 0, length)


def _parts(p: Problem, target: Target) -> KeyParts:
    """Return the parts: as many as keep the device busy."""
    limits = target.heuristics
    unit = p.blocks[1] or limits.attention_rows_gpu
    lines = max(p.batch * p.heads * p.queries, 1)
    return cut_keys(p, -(-target.work_items_to_fill // lines), unit, limits.attention_min_part)


def _applies(request: ScheduleRequest, target: Target) -> Verdict:
    root = request.root
    if root.op != "flex_attention":
        return "it is the derivative"
    if target.row_per_task:
        return "tasks are few, and tiles of queries fill them"
    query, key = (x.spec.shape for x in root.inputs[:2])
    if query[0] * query[1] * query[2] >= target.work_items_to_fill:
        return "there is a query for each work-item"
    if not query[0] * query[1] * query[2]:
        return "there is no query"
    if _parts(Problem(request, root.inputs, Attrs(**root.attrs)), target).count < 2:
        return f"{key[2]} keys are too few to be cut"
    return True


def _build(request: ScheduleRequest, launches: LaunchList) -> None:
    p = Problem(request, request.root.inputs, Attrs(**request.root.attrs))
    parts = _parts(p, launches.target)
    slots = key_part_slots(p, launches, parts.count)
    emit_forward(p, launches, slots, parts)
    join_key_parts(p, launches, slots, request.results, parts.count)


def key_part_slots(p: Problem, launches: LaunchList, count: int) -> dict[str, int]:
    """Return the buffers of what ``emit_forward`` stores for each part, batch, head and query."""
    lines = count * p.batch * p.heads * p.queries
    return {
        "partial": launches.temporary(lines * p.deep, p.dtype),
        "sum": launches.temporary(lines, p.dtype),
        "top": launches.temporary(lines, p.dtype),
    }


def join_key_parts(
    p: Problem, launches: LaunchList, slots: Mapping[str, int], results: Sequence[int], count: int
) -> None:
    """Append the kernel that adds up the parts of each query, an element of the result to each work-item.

    ``results`` are the slots of the result and of the logarithms of the rows' sums.
    """
    lines = p.batch * p.heads * p.queries
    b, dtype = Builder(f"tb_attention_join_{p.deep}"), p.dtype
    column, line = Var("i0", INDEX), Var("i1", INDEX)
    for name in slots:
        b.buffer(name, dtype)
    parts, every = b.size("parts", count), b.size("lines", lines)
    none, zero = negative_infinity(dtype), literal(0, dtype)

    def load(name: str, part: Expr, deep: int = 0) -> Expr:
        at = b.let(ix.add(ix.multiply(part, every), line), "at")
        return Load(name, ix.add(ix.multiply(at, const(deep)), column) if deep else at, dtype)

    top = b.let(none, "top", mutable=True)
    with b.loop(ZERO, parts, prefix="part") as part:
        b.assign(top, Apply("maximum", (top, load("top", part)), dtype))
    base = b.let(Select(Apply("equal", (top, none), bool_), zero, top, dtype), "base")
    total, result = (b.let(zero, name, mutable=True) for name in ("total", "result"))
    with b.loop(ZERO, parts, prefix="part") as part:
        less = Apply("subtract", (load("top", part), base), dtype)
        share = b.let(Apply("exp", (b.let(less, "less"),), dtype), "share")
        b.assign(total, Apply("fma", (share, load("sum", part), total), dtype))
        b.assign(result, Apply("fma", (share, load("partial", part, p.deep), result), dtype))
    dead = b.let(Apply("equal", (total, zero), bool_), "dead")
    by = b.let(Select(dead, literal(1, dtype), total, dtype), "by")
    b.buffer("out", p.query.spec.dtype, writes=True)
    b.buffer("lse", dtype, writes=True)
    answer = cast(Apply("divide", (result, by), dtype), p.query.spec.dtype)
    b.store("out", ix.add(ix.multiply(line, const(p.deep)), column), answer)
    with b.when(ix.less(column, ONE)):
        logs = b.let(Apply("add", (top, Apply("log", (by,), dtype)), dtype), "log")
        b.store("lse", line, Select(dead, none, logs, dtype))
    out, lse = results
    loops = [(column, const(p.deep), p.deep), (line, every, lines)]
    launches.add(b.finish(loops), {**slots, "out": out, "lse": lse})


KEYS_IN_PARTS: Final = Schedule(
    name="parts of the keys, then joined",
    about="queries are too few to fill the device: the keys are cut, and what each part gives is joined",
    kinds=frozenset({"attention"}), applies=_applies, build=_build,
)  # fmt: skip
