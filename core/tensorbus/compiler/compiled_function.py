"""The object that ``compile`` returns: it looks up a cache entry, captures on a miss, and limits recompiles.

A call runs the first cache entry whose guards hold: the entry's generated code checks them. On a miss the
function runs once more on a tracer and is observed; where generated code can repeat all that it did, a new
entry is kept. A function that breaks is divided: Python runs the lines that break, and each segment between
them is a compiled function. Python runs any other on a tracer, which compiles what lies between breaks.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial, update_wrapper
from operator import attrgetter
from threading import get_ident
from time import perf_counter
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, Generic, ParamSpec, TypeVar

from .. import plugins
from ..devices.device import device
from ..dispatch.modes import is_guarded
from ..nn.module import Module
from ..nn.uninitialized_parameter import is_lazy
from ..system import env, fork_safe_locks
from ..system.garbage_collection import without_collections
from ..system.progress_line import progress_line
from ..system.rank_of_thread import rank_of_thread
from ..system.weak_tables import WeakSet, WeakTable
from ..tensor.tensor import Tensor
from ..tracing.active_modes import active_modes
from ..tracing.lazy_value import wait_for_copies
from .capture.break_sites import CAPTURING_CODE, BreakSites
from .capture.data_dependent_errors import CAPTURE_ROOTS
from .capture.graph_break import GraphBreak
from .capture.raised_captures import RaisedCaptures
from .capture.side_effect_observer import SideEffectObserver
from .capture.tracer import Tracer
from .compiled_module import CompiledModule, share_state
from .dynamic.mark_dynamic import Axes, DynamicAxes, contradicted_marks
from .dynamic.retrace_shapes import retrace_with_shapes
from .dynamic.retrace_state import FirstTrace, retrace_with_state
from .dynamic.varying_inputs import VaryingInputs
from .eager_choice import EagerChoice, code_of, is_compared
from .programs import one_time_work
from .recompile_warning import warn_of_captures, warn_of_mark
from .replay.cache_entry import FALL_BACK, GUARD_MISS, CacheEntry, in_order
from .replay.codegen import ReplayCodegen
from .replay.eager_comparison import eager_threads
from .segments.long_loops import LongLoopFinder
from .segments.segmentation import Segmentation, asks_cache
from .state.argument_history import ArgumentHistory
from .state.inspection import WRAPPED_FUNCTIONS
from .state.mutations import Mutations, StateVaries
from .state.object_view import OpaqueObject, StateNotSettled, Uncapturable
from .state.optimizer_init import OptimizerInit
from .state.reachable import ReachableState
from .state.value_identity import exact_isinstance, is_transformed, stands_for_others

P = ParamSpec("P")
R = TypeVar("R")
RECOMPILE_LIMIT: Final = 8
"""The number of cache entries of one function after which Python runs it at each call."""
MAX_CAPTURES: Final = 4 * RECOMPILE_LIMIT
"""The number of captures of one function after which Python runs it, also where later ones replace others."""
MAX_FAILED_CAPTURES: Final = 3
"""The number of failed captures after which Python runs the function at each call."""
_all: Final[WeakSet[CompiledFunction[..., Any]]] = WeakSet()


class CompiledFunction(Generic[P, R]):
    """A compiled function: ``replays`` are its cache entries, in the order of ``in_order``.

    ``breaks``, ``reasons`` and ``recompiles`` report graph breaks, failed captures and failed guards. Its
    ``__dict__`` is that of the original function: attributes that user code sets and reads.
    """

    __slots__ = (
        "__dict__", "__weakref__", "_all_attributes", "_arguments", "_axes", "_choice", "_divided_code",
        "_extra_code", "_failed_captures", "_function", "_lock", "_note_sites", "_python_only", "_ranks",
        "_root", "_segmentation", "_unrolls", "_unsettled_captures", "_varying", "breaks", "compare_eager",
        "dynamic", "fullgraph", "graphs", "mode", "name", "notes", "reasons", "recompiles", "replays",
    )  # fmt: skip

    def __init__(
        self, function: Callable[P, R], *, fullgraph: bool, dynamic: bool | None, mode: str,
        compare_eager: bool | None = None,
    ) -> None:  # fmt: skip
        update_wrapper(self, function)
        self._function = function
        self.name = getattr(function, "__qualname__", type(function).__name__)
        self._root: Any = function
        self.fullgraph, self.dynamic, self.mode, self.compare_eager = fullgraph, dynamic, mode, compare_eager
        self.replays: list[CacheEntry] = []
        self.breaks: list[GraphBreak] = []
        self.reasons: list[str] = []
        self.recompiles: list[str] = []
        self.graphs: list[Any] = []
        self.notes: list[str] = []
        self._extra_code: dict[CodeType, dict[str, Any]] = {}
        self._python_only = self._all_attributes = self._unrolls = False
        self._arguments = ArgumentHistory()
        self._axes = DynamicAxes(dynamic)
        self._varying = VaryingInputs()
        self._failed_captures = self._unsettled_captures = 0
        self._captures = 0
        self._raised = RaisedCaptures()
        self._lock = fork_safe_locks.reentrant()
        self._ranks: WeakTable[Any, CompiledFunction[P, R]] | None = None
        self._segmentation: Segmentation | None = None
        self._note_sites: Callable[[BreakSites], bool] | None = None
        """Of a segment: takes the places where its capture broke, by which the function is divided anew."""
        self._choice = EagerChoice(self.name)
        """The comparisons with Python; a function and its segments share them."""
        self._divided_code: CodeType | None = None
        """Of a segment: the code of the function that was divided."""
        _all.add(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return what the function returns."""
        if active_modes and not is_guarded():  # part of what a mode sees, as a capture does
            return self._function(*args, **kwargs)
        for entry in self.replays:
            out = entry.run(args, kwargs)
            if out is FALL_BACK:
                return entry.run_in_python(lambda: self._function(*args, **kwargs))
            if out is not GUARD_MISS:
                return out  # type: ignore[no-any-return]
        choice = self._choice
        if choice.tracing is not None and choice.tracing.eager_wins:
            return self._function(*args, **kwargs)
        if self._segmentation is not None and not self._segmentation.withdrawn:
            callee = self._segmentation.callee
            if choice.divided is not None:
                return choice.divided.run(callee, args, kwargs)  # type: ignore[no-any-return]
            return callee(self._function)(*args, **kwargs)  # type: ignore[no-any-return]
        return self._miss(args, kwargs)

    @property
    def function(self) -> Callable[P, R]:
        """The original function."""
        return self._function

    @property
    def this_rank(self) -> CompiledFunction[P, R]:
        """The captures of this rank, where ranks are threads, which share nothing; elsewhere the function."""
        rank = rank_of_thread()
        return self if rank is None else self._of_rank(rank)

    @property
    def choice(self) -> EagerChoice:
        """Comparisons with Python, and what came of them."""
        return self._choice

    @property
    def segments(self) -> list[CompiledFunction[..., Any]]:
        """The parts into which the function is divided where it breaks, and those of functions it calls."""
        return [] if self._segmentation is None else self._segmentation.segments

    @property
    def options(self) -> dict[str, Any]:
        """The options of ``compile``."""
        return {
            "fullgraph": self.fullgraph, "dynamic": self.dynamic, "mode": self.mode,
            "compare_eager": self.compare_eager,
        }  # fmt: skip

    def again(self, function: Callable[..., Any]) -> Any:
        """Return another function compiled with the same options."""
        return compile_callable(function, **self.options)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        function = copy.deepcopy(self._function, memo)
        if function is self._function:  # functions are their own copies
            return self
        return self.again(function)

    def __reduce__(self) -> Any:
        if self._is_named():  # as a function is: in the place of the one that it wraps
            return self.__qualname__  # type: ignore[attr-defined]
        return self._recipe()

    def _recipe(self) -> Any:
        """Return what a pickle needs to compile the function again."""
        return partial(compile_callable, **self.options), (self._function,)

    def _is_named(self) -> bool:
        """Return whether its module has it under its own name, as a decorator puts it there."""
        try:
            return attrgetter(self.__qualname__)(sys.modules[self.__module__]) is self  # type: ignore[attr-defined]
        except (AttributeError, KeyError):
            return False

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def _miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        if is_transformed(args, kwargs) or get_ident() in eager_threads:
            return self._function(*args, **kwargs)
        if (rank := rank_of_thread()) is not None:
            return self._of_rank(rank)(*args, **kwargs)
        return self._capture_missed(args, kwargs)

    def _capture_missed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        wait_for_copies()  # guards know values that are there
        with self._lock:
            if self._python_only:
                return self._run_python(args, kwargs)
            entries = self.replays  # others may drop them
            for entry in entries:  # another thread may have captured it meanwhile
                out = entry.run(args, kwargs)
                if out is FALL_BACK:
                    return entry.run_in_python(lambda: self._function(*args, **kwargs))
                if out is not GUARD_MISS:
                    return out  # type: ignore[no-any-return]
            if not (self.fullgraph or self._raised.may_capture()):
                return self._raised.run(lambda: self._function(*args, **kwargs))
            if entries:
                guard = entries[0].first_failing_guard(args, kwargs)
                why = guard.text if guard is not None else "a condition on a number that varies"
                self._varying.misses_by_prologue += guard is None
                self.recompiles.append(why)
                if self.dynamic is not False:
                    for entry in entries:
                        self._varying.note_changed(entry.changed_locations(args, kwargs))
                if len(entries) >= RECOMPILE_LIMIT or self._captures >= MAX_CAPTURES:
                    self._python_only = True
                    self.replays = []
                    self.reasons = [f"was captured {self._captures} times, and still {why} differed"]
                    warn_of_captures(self.name, self._captures, why)
                    self._divide_at_late_statements()
                    return self._run(args, kwargs)
            return self._capture(args, kwargs)

    def _of_rank(self, rank: Any) -> CompiledFunction[P, R]:
        """Return what was captured for one of the ranks that are threads; ``rank`` keeps it alive."""
        with self._lock:
            if self._ranks is None:
                self._ranks = WeakTable()
            mine = self._ranks.get(rank)
            if mine is None:
                mine = self._ranks[rank] = _OfRank(self._function, **self.options)
            return mine

    def _run_python(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        """Run the Python code: of a segment as it is, what breaks in it could not be divided any further.

        So is a function with a loop that is too long for a program and could not be divided either.
        """
        if self._note_sites is not None or self._unrolls:
            return self._function(*args, **kwargs)
        choice = self._choice
        if choice.tracing is None and self._is_compared():
            tensors = [x for x in (*args, *kwargs.values()) if exact_isinstance(x, Tensor)]
            devices = {device(), *(x.device for x in tensors)}
            choice.compare_tracing([*devices], lambda: self.breaks, code_of(self._function))
        if choice.tracing is None:
            return self._run(args, kwargs)
        return choice.tracing.run(lambda: self._run(args, kwargs), lambda: self._function(*args, **kwargs))

    def _is_compared(self) -> bool:
        return is_compared(self.compare_eager) and not self.fullgraph and rank_of_thread() is None

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        """Run the Python code on a tracer, which compiles what lies between graph breaks."""
        with Tracer(self.mode, self.fullgraph) as active:
            try:
                out = self._function(*args, **kwargs)
            finally:
                active.run()
                self._note(active)
        return out

    def _note(self, active: Tracer) -> None:
        self.breaks = active.breaks
        self.graphs = [p.shown_graph for p in active.programs]
        self.notes = list(dict.fromkeys(note for p in active.programs for note in p.notes))

    def _capture(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        """Run the Python code on a tracer, observed, and keep a cache entry where one is possible."""
        with without_collections(), progress_line(f"compiling {self.name}"):
            return self._capture_observed(args, kwargs)

    def _capture_observed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        one_time_work.note()
        if self._arguments.begin((*enumerate(args), *kwargs.items())):
            self.replays = []
        try:
            reach = self._reachable(self._extra_code, args, kwargs)
        except Uncapturable as error:
            self._python_only, self.reasons = True, [str(error)]
            return self._run(args, kwargs)
        if any(is_lazy(tracked.obj) for tracked in reach.tensors()):
            self.reasons = ["reaches a lazy module that was not called yet"]
            return self._function(*args, **kwargs)
        if any(stands_for_others(tracked.obj) for tracked in reach.tensors()):
            self.reasons = ["reaches a tensor that stands for others, as those of a transform do"]
            return self._function(*args, **kwargs)
        optimizer_init, start = OptimizerInit(reach), perf_counter()
        with self._trial() as active:
            axes = self._axes.symbolic_axes(reach)
            for x, _ in axes.values():  # in the order in which a run with symbolic sizes takes them
                active.place(x)
            try:
                with SideEffectObserver(active.sites, reach.objects) as observer:
                    out = self._function(*args, **kwargs)
            except BaseException as error:
                optimizer_init.undo_unused(active.prologue.stepped_optimizers)
                active.run()
                self._note(active)
                if isinstance(error, Exception):
                    self._raised.note(perf_counter() - start)
                raise
            traces = [*active.traces.values()]
            first = [node for trace in traces for node in trace.nodes]
            mutations: Mutations | None = None
            unsettled = False
            try:
                if optimizer_init.undo_unused(active.prologue.stepped_optimizers):
                    raise Uncapturable("an optimizer has parameters that took no step")
                entry, reason = active.untraced(lambda: self._emit_entry(reach, observer, active, out)), None
            except Uncapturable as error:
                entry, reason = None, str(error)
                unsettled = isinstance(error, StateNotSettled)
                if isinstance(error, OpaqueObject) and not self.fullgraph:
                    active.sites.note_opaque(code_of(self._function))
                mutations = error.mutations if isinstance(error, StateVaries) and len(traces) < 2 else None
            except BaseException:  # no program: the effects of the function stand all the same
                active.run()
                self._note(active)
                raise
            varying = self._varying.varying_arguments(args, kwargs) if self.dynamic is not False else set()
            may_vary = entry is not None and len(traces) < 2
            varies = may_vary and (bool(varying) or self._varying.may_be_read_by(reach))
            if entry is not None and not varies and not axes:
                reach.drop_old_values()
            active.run(entry.prepared if entry is not None else None)
        self._note(active)
        retraced = None
        mutations = Mutations() if varies else mutations
        if mutations is not None:
            first_run = FirstTrace(reach, active.prologue, traces[0] if traces else None, len(first), out)
            retraced = self._retrace(args, kwargs, first_run, mutations, axes, observer, varying, varies)
            entry = retraced or entry
        if entry is not None:
            if axes and retraced is None:
                codes = {**self._extra_code, **observer.codes}
                general = retrace_with_shapes(
                    self._function, self._root, args, kwargs, axes, codes, first, self.mode,
                    self._all_attributes, reach,
                )  # fmt: skip
                entry = general or entry
            for what in contradicted_marks(axes, entry.shape_env, reach):
                warn_of_mark(self.name, what)
            self._choice.note_segment(traces)
            if self._is_compared():
                self._choice.compare_entry(entry, traces, active.sites, code_of(self._function))
            self.replays = in_order([entry, *self.replays])
            self._captures += 1
            self.reasons = []
        else:
            self._note_failure(str(reason), unsettled, active.sites, reach, observer)
        return out

    def _retrace(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], first: FirstTrace, mutations: Mutations,
        axes: Axes, observer: SideEffectObserver, varying: set[int | str], varies: bool,
    ) -> CacheEntry | None:  # fmt: skip
        """Return the cache entry of a second, dry run, in which what varies is symbolic; None without one."""
        make = partial(self._reachable, {**self._extra_code, **observer.codes}, args, kwargs)
        retrace = partial(
            retrace_with_state, self._function, make, args, kwargs, first, mutations, self._varying, self.mode
        )
        choices, order = [axes, {}] if axes else [{}], [*self._varying.retrace_order()]
        retraced = self._varying.most_general_trace(
            lambda: next(filter(None, (retrace(symbolic, n) for symbolic in choices for n in order)), None),
            first.reach, varying, counts=not varies,
        )  # fmt: skip
        if retraced is None:
            return None
        entry, found_more = retraced
        if found_more:  # older entries hold for one value of a number that varies
            self.replays = []
        return entry

    def _note_failure(
        self, reason: str, unsettled: bool, sites: BreakSites, reach: ReachableState,
        observer: SideEffectObserver,
    ) -> None:  # fmt: skip
        """Note a run without an entry: it may have made state, or run code, that the next one finds."""
        new = {c: s for c, s in observer.codes.items() if "site-packages" not in c.co_filename}
        self._extra_code.update(new)
        self._all_attributes = self._all_attributes or observer.reads_any_name
        self._unsettled_captures += unsettled
        self._failed_captures += not unsettled
        self._python_only = (
            self._failed_captures >= MAX_FAILED_CAPTURES or self._unsettled_captures >= RECOMPILE_LIMIT
        )
        self.reasons = [reason]
        divides = sites.breaks or sites.loops or sites.opaque
        undivided = not unsettled and divides and not self._divide(sites, reach.codes)
        if undivided and sites.repeats:
            self._python_only = self._unrolls = True
        self._divide_at_late_statements()

    def _divide_at_late_statements(self) -> None:
        """Divide the function anew where a segment of it is given up with statements that were put off."""
        code = code_of(self._function)
        if self._python_only and self._note_sites is not None and code is not None:
            sites = BreakSites()
            sites.given_up = code
            self._note_sites(sites)

    def _trial(self) -> Tracer:
        """Return the tracer of a capture, which ends where a loop is too long."""
        code = code_of(self._function)
        divided = {code: self._divided_code} if code is not None and self._divided_code is not None else {}
        finder = LongLoopFinder(0 if self.fullgraph else env.unroll_limit(), divided)
        return Tracer(
            self.mode, self.fullgraph, trial=True, find_long_loop=finder.find, search_from=finder.search_from
        )

    def _divide(self, sites: BreakSites, codes: Iterable[CodeType]) -> bool:
        """Divide the function into segments where its capture broke, if its source and ``codes`` allow that.

        ``codes`` are those that the function reaches. Return whether anything is divided anew.
        """
        if self._note_sites is not None:
            return self._note_sites(sites)
        if self._segmentation is not None or sites.asks_cache or asks_cache(codes):
            return False
        segmentation = Segmentation(self._compile_segment)
        segmentation.add(sites)
        if segmentation.callee(self._function) == self._function:
            return False
        self._segmentation, self.replays = segmentation, []
        if self._is_compared():
            self._choice.compare_divided(self._function, self.breaks)
        return True

    def _compile_segment(
        self, function: FunctionType, divided: CodeType, note_sites: Callable[[BreakSites], bool]
    ) -> CompiledFunction[..., Any]:
        segment = CompiledFunction(function, **self.options)
        segment._note_sites, segment._divided_code = note_sites, divided
        segment._choice = self._choice
        return segment

    def _reachable(
        self, code: Mapping[CodeType, dict[str, Any]], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> ReachableState:
        """Return the state that the function reaches; ``code`` is known to run besides what is found."""
        replaced = self._axes.replaced_locations
        return ReachableState(self._root, args, kwargs, code, self._all_attributes, self._arguments, replaced,
                              self._divided_code)  # fmt: skip

    def _emit_entry(
        self, reach: ReachableState, observer: SideEffectObserver, active: Tracer, out: Any
    ) -> CacheEntry:
        codegen = ReplayCodegen(reach, observer, active)
        unknown = observer.codes.keys() - reach.codes.keys()
        if unknown:
            raise Uncapturable(f"ran {next(iter(unknown)).co_qualname}, which nothing names")
        try:
            return codegen.emit(out)
        except RecursionError:
            raise Uncapturable("makes objects that are nested more deeply than Python calls go") from None


class _OfRank(CompiledFunction[P, R]):
    """The captures of one rank, where ranks are threads: they wait for each other, so they share no lock."""

    def _miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        return self._capture_missed(args, kwargs)


def _drop_all_entries() -> None:
    """Drop every cache entry: its executable may be gone, as a device is in a forked child."""
    for compiled in _all:
        compiled.replays = []


plugins.on_change(_drop_all_entries)


WRAPPED_FUNCTIONS[CompiledFunction] = "_function"
CAPTURE_ROOTS.add(CompiledFunction._run.__code__)
CAPTURING_CODE.update({id(CompiledFunction._run.__code__), id(CompiledFunction._capture_observed.__code__)})


def compile_callable(
    function: Callable[..., Any], **options: Any
) -> CompiledFunction[..., Any] | CompiledModule:
    """Return a function or a module compiled with these options, which are known to be valid."""
    compiled = CompiledFunction(function, **options)
    return share_state(function, compiled) if isinstance(function, Module) else compiled
