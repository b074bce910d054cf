"""Loop IR to source text, with a dialect's data: the only code that writes a device's language."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence

from ...dtypes.definition import NARROW, DType, bfloat16, float16, float32, float64, real_of, uint32, uint64
from ...errors import TensorbusError
from ..ir.loop_ir import (
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
from .c_complex import PAIR
from .dialect import Dialect, Helper, Template, TypeRule
from .loop_invariant_motion import hoisted

PAGE = 4096
_STORED_AS_BITS = (float16, bfloat16)
_AT_ONCE = {"logical_and": "bitwise_and", "logical_or": "bitwise_or"}
"""Conditions of which both are looked at, so that compilers make vectors of them. Those of positions are left
alone: what lies outside is known by the first one mostly."""
_LIMITS = {4: (3.4028234663852886e38, 1.1754943508222875e-38), 8: (sys.float_info.max, sys.float_info.min)}


def _held(value: float, dtype: DType) -> float:
    """Return a number as ``dtype`` holds it, where that is known here: no program need round it.

    Nor is it asked to: a driver was seen to crash on such calls inside of choices between halves.
    """
    if dtype not in _STORED_AS_BITS or not math.isfinite(value):
        return value
    try:
        single = struct.pack("f", value)
        if dtype is float16:
            return float(struct.unpack("e", struct.pack("e", *struct.unpack("f", single)))[0])
    except OverflowError:
        return math.copysign(math.inf, value)
    (bits,) = struct.unpack("I", single)
    high = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
    return float(struct.unpack("f", struct.pack("I", high))[0])


def render(kernel: LoopKernel, dialect: Dialect) -> str:
    """Return the source of ``kernel``. Raises ``TensorbusError`` for what the dialect cannot say."""
    if kernel.code:
        return kernel.code
    return _Renderer(kernel, dialect).source()


def kernel_parts(kernel: LoopKernel, dialect: Dialect) -> tuple[dict[str, str], str]:
    """Return the functions that ``kernel`` needs, by name, and its source: ``render`` without prologue."""
    return _Renderer(kernel, dialect).parts()


def _has_loops(body: Sequence[Stmt]) -> bool:
    return any(isinstance(s, For) or (isinstance(s, If) and _has_loops(s.body)) for s in body)


def _has_positions(e: Expr) -> bool:
    """Return whether a condition asks where an element lies."""
    match e:
        case Cast():
            return _has_positions(e.arg)
        case Apply():
            return e.dtype is not INDEX and any(a.dtype is INDEX or _has_positions(a) for a in e.args)
        case Select():
            return any(map(_has_positions, (e.condition, e.then, e.other)))
        case _:
            return False


def _nested(body: Sequence[Stmt]) -> Iterator[Stmt]:
    """Yield statements and those of the loops among them."""
    for s in body:
        yield s
        if isinstance(s, For):
            yield from _nested(s.body)


class _Renderer:
    def __init__(self, kernel: LoopKernel, dialect: Dialect) -> None:
        self.kernel = kernel
        self.dialect = dialect
        self.types = {**dialect.types, **dialect.task_types} if kernel.task else dialect.types
        self.helpers: dict[str, str] = {}
        self.lines: list[str] = []
        self.depth = 1
        self.memory: dict[str, tuple[DType, bool]] = {b.name: (b.dtype, True) for b in kernel.buffers}
        self.aliased = any(b.aliased for b in kernel.buffers)
        self.shared = {b.name for b in kernel.buffers if b.aliased or b.shared}

    def source(self) -> str:
        helpers, own = self.parts()
        return "\n".join([self.dialect.prologue, *helpers.values(), own])

    def parts(self) -> tuple[dict[str, str], str]:
        d = self.dialect
        arguments = []
        for b in self.kernel.buffers:
            constant = "" if b.writes else d.constant
            form = (d.aliased_buffer if b.aliased or b.shared else "") or d.buffer
            arguments.append(form.format(const=constant, T=self.rule(b.dtype).storage, name=b.name))
        arguments += [d.param.format(T=self.rule(p.dtype).storage, name=p.name) for p in self.kernel.params]
        self.block(self.kernel.body)
        form = d.task if self.kernel.task else d.kernel
        head = form.format(name=self.kernel.name, arguments=", ".join(arguments), group=self.kernel.group)
        return self.helpers, "\n".join([f"{head} {{", *self.lines, "}", ""])

    def rule(self, dtype: DType) -> TypeRule:
        if dtype is INDEX:
            return self.dialect.index
        rule = self.types.get(dtype)
        if rule is None:
            raise TensorbusError(f"{self.dialect.name} has no {dtype}")
        return rule

    def type(self, dtype: DType, lanes: int = 1) -> str:
        register = self.rule(dtype).register
        return register if lanes == 1 else self.dialect.vector_type.format(T=register, lanes=lanes)

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def block(self, body: Sequence[Stmt]) -> None:
        for s in body:
            self.statement(s)

    def assigned(self, s: Assign) -> str:
        """Return what a variable becomes: a sum of itself is written as the dialect has it."""
        e, plus = s.value, self.dialect.plus
        if plus and e.dtype in (float32, float64) and s.var.lanes == 1:
            match e:
                case Apply(op="add", args=(first, other)) if first == s.var:
                    return plus.format(s.var.name, self.expr(other), T=self.type(e.dtype))
        return self.expr(e)

    def nested(self, body: Sequence[Stmt]) -> None:
        self.depth += 1
        self.block(body)
        self.depth -= 1
        self.line("}")

    def statement(self, s: Stmt) -> None:
        match s:
            case Let():
                const = "" if s.mutable else "const "
                self.line(
                    f"{const}{self.type(s.var.dtype, s.var.lanes)} {s.var.name} = {self.expr(s.value)};"
                )
            case Assign():
                self.line(f"{s.var.name} = {self.assigned(s)};")
            case Array():
                self.memory[s.name] = (s.dtype, s.space == "vector")
                if s.space == "vector":
                    rule = self.rule(s.dtype)
                    form = rule.access_array or self.dialect.access_array
                    self.line(form.format(T=rule.storage, name=s.name, n=s.size) + ";")
                    return
                shared = f"{self.dialect.shared} " if s.space == "shared" else ""
                paged = self.dialect.paged if s.size * s.dtype.itemsize >= PAGE else ""
                self.line(f"{shared}{self.type(s.dtype)} {s.name}[{s.size}]{paged};")
            case Store():
                self.store(s)
            case If():
                self.line(f"if ({self.expr(s.condition)}) {{")
                self.nested(s.body)
            case For():
                self.loop(s)
            case Fetch():
                if self.dialect.fetch:
                    dtype, keys = (
                        self.memory[s.buffer][0],
                        {"p": s.buffer, "i": self.expr(s.index), "n": s.count},
                    )
                    self.line(self.template(self.dialect.fetch, dtype, [], **keys))
            case VectorAccess():
                dtype, at = self.memory[s.buffer][0], f"{s.buffer} + ({self.expr(s.index)})"
                ends = {"to": at, "from": s.array} if s.writes else {"to": s.array, "from": at}
                move = self.dialect.access_write if s.writes else self.dialect.access_read
                self.line(self.template(move, dtype, [], n=s.lanes * dtype.itemsize, **ends) + ";")
            case LastTaskEpilogue():
                self.last(s)
            case Barrier():
                self.line(f"{self.dialect.barrier};")
            case CountWorkgroup():
                keys = {"p": s.counter, "i": self.expr(s.index), "n": self.expr(s.total)}
                arrival = self.template(self.dialect.arrive, INDEX, [], **keys)
                self.line(f"const {self.type(s.last.dtype)} {s.last.name} = {arrival};")
            case Report():
                values = {"code": self.expr(s.code), "value": self.expr(s.value), "limit": self.expr(s.limit)}
                self.line(self.template(self.dialect.report, INDEX, [], p=s.buffer, **values))

    def loop(self, s: For) -> None:
        body: Sequence[Stmt] = s.body
        if s.kind == "parallel" and s.axis == 0 and self.dialect.bounds:
            before, body = hoisted(body, s.var, self.shared)
            self.block(before)
        start, stop = self.expr(s.start), self.expr(s.stop)
        index = self.dialect.index.register
        if s.kind == "parallel" and s.axis == 0 and self.kernel.task and self.dialect.share:
            self.lines += [
                "  " * self.depth + text.format(v=s.var.name, n=stop) for text in self.dialect.share
            ]
        elif s.kind == "parallel" and self.dialect.strides:
            start, step = self.dialect.parallel[s.axis], f"{s.var.name} += {self.dialect.strides[s.axis]}"
            self.line(f"for ({index} {s.var.name} = {start}; {s.var.name} < {stop}; {step}) {{")
        elif s.kind == "parallel" and self.dialect.parallel:
            self.line(f"const {index} {s.var.name} = {self.dialect.parallel[s.axis]};")
            # Workgroups of a given size leave no work-item over. A condition would say that some may miss the
            # barriers inside: a driver was seen to let all work-items pass the conditions behind these.
            self.line("{" if self.kernel.group else f"if ({s.var.name} < {stop}) {{")
        else:
            if s.kind == "parallel" and self.dialect.bounds:
                start, stop = self.dialect.bounds[s.axis]
            if s.kind == "unroll" and self.dialect.unroll:
                self.lines.append(self.dialect.unroll)
            rest = s.kind == "rest" and bool(self.dialect.rest)
            if self.aliased and self.dialect.independent and not rest and not _has_loops(s.body):
                self.line(self.dialect.independent)
            step = f"{s.var.name} += {s.step}" if s.step != 1 else f"++{s.var.name}"
            self.line(f"for ({index} {s.var.name} = {start}; {s.var.name} < {stop}; {step}) {{")
            if rest:
                self.lines.append("  " * (self.depth + 1) + self.dialect.rest)
        self.nested(body)

    def last(self, s: LastTaskEpilogue) -> None:
        if not self.dialect.last:
            raise TensorbusError(f"{self.dialect.name} does not say which task is the last")
        axes = sum(isinstance(x, For) and x.kind == "parallel" for x in _nested(self.kernel.body))
        here = " * ".join(f"({stop} - {start})" for start, stop in self.dialect.bounds[:axes])
        keys = {"p": s.counter, "count": here, "n": self.expr(s.total)}
        self.line(f"if ({self.template(self.dialect.last, INDEX, [], **keys)}) {{")
        self.nested(s.body)

    def store(self, s: Store) -> None:
        dtype, outside = self.memory[s.buffer]
        index = self.expr(s.index)
        value = self.expr(s.value, direct=outside)
        if s.combine:
            near = {} if outside else self.dialect.combined_shared
            template = (near or self.dialect.combined).get((s.combine, dtype))
            if template is None:
                raise TensorbusError(f"{self.dialect.name} has no {s.combine} of {dtype} in one step")
            self.line(self.template(template, dtype, [], p=s.buffer, i=index, v=value) + ";")
        elif s.value.lanes > 1:
            d, keys = self.dialect, {"p": s.buffer, "i": index, "v": value, "lanes": s.value.lanes}
            keys["B"] = self.rule(dtype).storage
            if s.count is None:
                rule = self.rule(dtype)
                template = (s.nontemporal and rule.wide_nontemporal) or rule.wide_store if outside else ""
                template = template or (s.nontemporal and d.vector_nontemporal) or d.vector_store
                self.line(self.template(template, dtype, [], **keys) + ";")
            else:
                self.line(self.template(d.vector_store_some, dtype, [], n=self.expr(s.count), **keys) + ";")
        elif outside:
            rule = self.rule(dtype)
            exact = rule.store_exact if isinstance(s.value, Var | Load) else ""  # which is rounded already
            self.line(self.moved(exact or rule.store, dtype, p=s.buffer, i=index, v=value) + ";")
        else:
            self.line(f"{s.buffer}[{index}] = {value};")

    def template(self, template: Template, dtype: DType, args: Sequence[str], **keys: object) -> str:
        rule, part = self.rule(dtype), self.rule(real_of(dtype))
        lanes = keys.get("lanes", 1)
        names = {
            "T": rule.register, "U": rule.unsigned, "M": self.wide(dtype), "S": dtype.name,
            "W": 8 * dtype.itemsize, "f": part.math, "P": part.register,
            "inline": self.dialect.inline, "lanes": lanes,
            "V": self.dialect.vector_type.format(T=rule.register, lanes=lanes),
        }  # fmt: skip
        if dtype.is_complex:
            top, tiny = (self.literal(v, part) for v in _LIMITS[dtype.itemsize // 2])
            names |= {"top": top, "tiny": tiny, "inf": self.dialect.infinity, "nan": self.dialect.nan}
            names["product"] = self.dialect.product.format(S=dtype.name)
        names.update(keys)
        if isinstance(template, str):
            return template.format(*args, **names)
        self.helper(template, names)
        return template.call.format(*args, **names)

    def moved(self, template: Template, dtype: DType, **keys: str) -> str:
        """Return a load or a store of one element: most are plain text."""
        return (
            template.format(**keys)
            if isinstance(template, str)
            else self.template(template, dtype, [], **keys)
        )

    def helper(self, helper: Helper, names: Mapping[str, object]) -> None:
        """Have a function written before the kernel, after those that it calls."""
        for needed in helper.needs:
            self.helper(needed, names)
        source = helper.source.format(**names)
        if source:
            self.helpers.setdefault(source, source)

    def wide(self, dtype: DType) -> str:
        """Return the unsigned type that products of ``dtype`` wrap in: C promotes narrower ones to int."""
        rule = self.dialect.types.get(uint32 if dtype.itemsize <= 4 else uint64)
        return rule.register if rule else ""

    def expr(self, e: Expr, direct: bool = False) -> str:
        """Return an expression. ``direct``: its store rounds to the dtype's precision, so it need not."""
        match e:
            case Const():
                return self.constant(e)
            case Var():
                return e.name
            case Load():
                return self.load(e)
            case Select():
                parts = (self.expr(e.condition), self.expr(e.then, direct), self.expr(e.other, direct))
                if e.condition.lanes > 1:
                    return self.template(self.dialect.wide["select"], e.dtype, parts, lanes=e.lanes)
                if e.lanes > 1:  # to C, what an op makes of vectors is of another type than they are
                    wide = self.dialect.vector_type.format(T=self.rule(e.dtype).register, lanes=e.lanes)
                    return f"({parts[0]} ? ({wide})({parts[1]}) : ({wide})({parts[2]}))"
                return f"({parts[0]} ? {parts[1]} : {parts[2]})"
            case Cast():
                return self.cast(e, direct)
            case Apply():
                return self.apply(e, direct)

    def load(self, e: Load) -> str:
        dtype, outside = self.memory[e.buffer]
        index = self.expr(e.index)
        if e.lanes > 1:
            keys = {"p": e.buffer, "i": index, "lanes": e.lanes, "B": self.rule(dtype).storage}
            template = self.rule(dtype).wide_load if outside else ""
            return self.template(template or self.dialect.vector_load, dtype, [], **keys)
        if not outside:
            return f"{e.buffer}[{index}]"
        return self.moved(self.rule(dtype).load, dtype, p=e.buffer, i=index)

    def apply(self, e: Apply, direct: bool, short: DType | None = None) -> str:
        over = e.args[0].dtype if e.args and not e.dtype.is_complex else e.dtype
        kind = "index" if over is INDEX else over.kind
        d, wide = self.dialect, e.lanes > 1 and kind in ("float", "bool")
        match e.op, e.args:  # no index is negative: so compilers see what neighbours have in common
            case "quotient" | "modulo", (a, Const(value=int(n))) if kind == "index" and n > 0 == n & (n - 1):
                shifted = f">> {n.bit_length() - 1}" if e.op == "quotient" else f"& {n - 1}"
                return f"({self.expr(a)} {shifted})"
        template = None
        if kind == "float" and over.itemsize <= 4:
            template = (d.wide_single if wide else d.single).get(e.op)
            template = d.short.get((e.op, short or e.dtype), template)
        op = e.op
        if op in _AT_ONCE and e.lanes == 1 and not any(map(_has_positions, e.args)):
            op = _AT_ONCE[op]
        template = template or (d.wide.get(op) if wide else None) or d.expressions.get(op, {}).get(kind)
        if template is None:
            raise TensorbusError(f"{self.dialect.name} has no expression for {e.op!r} of {over}")
        text = self.template(template, over, [self.expr(a) for a in e.args], lanes=e.lanes)
        if direct:
            return text
        return self.rounded(text, e.dtype, self.rule(e.dtype).wide_rounded, e.lanes)

    def rounded(self, text: str, dtype: DType, wide: Template = "", lanes: int = 1) -> str:
        template = (wide if lanes > 1 else self.rule(dtype).rounded) if dtype in NARROW else ""
        return self.template(template, dtype, [text], lanes=lanes) if template else text

    def cast(self, e: Cast, direct: bool) -> str:
        source, target = e.arg.dtype, e.dtype
        if target in NARROW and isinstance(e.arg, Apply) and e.arg.lanes == 1:
            text = self.apply(e.arg, direct=False, short=target)
        else:
            text = self.expr(e.arg)
        if e.lanes > 1 and e.arg.lanes == 1:
            wide = self.dialect.vector_type.format(T=self.rule(target).register, lanes=e.lanes)
            return self.dialect.splat.format(text, V=wide)
        if source is target:
            return text
        kinds = tuple("index" if d is INDEX else d.kind for d in (source, target))
        if target in NARROW and source is float64 and self.dialect.narrow is not None:
            text = self.template(self.dialect.narrow, source, [text])
        else:
            template = self.dialect.casts.get((kinds[0], kinds[1]))
            if template is None:
                raise TensorbusError(f"{self.dialect.name} has no cast from {source} to {target}")
            if self.rule(source).register != self.rule(target).register or "bool" in kinds:
                keys = {"R": self.rule(source).register, "F": source.name}
                text = f"({self.template(template, target, [text], **keys)})"
        exact = source in NARROW and source is target
        if direct or exact:
            return text
        return self.rounded(text, target, self.rule(target).wide_cast, e.lanes)

    def constant(self, e: Const) -> str:
        rule = self.rule(e.dtype)
        text = self.number(e, rule)
        if e.lanes == 1:
            return text
        wide = self.dialect.vector_type.format(T=rule.register, lanes=e.lanes)
        return self.dialect.splat.format(text, V=wide)

    def number(self, e: Const, rule: TypeRule) -> str:
        if e.dtype.kind == "bool":
            return "true" if e.value else "false"
        if e.dtype.is_complex:
            value, part = complex(e.value), real_of(e.dtype)
            parts = [self.number(Const(v, part), self.rule(part)) for v in (value.real, value.imag)]
            return self.template(PAIR, e.dtype, parts)
        if e.dtype.kind != "float":
            whole = int(e.value.real)
            if whole == -(1 << (8 * e.dtype.itemsize - 1)):
                return f"({rule.register})({whole + 1}{rule.suffix} - 1)"
            return f"{whole}{rule.suffix}" if whole >= 0 else f"({whole}{rule.suffix})"
        value = _held(float(e.value.real), e.dtype)
        if math.isnan(value):
            return f"({rule.register}){self.dialect.nan}"
        if math.isinf(value):
            return f"({'-' if value < 0 else ''}({rule.register}){self.dialect.infinity})"
        text = self.literal(value, rule)
        return text if e.dtype in _STORED_AS_BITS else self.rounded(text, e.dtype)

    def literal(self, value: float, rule: TypeRule) -> str:
        text = f"{abs(value)!r}{rule.suffix}"
        return f"(-{text})" if math.copysign(1, value) < 0 else text
