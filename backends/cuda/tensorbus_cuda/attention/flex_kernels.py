"""The launches of attention on tensor cores: kernels written by hand around the functions of a score program.

Their text depends on the widths of heads, the dtype, the program and how tiles are cut; all lengths and
strides are arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tensorbus.backend_api import (
    INDEX,
    AttentionAttrs,
    AttentionProblem,
    KernelBuilder,
    Layout,
    RuntimeArg,
    attention_tiles,
    cut_keys,
    join_key_parts,
    kernel_parts,
    key_part_slots,
)
from tensorbus.backend_api import dtypes as dt

from ..dialect import dialect
from .flex_functions import Function, functions, macros
from .flex_wgmma import products

if TYPE_CHECKING:
    from tensorbus.backend_api import Dialect, LaunchList, Node, ScheduleRequest, Target

_HERE: Final = Path(__file__).parent
_WARP: Final = 32
_KIND: Final = {dt.bfloat16: "bf16", dt.float16: "f16"}
WGMMA: Final = 90
"""The compute capability, times 10, of the processors that multiply by warpgroups: no later ones do."""
_SWIZZLED: Final = 1024
"""At multiples of how many bytes tiles of warpgroups begin: a block is given so many more."""
_HALF_BLOCK: Final = 64
"""Queries of a block of the mask up to which a tile has half as many rows."""
_SHORTEST_PART: Final = 256
"""Keys of a part: over fewer, tiles that come while others are made use of do not pay."""
_BUSY_PER_BLOCK: Final = 64
"""Threads of those that fill a device for each block, of one warp, that goes over a part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """The tiles of a kernel.

    Each of ``warps`` has 16 rows ``m`` times, and goes over ``n`` rows of the other side at a time, which are
    copied in ``stages``; ``wgmma`` says that four warps together make products. ``nbytes`` is how much shared
    memory a block has.
    """

    m: int
    n: int
    warps: int
    stages: int
    wgmma: bool
    nbytes: int

    @property
    def tall(self) -> int:
        """The number of rows of a block."""
        return self.m * self.warps * 16

    @property
    def threads(self) -> int:
        """The number of threads of a block."""
        return self.warps * _WARP


def _padded(width: int) -> int:
    return (width + 15) // 16 * 16


def _by_warpgroups(width: int, deep: int, architecture: int) -> bool:
    """Return whether wgmma computes the products, which takes whole columns of 64 elements."""
    return architecture == WGMMA and _padded(width) % 64 == 0 == _padded(deep) % 64


def _tile(m: int, n: int, warps: int, stages: int, own: Sequence[int], other: Sequence[int], *,
          wgmma: bool) -> Tile:  # fmt: skip
    """Return a tile whose block has rows of its own, of these widths, and those that it goes over."""

    def nbytes(rows: int, widths: Sequence[int]) -> int:
        return 2 * rows * sum(_padded(width) + (0 if wgmma else 8) for width in widths)

    total = nbytes(m * warps * 16, own) + stages * nbytes(n, other) + (_SWIZZLED if wgmma else 0)
    return Tile(m=m, n=n, warps=warps, stages=stages, wgmma=wgmma, nbytes=total)


def forward_tile(width: int, deep: int, block: int, architecture: int) -> Tile:
    """Return the tiles of queries; ``block`` is the length of the mask's blocks, if it has any."""
    short = 0 < block <= _HALF_BLOCK
    if _by_warpgroups(width, deep, architecture):
        n = 128 if deep <= 128 else 64
        return _tile(1, n, 4 if short else 8, 2, (width,), (width, deep), wgmma=True)
    m = 2 if _padded(deep) <= 128 and not short else 1
    return _tile(m, 64, 4, 1, (width,), (width, deep), wgmma=False)


def query_tile(width: int, deep: int, block: int, architecture: int, *, changes: bool) -> Tile:
    """Return the tiles of queries of the derivative; ``changes`` says that a program changes scores.

    Their registers are those of fewer scores then.
    """
    short, both = 0 < block <= _HALF_BLOCK, (width, deep)
    if _by_warpgroups(width, deep, architecture):
        n = 32 if sum(both) > 256 else 64 if changes else 128
        return _tile(1, n, 4 if short else 8, 2, both, both, wgmma=True)
    return _tile(2 if _padded(width) <= 128 and not short else 1, 32, 4, 2, both, both, wgmma=False)


def key_tile(width: int, deep: int, block: int, architecture: int) -> Tile:
    """Return the tiles of keys of the derivative."""
    short, both = 0 < block <= _HALF_BLOCK, (width, deep)
    if _by_warpgroups(width, deep, architecture):
        tile = _tile(1, 64 if sum(both) <= 256 else 32, 4, 2, both, both, wgmma=True)
    else:
        m = 2 if _padded(width) + _padded(deep) <= 128 and not short else 1
        tile = _tile(m, 32, 4, 2, both, both, wgmma=False)
    return replace(tile, nbytes=tile.nbytes + 4 * 4 * tile.n)  # two numbers of each query, in two stages


def tiles(op: str, width: int, deep: int, attrs: AttentionAttrs, architecture: int) -> list[Tile]:
    """Return the tiles of all kernels of a call."""
    rows, columns = attrs.block_size or (0, 0)
    if op == "flex_attention":
        return [forward_tile(width, deep, rows, architecture)]
    changes = attrs.program.graph.outputs[0] is not attrs.program.graph.inputs[0]
    of_queries = query_tile(width, deep, rows, architecture, changes=changes)
    return [of_queries, key_tile(width, deep, columns, architecture)]


class _KernelText:
    """One kernel: its arguments, the constants of its text, and its launch."""

    def __init__(self, p: AttentionProblem, file: str, tile: Tile, calls: Sequence[Function] = ()) -> None:
        self.p, self.file, self.tile, self.calls = p, file, tile, calls
        self.b = KernelBuilder(f"tb_attention_{file}_{p.width}_{p.deep}_{_KIND[p.query.spec.dtype]}")
        self.slots: dict[str, int] = {}
        self.constants = {
            "TB_WIDTH": p.width, "TB_DEEP": p.deep, "TB_M": tile.m, "TB_N": tile.n, "TB_WARPS": tile.warps,
            "TB_STAGES": tile.stages, "TB_WGMMA": int(tile.wgmma), "TB_TURNS": 1,
            "TB_CHANGES": int(any(call.name == "score" for call in calls)),
            "TB_STATES": int(p.states is not None), "TB_MASKED": int(p.attrs.program.masked),
        }  # fmt: skip

    def operand(self, name: str, dtype: dt.DType, layout: Layout, inner: int = 2) -> None:
        """Declare an operand: its buffer, its offset, and its strides; the last ``inner`` are of rows."""
        b, lead = self.b, len(layout.shape) - inner
        b.buffer(name, dtype)
        self.slots[name] = layout.slot
        late = layout.late
        b.param(
            f"{name}_o", INDEX, layout.offset if late is None else RuntimeArg("offset", late, layout.offset)
        )
        for k, (length, stride) in enumerate(zip(layout.shape, layout.strides, strict=True)):
            role = f"b{k}" if k < lead else f"s{k - lead}"
            b.param(f"{name}_{role}", INDEX, 0 if length == 1 and k < lead else stride)

    def node(self, name: str, node: Node, inner: int = 2) -> None:
        """Declare an operand that is a value of the graph."""
        self.operand(name, node.spec.dtype, self.p.layout(node), inner)

    def result(self, name: str, dtype: dt.DType, slot: int) -> None:
        """Declare a packed buffer that is written."""
        self.b.buffer(name, dtype, writes=True)
        self.slots[name] = slot

    def sizes(self, **named: int) -> None:
        """Declare numbers."""
        for name, value in named.items():
            self.b.param(name, INDEX, value)

    def add(self, launches: LaunchList, blocks: int) -> None:
        """Append the launch of so many blocks."""
        for call in self.calls:
            for buffer in call.buffers:
                self.b.buffer(buffer.name, buffer.dtype, writes=buffer.writes)
            for name, dtype, value in call.params:
                self.b.param(name, dtype, value)
        captured = {f"c{k}": layout.slot for k, (_, layout) in enumerate(self.p.captured)}
        launch = self.b.finish([])
        threads = self.tile.threads
        kernel = replace(launch.kernel, task=False, group=threads)
        code = self._text(kernel, dialect(1))
        kernel = replace(kernel, code=code, group_bytes=self.tile.nbytes)
        slots = {**captured, **self.slots}
        launches.add(replace(launch, kernel=kernel, grid=(blocks * threads,)), slots)

    def _text(self, kernel: Any, language: Dialect) -> str:
        bounds = f"__launch_bounds__({self.tile.threads})"
        head = 'extern "C" __global__ void ' + bounds + " {name}({arguments})"
        _, own = kernel_parts(kernel, replace(language, kernel=head))
        lines = [
            f'#define TB_KIND "{_KIND[self.p.query.spec.dtype]}"',
            f"#define TB_INFINITY {language.infinity}",
        ]
        lines += [f"#define {name} {value}" for name, value in self.constants.items()]
        helpers = dict.fromkeys(text for call in self.calls for text in call.helpers)
        body = template(f"flex_{self.file}.cu").replace("@head@", own.partition("{")[0].strip())
        return "\n".join(
            [
                language.prologue, *lines, *helpers, *[call.text for call in self.calls],
                template("flex_tiles.cuh"), *self._products(), macros(list(self.calls)), body,
            ]
        )  # fmt: skip

    def _products(self) -> list[str]:
        if not self.tile.wgmma:
            return [template("flex_mma.cuh")]
        widths = (self.tile.n, _padded(self.p.width), _padded(self.p.deep))
        return [products(widths, _KIND[self.p.query.spec.dtype]), template("flex_wgmma.cuh")]


@cache
def template(name: str) -> str:
    """Return the text of a file beside this one."""
    return (_HERE / name).read_text(encoding="utf-8")


def _share(p: AttentionProblem) -> int:
    share: int = p.heads // p.own_heads
    return share


def _operands(t: _KernelText, p: AttentionProblem) -> None:
    """Declare what all kernels that make scores read."""
    for name, node in (("query", p.query), ("key", p.key), ("value", p.value)):
        t.node(name, node)
    t.sizes(queries=p.queries, keys=p.keys, heads=p.heads, share=_share(p))
    t.b.param("scale", dt.float32, p.attrs.scale)
    if p.states is not None:
        rows, columns = p.blocks
        t.node("states", p.states)
        t.sizes(query_block=rows, key_block=columns)


def _blocks(length: int, block: int) -> int:
    return -(-length // block) if block else 0


def _forward_text(p: AttentionProblem, tile: Tile) -> _KernelText:
    """Return the kernel that goes over keys, without its sizes and results."""
    t = _KernelText(p, "forward", tile, functions(p, dialect(1), derivative=False))
    t.constants["TB_FOLDS"] = int(not t.constants["TB_CHANGES"] and p.attrs.scale > 0)
    t.constants |= {"TB_PARTS": 0, "TB_TOGETHER": 0}
    _operands(t, p)
    return t


def forward(request: ScheduleRequest, launches: LaunchList, architecture: int) -> None:
    """Append the launch of attention."""
    root = request.root
    p = AttentionProblem(request, root.inputs, AttentionAttrs(**root.attrs))
    tile = forward_tile(p.width, p.deep, p.blocks[0], architecture)
    t = _forward_text(p, tile)
    count, each = attention_tiles(p.queries, p.blocks[0], tile.tall)
    t.sizes(tiles=count, tiles_each=max(each, 1))
    t.result("out", p.query.spec.dtype, request.results[0])
    t.result("lse", dt.float32, request.results[1])
    t.add(launches, count * p.heads * p.batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPlan:
    """The parts of the keys that a kernel goes over.

    ``together`` says that a tile's rows are the heads that share keys, of one query each. There are ``tiles``
    of them, ``tiles_each`` in a block of the mask, for each of ``groups`` and each part.
    """

    tile: Tile
    together: bool
    tiles: int
    tiles_each: int
    groups: int
    parts: Any


def plan_parts(p: AttentionProblem, target: Target) -> PartPlan:
    """Return the plan of a call: as many parts as keep the device busy."""
    share = _share(p)
    together = p.queries == 1 < share and (p.states is None or p.states.spec.shape[1] == 1)
    rows = share if together else p.queries
    n = 64 if _padded(p.width) + _padded(p.deep) <= 256 else 32
    m = 2 if rows > 16 and _padded(p.deep) <= 128 else 1
    tile = _tile(m, n, 1, 2, (p.width,), (p.width, p.deep), wgmma=False)
    tiles, each = attention_tiles(rows, 0 if together else p.blocks[0], tile.tall)
    groups = p.batch * (p.own_heads if together else p.heads)
    wanted = -(-target.work_items_to_fill // (_BUSY_PER_BLOCK * tiles * groups))
    parts = cut_keys(p, wanted, p.blocks[1] or n, _SHORTEST_PART)
    return PartPlan(
        tile=tile, together=together, tiles=tiles, tiles_each=max(each, 1), groups=groups, parts=parts
    )


def forward_parts(request: ScheduleRequest, launches: LaunchList) -> None:
    """Append the launches of attention whose keys are cut into parts, and what joins them."""
    root = request.root
    p = AttentionProblem(request, root.inputs, AttentionAttrs(**root.attrs))
    plan = plan_parts(p, launches.target)
    t = _forward_text(p, plan.tile)
    t.constants |= {"TB_PARTS": 1, "TB_TOGETHER": int(plan.together)}
    t.sizes(tiles=plan.tiles, tiles_each=plan.tiles_each, own_heads=p.own_heads, batches=p.batch,
            parts=plan.parts.count, part_length=plan.parts.length)  # fmt: skip
    slots = key_part_slots(p, launches, plan.parts.count)
    for name, slot in slots.items():
        t.result(name, dt.float32, slot)
    t.add(launches, plan.tiles * plan.groups * plan.parts.count)
    join_key_parts(p, launches, slots, request.results, plan.parts.count)


def gradients(request: ScheduleRequest, launches: LaunchList, architecture: int) -> None:
    """Append the launches of the derivative."""
    root = request.root
    p = AttentionProblem(request, root.inputs[4:], AttentionAttrs(**root.attrs))
    grad, grad_lse, out, lse = root.inputs[:4]
    rows = p.batch * p.heads * p.queries
    minus, behind = (launches.temporary(rows, dt.float32) for _ in range(2))
    layout = p.layout(grad)
    if not _is_fast(layout):
        shape = (p.batch, p.heads, p.queries, p.deep)
        slot = launches.temporary(rows * p.deep, grad.spec.dtype)
        steps = (p.heads * p.queries * p.deep, p.queries * p.deep, p.deep, 1)
        packed: Layout | None = Layout(slot, shape, steps)
    else:
        packed = None
    of_rows = {"grad": grad, "out": out, "grad_lse": grad_lse, "lse": lse}
    _of_rows(p, launches, of_rows, (minus, behind), packed)
    calls, read = functions(p, dialect(1), derivative=True), (packed or layout, minus, behind)
    of_queries, of_keys = tiles(root.op, p.width, p.deep, p.attrs, architecture)
    _of_queries(p, request, launches, calls, read, of_queries)
    if _padded(p.width) + _padded(p.deep) <= 256:
        _of_keys(p, request, launches, calls, read, of_keys, keys=True, values=True)
    else:  # the sums of both do not fit into registers
        _of_keys(p, request, launches, calls, read, of_keys, keys=True, values=False)
        _of_keys(p, request, launches, calls, read, of_keys, keys=False, values=True)


def _is_fast(layout: Layout) -> bool:
    """Return whether the rows of an operand can be copied 16 bytes at a time, as far as is known here."""
    *lead, last = layout.strides
    return (
        last == 1 and all(s % 8 == 0 for s in lead) and layout.offset % 8 == 0 and layout.shape[-1] % 8 == 0
    )


def _of_rows(
    p: AttentionProblem,
    launches: LaunchList,
    nodes: Mapping[str, Node],
    results: tuple[int, int],
    packed: Layout | None,
) -> None:
    tile = Tile(m=1, n=8, warps=4, stages=1, wgmma=False, nbytes=0)
    t = _KernelText(p, "rows", tile)
    t.constants["TB_PACKS"] = int(packed is not None)
    for name, node in nodes.items():
        t.node(name, node, inner=1 if name.endswith("lse") else 2)
    rows = p.batch * p.heads * p.queries
    t.sizes(rows=rows, queries=p.queries, heads=p.heads)
    t.result("minus", dt.float32, results[0])
    t.result("behind", dt.float32, results[1])
    if packed is not None:
        t.result("packed", nodes["grad"].spec.dtype, packed.slot)
    t.add(launches, -(-rows // tile.warps))


_Read = tuple[Layout, int, int]
"""What both passes of the derivative read: where the gradient lies, and what there is of each row."""


def _read(t: _KernelText, p: AttentionProblem, read: _Read) -> None:
    layout, minus, behind = read
    _operands(t, p)
    t.operand("grad", p.query.spec.dtype, layout)
    for name, slot in (("minus", minus), ("behind", behind)):
        t.b.buffer(name, dt.float32)
        t.slots[name] = slot


def _of_queries(
    p: AttentionProblem,
    request: ScheduleRequest,
    launches: LaunchList,
    calls: Sequence[Function],
    read: _Read,
    tile: Tile,
) -> None:
    t = _KernelText(p, "queries", tile, calls)
    t.constants["TB_TURNS"] = 1 - t.constants["TB_CHANGES"]  # with more to do to scores, order costs more
    _read(t, p, read)
    count, each = attention_tiles(p.queries, p.blocks[0], tile.tall)
    t.sizes(tiles=count, tiles_each=max(each, 1), key_blocks=_blocks(p.keys, p.blocks[1]))
    t.result("dquery", p.query.spec.dtype, request.results[0])
    t.add(launches, count * p.heads * p.batch)


def _of_keys(
    p: AttentionProblem, request: ScheduleRequest, launches: LaunchList, calls: Sequence[Function],
    read: _Read, tile: Tile, *, keys: bool, values: bool,
) -> None:  # fmt: skip
    t = _KernelText(p, "keys", tile, calls)
    t.constants |= {"TB_OF_KEYS": int(keys), "TB_OF_VALUES": int(values)}
    _read(t, p, read)
    count, each = attention_tiles(p.keys, p.blocks[1], tile.tall)
    t.sizes(
        tiles=count, tiles_each=max(each, 1), query_blocks=_blocks(p.queries, p.blocks[0]),
        own_heads=p.own_heads, each_batch=1 if p.own_batch == p.batch else p.batch,
    )  # fmt: skip
    if keys:
        t.result("dkey", p.query.spec.dtype, request.results[1])
    if values:
        t.result("dvalue", p.query.spec.dtype, request.results[2])
    t.add(launches, count * p.own_heads * p.own_batch)
