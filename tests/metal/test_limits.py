"""What Metal refuses is refused on the host: what its language lacks, more than a function may have."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import fused
import pytest
import tensorbus as tb
from tensorbus.backend_interface.capabilities import SourceCall
from tensorbus.dtypes import definition as dt
from tensorbus.errors import DeviceError
from tensorbus.kernels.user_source import launch_of, source_head
from tensorbus.lowering.ir.loop_ir import INDEX, Array
from tensorbus.lowering.program.program import Program, steps_of
from tensorbus_metal.dialect import MAX_BUFFERS
from tensorbus_metal.host_shim import shim, within_language

from metal_host import needs_compiler, needs_host, printed
from metal_programs import MSL

pytestmark = [needs_compiler, needs_host, pytest.mark.full]
SHARED = 32768
"""How many bytes the work-items of a group may share."""


def program_of(function: Callable[..., Any], *specs: Any) -> Program:
    """Return the program of a function for metal's target."""
    return fused.program_of(fused.record(function, *specs), MSL.target)[1]


def source_of(statement: str) -> tuple[str, Any]:
    """Return a user's kernel of one statement, with its head, and what it is called with."""
    code = f"static void own(const device TB_x *x, device TB_out *out, long n, uint3 at) {{ {statement} }}\n"
    call = SourceCall(
        name="own", code=code, operands=(("x", dt.float32, (4,)),), results=(("out", dt.float32, (4,)),),
        scalars=(), sizes=(4,), grid=(4,),
    )  # fmt: skip
    return source_head(call, lambda dtype: MSL.types[dtype].storage) + code, launch_of(call).kernel


@pytest.mark.parametrize(
    "statement",
    [
        "double y = x[at.x]; out[at.x] = y;",
        "out[at.x] = exp((int)x[at.x]);",
        "out[at.x] = sqrt(4);",
        "out[at.x] = isnan(1) ? 0.0f : 1.0f;",
        "out[at.x] = erf(x[at.x]) + lgamma(x[at.x]);",
        "device int *held = (device int *)out; int old = 0; "
        "atomic_compare_exchange_weak_explicit(held, &old, 1, memory_order_relaxed, memory_order_relaxed);",
        "out[at.x] = *new float(x[at.x]);",
        "goto end; end: out[at.x] = x[at.x];",
        "try { out[at.x] = x[at.x]; } catch (...) {}",
        "float vertex = x[at.x]; out[at.x] = vertex;",
    ],
)
def test_what_the_language_lacks_does_not_compile(statement: str) -> None:
    with pytest.raises(DeviceError, match="does not compile"):
        shim().compile([source_of(statement)], MSL)


@pytest.mark.parametrize(
    "statement",
    [
        "out[at.x] = exp(x[at.x]) + fma(x[at.x], 2, 1);",
        "out[at.x] = (float)exp((half)x[at.x]);",
        "out[at.x] = pow(x[at.x], 2);",
    ],
)
def test_what_it_has_does(statement: str) -> None:
    shim().compile([source_of(statement)], MSL)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("threadgroup float part[4]; out[at.x] = x[at.x];", "threadgroup memory"),
        ("const TB_x *p = x + at.x; out[at.x] = *p;", "'const TB_x *' does not say where it points"),
        ("out[at.x] = *(const float *)x;", "'const float *' does not say where it points"),
        ("float y = x[at.x]; float &z = y; out[at.x] = z;", "'float &' does not say where it points"),
    ],
)
def test_memory_that_metal_does_not_take_is_refused(statement: str, message: str) -> None:
    """C++ has one kind of memory."""
    source, kernel = source_of(statement)
    with pytest.raises(DeviceError, match="does not compile on Metal") as caught:
        within_language(kernel.name, source)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "statement",
    [
        "const device TB_x *p = x + at.x; out[at.x] = *p;",
        "thread float y = x[at.x]; thread float &z = y; out[at.x] = z; /* not float * */",
        "out[at.x] = x[at.x] * float(n & 3) * sizeof(float);",
        "threadgroup_barrier(mem_flags::mem_threadgroup); out[at.x] = *(const device float *)x;",
        "out[at.x] = as_type<int>(x[at.x]) & 1 ? float2{1, 2}.x : (float)n * 2;",
    ],
)
def test_memory_that_it_takes_is_not(statement: str) -> None:
    source, kernel = source_of(statement)
    within_language(kernel.name, source)
    shim().compile([(source, kernel)], MSL)


def test_numbers_are_single() -> None:
    shim().compile([source_of('static_assert(sizeof(1.0) == 4, ""); out[at.x] = x[at.x] * 0.1;')], MSL)


OF_MANY_OPERANDS: dict[str, Callable[..., Any]] = {
    "added": lambda *xs: sum(xs[1:], xs[0]),
    "joined": lambda *xs: tb.concat(list(xs)) + 1,
    "computed and joined": lambda *xs: tb.concat([tb.exp(x) * x for x in xs]),
    "stacked": lambda *xs: tb.stack([x * 2 for x in xs]),
    "multiplied and summed": lambda *xs: sum((x * xs[0]).sum() for x in xs),
    "several": lambda *xs: tuple(x * y for x, y in pairwise(xs)),
    "a product": lambda *xs: sum(xs[1:], xs[0]).reshape((1, 6)) @ sum(x * x for x in xs).reshape((6, 1)),
}


@pytest.mark.parametrize("name", OF_MANY_OPERANDS)
@pytest.mark.parametrize("count", [27, 28, 40, 100])
def test_kernels_have_no_more_buffers_than_metal_lets_them(name: str, count: int) -> None:
    program = program_of(OF_MANY_OPERANDS[name], *[fused.spec(6)] * count)
    assert max(len(k.buffers) for k in program.kernels()) + 2 <= MAX_BUFFERS


def test_a_kernel_with_more_is_refused() -> None:
    names = [f"x{k}" for k in range(30)]
    call = SourceCall(
        name="own", code="", operands=tuple((n, dt.float32, (4,)) for n in names),
        results=(("out", dt.float32, (4,)),), scalars=(), sizes=(4,), grid=(4,),
    )  # fmt: skip
    with pytest.raises(DeviceError, match="33 arguments in memory; Metal has 31"):
        shim().entry("", launch_of(call).kernel, MSL)


def test_groups_share_no_more_memory_than_metal_has() -> None:
    def equal(x: Any) -> Any:
        return tuple((x * k == (x * k).max(axis=1, keepdims=True)).sum(axis=1) for k in range(1, 15))

    def shared(program: Program) -> list[int]:
        return [
            sum((8 if a.dtype is INDEX else max(a.dtype.itemsize, 4)) * a.size for a in s.launch.kernel.body
                if isinstance(a, Array) and a.space == "shared")
            for item in program.steps for s in steps_of(item)
        ]  # fmt: skip

    result = shared(program_of(equal, fused.spec(64, 4096, dtype=dt.int64)))
    assert 0 < max(result) <= SHARED


def test_sources_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLX keeps one library of a name, and compiles it anew for another source."""
    import mlx.core as mx
    from tensorbus_metal.compiler import MetalCompiler

    names: list[str] = []
    monkeypatch.setattr(mx.fast, "metal_kernel", lambda **x: names.append(x["name"]) or x)
    compiler = MetalCompiler(None)
    for statement in ("out[at.x] = x[at.x];", "out[at.x] = x[at.x] + 1;"):
        source, kernel = source_of(statement)
        launch = type("Launch", (), {"kernel": kernel})()
        for value in ((False, True), (False, False), (False, True)):
            compiler._kernel(source, launch, value)
    assert len(names) == len(set(names)) == 4
    assert all(name.startswith("own_") and name.isidentifier() for name in names)


def test_programs_of_many_operands_compute_the_same() -> None:
    program = """
xs = [tb.randn(5) for _ in range(40)]
for function in (
    lambda *xs: tb.concat(xs) + 1, lambda *xs: tb.stack([x * 2 for x in xs]), lambda *xs: sum(xs),
):
    print(bool(tb.all(tb.compile(function)(*xs) == function(*xs))))
"""
    assert printed(program) == ["True"] * 3
