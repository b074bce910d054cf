"""The check of loop IR. A kernel that passes names only what it has, with the types it says."""

from __future__ import annotations

from collections.abc import Sequence

from ...dtypes.definition import DType, bool_, real_of
from ...errors import TensorbusError
from .loop_ir import (
    INDEX,
    Apply,
    Array,
    Assign,
    Barrier,
    Cast,
    Const,
    CountWorkgroup,
    Expr,
    Fetch,
    For,
    If,
    LastTaskEpilogue,
    Let,
    Load,
    LoopKernel,
    Report,
    Select,
    Stmt,
    Store,
    Var,
    VectorAccess,
)
from .printer import expr_text

COMPARES = frozenset(
    """equal not_equal less less_equal greater greater_equal isnan isinf isfinite signbit""".split()
)
LOGICAL = frozenset({"logical_and", "logical_or", "logical_xor", "logical_not"})
REAL_RESULTS = frozenset({"abs", "real", "imag"})
"""What gives a real number also where its operand is complex."""


class IRError(TensorbusError, ValueError):
    """A kernel in loop IR is malformed: a fault of the pass that made it, not of the user's program."""


def verify(kernel: LoopKernel) -> LoopKernel:
    """Return ``kernel`` when it is well formed; raise ``IRError`` naming the statement otherwise."""
    checker = _Checker(kernel)
    checker.block(kernel.body, dict(checker.params), top=True)
    return kernel


class _Checker:
    def __init__(self, kernel: LoopKernel) -> None:
        self.kernel = kernel
        self.params: dict[str, tuple[Var, bool]] = {p.name: (p, False) for p in kernel.params}
        self.memory: dict[str, tuple[DType, bool]] = {b.name: (b.dtype, b.writes) for b in kernel.buffers}
        names = [*(b.name for b in kernel.buffers), *(p.name for p in kernel.params)]
        self.need(len(set(names)) == len(names), f"arguments of one name in {names}")

    def need(self, holds: bool, what: str) -> None:
        if not holds:
            raise IRError(f"kernel {self.kernel.name!r}: {what}\n{self.kernel}")

    def block(self, body: Sequence[Stmt], scope: dict[str, tuple[Var, bool]], top: bool = False) -> None:
        scope = dict(scope)
        for s in body:
            match s:
                case Let():
                    self.same(s.value, scope, s.var.dtype, s.var.lanes, f"let {s.var.name}")
                    self.need(s.var.name not in scope, f"{s.var.name!r} is defined twice")
                    scope[s.var.name] = (s.var, s.mutable)
                case Assign():
                    known = scope.get(s.var.name)
                    self.need(known is not None and known[1], f"{s.var.name!r} is no mutable local here")
                    self.same(s.value, scope, s.var.dtype, s.var.lanes, f"assignment to {s.var.name}")
                case Array():
                    self.need(s.size > 0, f"array {s.name!r} has no elements")
                    self.memory[s.name] = (s.dtype, True)
                case Store():
                    dtype, writes = self.memory.get(s.buffer, (None, False))
                    self.need(dtype is not None, f"no buffer {s.buffer!r}")
                    self.need(writes, f"buffer {s.buffer!r} is read-only")
                    self.same(s.index, scope, INDEX, 1, f"index of {s.buffer}")
                    self.need(s.value.dtype is dtype, f"{s.value.dtype} stored in {dtype} {s.buffer!r}")
                    self.check(s.value, scope)
                    if s.count is not None:
                        self.same(s.count, scope, INDEX, 1, "count of a store")
                    single = s.value.lanes == 1 and s.count is None
                    self.need(not s.combine or single, f"{s.combine} of several lanes in {s.buffer!r}")
                case If():
                    self.same(s.condition, scope, bool_, 1, "condition")
                    self.block(s.body, scope)
                case For():
                    self.loop(s, scope, top)
                case Report():
                    for e in (s.code, s.value, s.limit):
                        self.same(e, scope, INDEX, 1, "report")
                case Fetch():
                    self.need(s.buffer in self.memory, f"no buffer {s.buffer!r}")
                    self.same(s.index, scope, INDEX, 1, f"index of {s.buffer}")
                case VectorAccess():
                    for name in (s.array, s.buffer):
                        self.need(name in self.memory, f"no buffer {name!r}")
                    same = self.memory[s.array][0] is self.memory[s.buffer][0]
                    self.need(same, f"{s.array!r} and {s.buffer!r} have different elements")
                    self.need(not s.writes or self.memory[s.buffer][1], f"buffer {s.buffer!r} is read-only")
                    self.same(s.index, scope, INDEX, 1, f"index of {s.buffer}")
                case LastTaskEpilogue():
                    self.need(s is self.kernel.body[-1], "what the last work-item does stands at the end")
                    self.need(self.memory.get(s.counter, (None, False))[1], f"no counter {s.counter!r}")
                    self.same(s.total, scope, INDEX, 1, "count of work-items")
                    self.block(s.body, scope)
                case CountWorkgroup():
                    self.need(self.memory.get(s.counter, (None, False))[1], f"no counter {s.counter!r}")
                    self.same(s.index, scope, INDEX, 1, f"index of {s.counter}")
                    self.same(s.total, scope, INDEX, 1, "count of groups")
                    self.need(s.last.name not in scope, f"{s.last.name!r} is defined twice")
                    scope[s.last.name] = (s.last, False)
                case Barrier():
                    pass

    def loop(self, s: For, scope: dict[str, tuple[Var, bool]], top: bool) -> None:
        self.need(s.var.dtype is INDEX, f"loop variable {s.var.name!r} is not an index")
        self.need(s.var.name not in scope, f"{s.var.name!r} is defined twice")
        self.same(s.start, scope, INDEX, 1, "start")
        self.same(s.stop, scope, INDEX, 1, "stop")
        parallel = s.kind == "parallel"
        self.need(not parallel or top, f"parallel loop {s.var.name!r} is not outermost")
        if parallel and s.axis == 0 and (group := self.kernel.group):
            whole = isinstance(s.stop, Const) and s.stop.value == group
            self.need(whole, f"{s.var.name!r} is no loop over a workgroup of {group}")
        if s.kind == "unroll":
            constant = isinstance(s.start, Const) and isinstance(s.stop, Const)
            self.need(constant, f"unrolled loop {s.var.name!r} has unknown bounds")
        self.block(s.body, {**scope, s.var.name: (s.var, False)}, top=parallel)

    def same(self, e: Expr, scope: dict[str, tuple[Var, bool]], dtype: DType, lanes: int, where: str) -> None:
        self.check(e, scope)
        fits = e.dtype is dtype and e.lanes == lanes
        self.need(fits, f"{where}: {expr_text(e)} is {e.dtype}<{e.lanes}>, not {dtype}<{lanes}>")

    def check(self, e: Expr, scope: dict[str, tuple[Var, bool]]) -> None:
        match e:
            case Const():
                pass
            case Var():
                known = scope.get(e.name)
                self.need(known is not None, f"{e.name!r} is used before it is defined")
                self.need(known is not None and known[0] == e, f"{e.name!r} is not {e.dtype}<{e.lanes}>")
            case Load():
                dtype, _ = self.memory.get(e.buffer, (None, False))
                self.need(dtype is e.dtype, f"load of {e.dtype} from {dtype} {e.buffer!r}")
                self.same(e.index, scope, INDEX, 1, f"index of {e.buffer}")
            case Cast():
                self.check(e.arg, scope)
                self.need(e.arg.lanes in (1, e.lanes), f"lanes of {expr_text(e)}")
            case Select():
                self.same(e.condition, scope, bool_, min(e.condition.lanes, e.lanes), "condition")
                self.same(e.then, scope, e.dtype, e.lanes, "select")
                self.same(e.other, scope, e.dtype, e.lanes, "select")
            case Apply():
                for a in e.args:
                    self.check(a, scope)
                    self.need(a.lanes == e.lanes, f"lanes of {expr_text(e)}")
                kinds = {a.dtype for a in e.args}
                self.need(len(kinds) <= 1, f"operands of {e.op} have {[str(k) for k in kinds]}")
                actual = next(iter(kinds), e.dtype)
                of_parts = real_of(actual) if e.op in REAL_RESULTS else actual
                expected = bool_ if e.op in COMPARES | LOGICAL else of_parts
                if e.op == "bits":
                    self.need(actual.is_floating and e.dtype.kind == "uint", f"bits of {actual} as {e.dtype}")
                    expected = e.dtype
                if e.op == "complex":
                    self.need(e.dtype.is_complex, f"complex gives no {e.dtype}")
                    expected, actual = e.dtype, real_of(e.dtype)
                    self.need(kinds == {actual}, f"the parts of {e.dtype} are {[str(k) for k in kinds]}")
                if e.op == "ramp":
                    self.need(e.dtype.is_floating and e.lanes > 1, "ramp gives floats in lanes")
                self.need(e.dtype is expected, f"{e.op} gives {expected}, not {e.dtype}")
