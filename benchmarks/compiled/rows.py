"""The rows, the columns, and what is asked of each row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benchmarks.compiled.peer import Spec

OURS, OPENCL, LOOP, OPENCL_LOOP = "tensorbus", "tensorbus, opencl", "loop in C", "loop in OpenCL C"
PEERS = (
    Spec(name=OURS, module="ours", variant="cpu"),
    Spec(name=LOOP, module="loops", variant="c"),
    Spec(name="PyTorch", module="pytorch", variant="eager"),
    Spec(name="PyTorch +malloc", module="pytorch", variant="eager", keeps=True),
    Spec(name="torch.compile", module="pytorch", variant="compiled"),
    Spec(name="torch.compile +malloc", module="pytorch", variant="compiled", keeps=True),
    Spec(name="JAX", module="jax_jit"),
    Spec(name="JAX +malloc", module="jax_jit", keeps=True),
    Spec(name="NumPy", module="numpy_eager"),
    Spec(name="numexpr", module="numexpr_threads"),
    Spec(name="numba", module="numba_jit"),
    Spec(name="tinygrad", module="tinygrad_jit"),
    Spec(name=OPENCL, module="ours", variant="opencl"),
    Spec(name=OPENCL_LOOP, module="loops", variant="opencl"),
)
NOT_PEERS = (OURS, OPENCL, LOOP, OPENCL_LOOP)
SHARE = 0.85
"""Of the loop's bandwidth, for rows that memory bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """``unit`` is ``ms`` or ``us``; ``most`` an absolute limit in it.

    ``bound``: memory bounds it, and the loop is what it is held to. ``opencl``: it is measured there too.
    ``busy``: it is measured again beside two processes that only spin.
    """

    name: str
    call: str
    options: dict[str, Any] = field(default_factory=dict)
    unit: str = "ms"
    most: float | None = None
    bound: bool = False
    opencl: bool = False
    busy: bool = False


def _blocks() -> list[Row]:
    return [
        Row(
            name=f"GPT-2-small block, batch {batch}, {'train step' if train else 'forward'}",
            call="gpt_block", options={"batch": batch, "train": train}, busy=train and batch == 1,
        )
        for batch in (1, 4) for train in (False, True)
    ]  # fmt: skip


ROWS = (
    Row(name="gelu(x*a+b)*tanh(c)-x, 16 M", call="chain", bound=True, opencl=True, busy=True),
    Row(name="softmax, 8192x4096", call="softmax", bound=True, opencl=True, busy=True),
    Row(name="layer norm, 8192x1024", call="layer_norm", bound=True, opencl=True),
    Row(name="cumsum, 8192x4096", call="cumsum", bound=True, opencl=True),
    Row(name="gelu(x*a+b)*tanh(c)-x, 16 M, bfloat16", call="halves", options={"what": "chain"}),
    Row(name="softmax, 8192x4096, bfloat16", call="halves", options={"what": "softmax"}),
    Row(name="MLP 784-1024-1024-10, batch 256, Adam", call="mlp", busy=True),
    *_blocks(),
    Row(name="ResNet block 8x64x56x56, forward", call="residual", options={"train": False}),
    Row(name="ResNet block 8x64x56x56, train step", call="residual", options={"train": True}),
    *(
        Row(name=f"matmul 2048, {d}", call="matmul", options={"dtype": d})
        for d in ("float32", "bfloat16", "int8")
    ),
    Row(name="MLP 64-64-64, batch 1", call="small", options={"gradient": False}, unit="us", most=5.0),
    Row(
        name="MLP 64-64-64, batch 1, gradients",
        call="small",
        options={"gradient": True},
        unit="us",
        most=15.0,
    ),
    Row(name="gradients of each of 512 examples, MLP 64-256-10", call="transform", options={"what": "each"}),
    Row(name="Hessian of a function of 64", call="transform", options={"what": "hessian"}),
    Row(name="Jacobian of an MLP 256-256-256", call="transform", options={"what": "jacobian"}),
    Row(name="add, 8 elements", call="add", unit="us", most=3.0),
)
