"""The loop IR as text, for people."""

from __future__ import annotations

from collections.abc import Iterator

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

_INFIX = {"add": "+", "subtract": "-", "multiply": "*", "less": "<", "quotient": "//", "modulo": "%"}


def expr_text(e: Expr) -> str:
    """Return an expression as text."""
    lanes = f"<{e.lanes}>" if e.lanes > 1 else ""
    match e:
        case Const():
            return f"{e.value}" if e.dtype is INDEX else f"{e.value}:{e.dtype}{lanes}"
        case Var():
            return e.name
        case Load():
            return f"{e.buffer}[{expr_text(e.index)}]{lanes}"
        case Cast():
            return f"{e.dtype}{lanes}({expr_text(e.arg)})"
        case Select():
            return f"({expr_text(e.then)} if {expr_text(e.condition)} else {expr_text(e.other)})"
        case Apply():
            parts = [expr_text(a) for a in e.args]
            if e.op in _INFIX and len(parts) == 2:
                return f"({parts[0]} {_INFIX[e.op]} {parts[1]})"
            return f"{e.op}({', '.join(parts)})"


def _lines(body: tuple[Stmt, ...], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for s in body:
        match s:
            case Let():
                kind = f"{s.var.dtype}<{s.var.lanes}>" if s.var.lanes > 1 else f"{s.var.dtype}"
                yield f"{pad}{'var' if s.mutable else 'let'} {s.var.name}: {kind} = {expr_text(s.value)}"
            case Assign():
                yield f"{pad}{s.var.name} = {expr_text(s.value)}"
            case Array():
                yield f"{pad}{s.space} {s.name}: {s.dtype}[{s.size}]"
            case Store():
                count = (
                    f" first {expr_text(s.count)}"
                    if s.count is not None
                    else " nontemporal"
                    if s.nontemporal
                    else ""
                )
                sign = f"{s.combine}=" if s.combine else "="
                yield f"{pad}{s.buffer}[{expr_text(s.index)}] {sign} {expr_text(s.value)}{count}"
            case If():
                yield f"{pad}if {expr_text(s.condition)}:"
                yield from _lines(s.body, depth + 1)
            case For():
                where = f"parallel({s.axis})" if s.kind == "parallel" else s.kind
                step = f", {s.step}" if s.step != 1 else ""
                bounds = f"{expr_text(s.start)}, {expr_text(s.stop)}{step}"
                yield f"{pad}for {s.var.name} in range({bounds}) {where}:"
                yield from _lines(s.body, depth + 1)
            case Fetch():
                yield f"{pad}fetch {s.buffer}[{expr_text(s.index)}]<{s.count}>"
            case VectorAccess():
                ends = [f"{s.buffer}[{expr_text(s.index)}]<{s.lanes}>", s.array]
                yield f"{pad}vector {' = '.join(ends if s.writes else reversed(ends))}"
            case Barrier():
                yield f"{pad}barrier"
            case CountWorkgroup():
                counter = f"{s.counter}[{expr_text(s.index)}]"
                yield f"{pad}let {s.last.name} = last of {expr_text(s.total)} groups at {counter}"
            case Report():
                bounds = f"{expr_text(s.value)} not in [0, {expr_text(s.limit)})"
                yield f"{pad}report {expr_text(s.code)}: {bounds}"
            case LastTaskEpilogue():
                yield f"{pad}last of {expr_text(s.total)}:"
                yield from _lines(s.body, depth + 1)


def kernel_text(kernel: LoopKernel) -> str:
    """Return a kernel as text: its arguments, then its body."""
    buffers = [
        f"{'aliased ' if b.aliased else ''}{'shared ' if b.shared else ''}"
        f"{'out ' if b.writes else ''}{b.name}: {b.dtype}[]"
        for b in kernel.buffers
    ]
    params = [f"{p.name}: {p.dtype}" for p in kernel.params]
    head = f"kernel {kernel.name}({', '.join(buffers + params)}){' task' if kernel.task else ''}:"
    body = ["  written in the device's language"] if kernel.code else _lines(kernel.body, 1)
    return "\n".join([head, *body])
