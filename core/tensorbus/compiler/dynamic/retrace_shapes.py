"""Retracing with symbolic sizes: a second run of a captured function, for a program of all sizes.

The first run did nothing that generated code cannot repeat. So the function is run once more, dry: nothing
that it computes or mutates remains. Its trace must be that of the first run up to sizes. Where that fails in
any way, the program for the sizes of the first run is kept.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ...control_flow.unbacked_size import attrs_text
from ...tracing.sym_int import at
from ...tracing.sym_number import SymNumber
from ..capture.side_effect_observer import SideEffectObserver
from ..capture.tracer import Tracer
from ..programs.op_trace import TraceNode
from ..replay.cache_entry import CacheEntry
from ..replay.codegen import ReplayCodegen
from ..state.reachable import ReachableState
from ..state.snapshot import DRY_RUN_ERRORS, Snapshot, can_be_taken_back, complete_all, run_dry
from .mark_dynamic import Axes, relocated

_NOWHERE: Final = -1
"""The place in the first program of what only the second computes."""


def retrace_with_shapes(
    function: Callable[..., Any], root: Any, args: tuple[Any, ...], kwargs: dict[str, Any], axes: Axes,
    codes: Mapping[types.CodeType, dict[str, Any]], first: Sequence[TraceNode], mode: str, every: bool,
    begun: ReachableState,
) -> CacheEntry | None:  # fmt: skip
    """Return the cache entry of a run with symbolic ``axes``, whose trace is ``first`` otherwise; else None.

    The run begins in the state in which the first run did, which is that of ``begun``.
    """
    after = Snapshot(begun, now=True)
    back = [after.restore]
    active = Tracer(mode, dry=True)
    try:
        Snapshot(begun).restore()
        reach = ReachableState(root, args, kwargs, codes, every, begun.history.without_contents(),
                               replaced=begun.replaced_locations,
                               unrun_code=begun.unrun_code)  # fmt: skip
        if not can_be_taken_back(reach):
            return None
        back.insert(0, Snapshot(reach).restore)
        with active:
            for where, (x, limits) in relocated(axes, reach).items():
                active.open(x, where, limits)
            with SideEffectObserver() as observer:
                out = run_dry(function, args, kwargs)
            active.close()
            if not _is_same_trace(first, active):
                return None
            return active.untraced(lambda: ReplayCodegen(reach, observer, active).emit(out))
    except DRY_RUN_ERRORS:
        return None
    finally:
        complete_all(active.discard, *back)


def _is_same_trace(first: Sequence[TraceNode], active: Tracer) -> bool:
    """Return whether the trace is the first one, for the sizes that it had.

    Values that were equal by chance, such as two sizes, are one node there. What ops compute only because a
    length is a number of each run stands for what the first run had instead.
    """
    second = next(iter(active.traces.values()), None)
    if second is None or len(active.traces) > 1:
        return False
    plain = {
        place: feed.source.plain
        for place, feed in zip(second.inputs, second.sources, strict=True) if type(feed.source) is SymNumber
    }  # fmt: skip
    unread = {k for k in second.shadows.values() if second.nodes[k].op == "input"}
    places: list[int] = []  # of what was found, in the first program: what is one there may be several here
    matched = 0
    for k, b in enumerate(second.nodes):
        if k in second.shadow_only:
            places.append(places[second.shadows[k]] if k in second.shadows else _NOWHERE)
            continue
        operands = tuple(places[place] for place in b.operands)
        alike = partial(
            _is_same_node, b=b, operands=operands, plain=plain.get(k), sizes=active.shape_env.hints
        )
        at_last = matched < len(first) and alike(first[matched])
        place = matched if at_last else next((j for j in range(matched) if alike(first[j])), None)
        if place is None and k in unread:
            place = _NOWHERE
        if place is None:
            return False
        places.append(place)
        matched += at_last
    return matched == len(first)


def _is_same_node(
    a: TraceNode, b: TraceNode, operands: tuple[int, ...], plain: Any, sizes: Mapping[str, int]
) -> bool:
    if a.op == "constant" and b.op == "input":  # a number that depends on lengths
        return a.spec == b.spec and repr(a.attrs["value"]) == repr(plain)
    if (a.op, a.operands, a.recompute_tag, a.spec.dtype) != (b.op, operands, b.recompute_tag, b.spec.dtype):
        return False
    if a.op == "input":
        return a.spec.shape == at(b.spec.shape, sizes) and ("scalar" in a.attrs) == ("scalar" in b.attrs)
    return a.spec.shape == at(b.spec.shape, sizes) and attrs_text(a.attrs, {}) == attrs_text(b.attrs, sizes)
