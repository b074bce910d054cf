"""``tb.compile.explain``: the graphs, graph breaks and guards of a call, for people to read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..backend_interface.graph import Graph
from .api import compile
from .capture.graph_break import GraphBreak
from .compiled_function import CompiledFunction
from .compiled_module import CompiledModule
from .guards.guard import Guard


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileExplanation:
    """The account of one call of a compiled function.

    ``graphs`` are the programs that ran, ``breaks`` where and why one ended early, ``guards`` what a later
    call must meet to run the same program without Python; ``reason`` says why there is no such program.
    Of a function that is divided where it breaks, ``segments`` says into how many parts with a program each;
    graphs and guards are theirs, and Python runs the lines between them. It is 0 where Python runs such calls
    as wholes.
    ``recompiles`` are the guards that failed so far, ``notes`` what the mode of ``compile`` came to,
    and which calls Python runs because it is faster, or were kept in segments, with the times of both.
    ``result`` is what the call returned, or ``error`` what it raised.
    """

    name: str
    graphs: tuple[Graph, ...]
    breaks: tuple[GraphBreak, ...]
    guards: tuple[Guard, ...]
    recompiles: tuple[str, ...]
    notes: tuple[str, ...]
    reason: str | None
    result: Any
    error: Exception | None = None
    segments: int = 0

    def __str__(self) -> str:
        how = (
            f"Python runs it at each call: it {self.reason}" if self.reason else "one program, without Python"
        )
        if self.segments:
            how = f"{self.segments} segment(s); Python runs the lines between: it {self.reason}"
        if self.error is not None:
            how = f"this call raised {type(self.error).__name__}: {self.error}"
        lines = [f"{self.name}: {how}", f"{len(self.graphs)} graph(s)"]
        for k, graph in enumerate(self.graphs):
            lines += [f"  graph {k}: {sum(1 for n in graph if n.op != 'input')} ops"]
            lines += [f"    {line}" for line in str(graph).splitlines()]
        lines += [f"{len(self.breaks)} break(s)", *[f"  {b}" for b in self.breaks]]
        lines += [f"{len(self.guards)} guard(s)", *[f"  {g.text}" for g in self.guards]]
        lines += [f"{len(self.recompiles)} recompile(s)", *[f"  {text} changed" for text in self.recompiles]]
        return "\n".join([*lines, *self.notes])


def explain(fn: Callable[..., Any]) -> Callable[..., CompileExplanation]:
    """Return a function that calls ``fn`` compiled, once, and says what became of it.

    >>> import tensorbus as tb
    >>> explanation = tb.compile.explain(lambda x: x * 2 + 1)(tb.ones((3,)))
    >>> len(explanation.graphs), len(explanation.breaks)
    (1, 0)
    """
    callee = compile(fn)
    compiled: CompiledFunction[..., Any] = (
        type(callee)._compiled if isinstance(callee, CompiledModule) else callee
    )

    def explained(*args: Any, **kwargs: Any) -> CompileExplanation:
        result, error = None, None
        entry = next((r for r in compiled.replays if r.first_failing_guard(args, kwargs) is None), None)
        programs = entry.programs(args, kwargs) if entry is not None else []
        recompiles_before = len(compiled.recompiles)
        try:
            result = callee(*args, **kwargs)
        except Exception as raised:
            error = raised
        explanation = partial(
            CompileExplanation, name=compiled.name, recompiles=tuple(compiled.recompiles), result=result,
            error=error,
        )  # fmt: skip
        if entry is not None and len(compiled.recompiles) == recompiles_before:  # an earlier call's program
            notes = dict.fromkeys(note for p in programs for note in p.notes)
            lost = entry.comparison is not None and entry.comparison.eager_wins
            return explanation(
                graphs=tuple(p.shown_graph for p in programs), breaks=(), guards=_shown(entry.guards),
                notes=(*notes, *compiled.choice.losses), reason="is slower as a program" if lost else None,
            )  # fmt: skip
        divided = [s for s in compiled.segments if s.replays or s.reasons]
        if divided:
            account = compiled.choice.account(args, kwargs)
            whole = account is not None and account[0]  # a loss, which is among those
            notes = dict.fromkeys(note for s in divided for note in s.notes)
            if account is not None and not whole:
                notes[account[1]] = None
            return explanation(
                graphs=tuple(graph for s in divided for graph in s.graphs),
                breaks=(*compiled.breaks, *(each for s in divided for each in s.breaks)),
                guards=tuple(guard for s in divided for r in s.replays[:1] for guard in _shown(r.guards)),
                notes=(*notes, *compiled.choice.losses),
                reason=f"is slower in {len(divided)} segment(s)" if whole else compiled.reasons[0],
                segments=0 if whole else len(divided),
            )  # fmt: skip
        captured = compiled.replays and not compiled.reasons and error is None
        used = compiled.replays[0] if captured else None
        return explanation(
            graphs=tuple(compiled.graphs),
            breaks=tuple(compiled.breaks),
            guards=_shown(used.guards) if used is not None else (),
            notes=(*compiled.notes, *compiled.choice.losses),
            reason=compiled.reasons[0] if compiled.reasons else None,
        )

    return explained


def _shown(guards: tuple[Guard, ...]) -> tuple[Guard, ...]:
    """Return the guards that can fail."""
    return tuple([guard for guard in guards if not guard.binds])
