"""The schedules of ``flex_attention`` and its derivative that use the tensor cores: half precision alone.

They are asked before those of the core, which serve what these do not.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tensorbus.backend_api import AttentionAttrs, AttentionProblem, Schedule, attention_tiles
from tensorbus.backend_api import dtypes as dt

if TYPE_CHECKING:
    from tensorbus.backend_api import LaunchList, ScheduleRequest, Target

    from .flex_kernels import Tile

OLDEST: Final = 80
"""The compute capability, times 10, of the first processors that multiply bfloat16 and copy on the side."""
WIDEST: Final = 256
"""Elements of a head for which there are registers."""
FEWEST: Final = 16
"""Queries below which rows of a tile would mostly be empty; keys are best divided then."""
_OF_PROCESSOR: Final = 1024
"""Threads of those that fill a device that a multiprocessor has."""
_INT32_MAX: Final = 2**31 - 1
_HALF: Final = (dt.float16, dt.bfloat16)


@cache
def tensor_core_schedules(architecture: int, shared: int) -> tuple[Schedule, ...]:
    """Return the schedules for GPUs of a compute capability, times 10.

    ``shared`` is how many bytes of shared memory a block may have.
    """

    def applies(op: str) -> Any:
        def verdict(request: ScheduleRequest, target: Target) -> Any:
            return served(request, op, architecture, shared)

        return verdict

    def forward(request: ScheduleRequest, launches: LaunchList) -> None:
        from . import flex_kernels

        flex_kernels.forward(request, launches, architecture)

    def gradients(request: ScheduleRequest, launches: LaunchList) -> None:
        from . import flex_kernels

        flex_kernels.gradients(request, launches, architecture)

    def in_parts(request: ScheduleRequest, launches: LaunchList) -> None:
        from . import flex_kernels

        flex_kernels.forward_parts(request, launches)

    return (
        Schedule(
            name="parts of the keys on tensor cores",
            about="queries are too few to fill the device: the keys are cut, by mma.sync, and what each part "
            "gives is joined",
            kinds=frozenset({"attention"}),
            applies=lambda request, target: _cut(request, target, architecture, shared), build=in_parts,
        ),
        Schedule(
            name="online softmax on tensor cores",
            about="a tile of queries for each block of threads, with products by mma.sync of half precision",
            kinds=frozenset({"attention"}), applies=applies("flex_attention"), build=forward,
        ),
        Schedule(
            name="two passes on tensor cores",
            about="a tile of queries goes over its keys, then a tile of keys over its queries, in mma.sync",
            kinds=frozenset({"attention"}), applies=applies("flex_attention_gradients"), build=gradients,
        ),
    )  # fmt: skip


def _refusal(request: ScheduleRequest, op: str, architecture: int) -> str:
    """Return why the tensor cores do not serve a call of ``op``, if they do not."""
    root = request.root
    if root.op != op:
        return f"it is for {op}"
    if architecture < OLDEST:
        return f"needs compute capability {OLDEST / 10}, and this is {architecture / 10}"
    before = 0 if op == "flex_attention" else 4
    query, key, value = (x.spec for x in root.inputs[before : before + 3])
    if query.dtype not in _HALF:
        return f"takes float16 and bfloat16: of {query.dtype} the tensor cores would round the operands"
    width, deep = query.shape[3], value.shape[3]
    if not 0 < width <= WIDEST or not 0 < deep <= WIDEST:
        return f"takes heads of 1 to {WIDEST} elements"
    if not query.shape[2] or not key.shape[2] or not query.shape[0] * query.shape[1]:
        return "takes a query or more, and a key"
    if max(query.shape[2], key.shape[2]) + WIDEST > _INT32_MAX:
        return "counts queries and keys in 32 bits"
    if query.shape[0] * query.shape[1] * max(query.shape[2], key.shape[2]) > _INT32_MAX:
        return "has a block of threads for each tile, of which a grid has 2**31 - 1 at most"
    return ""


def _fits(tile: Tile, shared: int) -> Any:
    if tile.nbytes > shared:
        return f"needs {tile.nbytes} bytes of shared memory, and a block has {shared}"
    return True


def served(request: ScheduleRequest, op: str, architecture: int, shared: int) -> Any:
    """Return True where the tensor cores serve a call of ``op``, else why not."""
    from . import flex_kernels

    if refusal := _refusal(request, op, architecture):
        return refusal
    root = request.root
    before = 0 if op == "flex_attention" else 4
    query, value = root.inputs[before].spec, root.inputs[before + 2].spec
    if query.shape[2] < FEWEST:
        return f"takes {FEWEST} queries or more"
    attrs = AttentionAttrs(**root.attrs)
    verdicts = [
        _fits(tile, shared)
        for tile in flex_kernels.tiles(op, query.shape[3], value.shape[3], attrs, architecture)
    ]
    return next((verdict for verdict in verdicts if verdict is not True), True)


def _cut(request: ScheduleRequest, target: Target, architecture: int, shared: int) -> Any:
    """Return True where the keys are cut into parts, else why not."""
    from . import flex_kernels

    op = "flex_attention"
    if refusal := _refusal(request, op, architecture):
        return refusal
    root = request.root
    p = AttentionProblem(request, root.inputs, AttentionAttrs(**root.attrs))
    tall = flex_kernels.forward_tile(p.width, p.deep, p.blocks[0], architecture).tall
    blocks = attention_tiles(p.queries, p.blocks[0], tall)[0] * p.heads * p.batch
    if p.queries >= FEWEST and blocks * _OF_PROCESSOR >= target.work_items_to_fill:
        return f"{blocks} tiles of queries fill the device"
    plan = flex_kernels.plan_parts(p, target)
    if plan.parts.count < 2:
        return f"{p.keys} keys are too few to be cut, or the device is full"
    return _fits(plan.tile, shared)
