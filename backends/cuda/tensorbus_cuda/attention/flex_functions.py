"""Score programs as functions of CUDA C++: of a score, of whether it counts, and of its derivative.

They are written by the code generator of all kernels, and called by kernels that are written by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tensorbus.backend_api import (
    AttentionProblem,
    KernelBuilder,
    LoopKernel,
    ScoreCode,
    ScoreNumbers,
    index_expr,
    kernel_parts,
)
from tensorbus.backend_api import dtypes as dt

if TYPE_CHECKING:
    from tensorbus.backend_api import Dialect

_CALLER_ARGUMENTS: Final = ("tb_gradient", "tb_score", "tb_batch", "tb_head", "tb_query", "tb_key")
"""The arguments of a function that its caller computes."""
_RESULT: Final = "tb_result"
_MACROS: Final = {"score": "TB_SCORE", "counts": "TB_COUNTS", "slope": "TB_SLOPE"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One function: what it is called, its text, and the arguments that it is given beside its caller's."""

    name: str
    helpers: tuple[str, ...]
    text: str
    macro: str
    buffers: tuple[Any, ...]
    params: tuple[tuple[str, Any, Any], ...]


def functions(problem: AttentionProblem, dialect: Dialect, *, derivative: bool) -> list[Function]:
    """Return the functions of a score program that changes scores, masks them, or both."""
    names = ["score", "slope"] if derivative else ["score"]
    changes = problem.attrs.program.graph.outputs[0] is not problem.attrs.program.graph.inputs[0]
    wanted = (names if changes else []) + (["counts"] if problem.attrs.program.masked else [])
    return [_function(name, problem, dialect, derivative=derivative) for name in wanted]


def _function(name: str, problem: AttentionProblem, dialect: Dialect, *, derivative: bool) -> Function:
    b = KernelBuilder(f"tb_of_{name}")
    lengths = (problem.batch, problem.heads, problem.queries, problem.keys)
    code = ScoreCode(b, problem.attrs, problem.captured, derivative, lengths)
    gradient, score = (b.param(argument, dt.float32, 0.0) for argument in _CALLER_ARGUMENTS[:2])
    numbers = ScoreNumbers(*(b.param(argument, dt.int32, 0) for argument in _CALLER_ARGUMENTS[2:]))
    if name == "score":
        value = code.score(score, numbers)
    elif name == "slope":
        value = code.derivative(gradient, score, numbers)
    else:
        value = code.counts(score, numbers)
    b.buffer(_RESULT, value.dtype, writes=True)
    b.store(_RESULT, index_expr.ZERO, value)
    kernel = b.finish([]).kernel
    helpers, text = kernel_parts(kernel, _as_function(dialect))
    own = {argument: value for argument, (_, value) in b.params.items() if argument not in _CALLER_ARGUMENTS}
    params = tuple([
        (f"{name}_{p.name}", p.dtype, own[p.name]) for p in kernel.params if p.name not in _CALLER_ARGUMENTS
    ])  # fmt: skip
    return Function(
        name=name, helpers=tuple(helpers.values()), text=text, macro=_macro(name, kernel),
        buffers=tuple([x for x in kernel.buffers if x.name != _RESULT]), params=params,
    )  # fmt: skip


def _macro(name: str, kernel: LoopKernel) -> str:
    """Return the macro by which the function is called, with the arguments that its kernel has for it."""
    own = ", ".join(f"tb_{k}" for k in ("b", "h", "i", "j"))
    lead = {"score": "tb_s, ", "slope": "tb_g, tb_s, ", "counts": ""}[name]
    values = dict(zip(_CALLER_ARGUMENTS, ("tb_g", "tb_s", "tb_b", "tb_h", "tb_i", "tb_j"), strict=True))
    values |= {"tb_gradient": "0.0f"} if name != "slope" else {}
    values |= {"tb_score": "0.0f"} if name == "counts" else {}
    passed = ["&tb_result" if x.name == _RESULT else x.name for x in kernel.buffers]
    passed += [f"({values[p.name]})" if p.name in values else f"{name}_{p.name}" for p in kernel.params]
    kind = "unsigned char" if name == "counts" else "float"
    end = " != 0" if name == "counts" else ""
    return (
        f"#define {_MACROS[name]}({lead}{own}) \\\n"
        f"  ([&] {{ {kind} tb_result; tb_of_{name}({', '.join(passed)}); return tb_result{end}; }}())\n"
    )


def _as_function(dialect: Dialect) -> Dialect:
    """Return the dialect in which a kernel is a function that others call."""
    head = "static __device__ __forceinline__ void {name}({arguments})"
    return replace(dialect, kernel=head, task=head)


def macros(functions: list[Function]) -> str:
    """Return what kernels call: the functions, and what stands for those that there is no need for."""
    names = {x.name for x in functions}
    text = "".join(x.macro for x in functions)
    if "score" not in names:
        text += "#define TB_SCORE(tb_s, tb_b, tb_h, tb_i, tb_j) (tb_s)\n"
    if "slope" not in names:
        text += "#define TB_SLOPE(tb_g, tb_s, tb_b, tb_h, tb_i, tb_j) (tb_g)\n"
    if "counts" not in names:
        text += "#define TB_COUNTS(tb_b, tb_h, tb_i, tb_j) true\n"
    reads = any(x.buffers for x in functions)
    inside = "min((int)(i), (int)(n) - 1)" if reads else "(int)(i)"
    return text + f"#define TB_INSIDE(i, n) {inside}\n"
