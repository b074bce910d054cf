"""What ``mlx.core.fast.metal_kernel`` does, on the host: it gives a body its head, and runs it at once.

``stand_in`` lets the metal device queue its kernels as on a Mac.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import pytest
from tensorbus_metal.device import runtime
from tensorbus_metal.dialect import MAX_BUFFERS
from tensorbus_metal.host_shim import shim

mx: Any = pytest.importorskip("mlx.core", reason="MLX is not installed")

LENGTH = 2**31 - 1
_AT = ("uint3 thread_position_in_grid",)


def metal_kernel(
    name: str, input_names: Sequence[str], output_names: Sequence[str], source: str, header: str = ""
) -> Callable[..., list[Any]]:
    """Return what runs ``source`` over arrays of bytes, as MLX's documentation says."""
    names = [*input_names, *output_names]
    assert len(names) <= MAX_BUFFERS
    assert len(set(names)) == len(names)
    heads = [
        *(f"const device uchar *{n}" for n in input_names),
        *(f"device uchar *{n}" for n in output_names),
    ]
    operand = ", ".join([*(f"(uchar *)b[{k}]" for k in range(len(names))), "at"])
    order = "threadgroups" if "threadgroup_barrier" in source else "threads"
    text = (
        f"{header}\nkernel void custom_{name}({', '.join([*heads, *_AT])}) {{\n{source}\n}}\n"
        'extern "C" void entry(void *const *b, const uint *grid, const uint *group) {\n'
        f"  tb_{order}(grid, group, [=](uint3 at) {{ custom_{name}({operand}); }});\n}}\n"
    )

    def call(
        *,
        inputs: Sequence[Any],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        output_shapes: Sequence[tuple[int, ...]],
        output_dtypes: Sequence[Any],
        init_value: float,
        stream: Any,
    ) -> list[Any]:
        assert prod(threadgroup) <= 1024
        assert max(grid) <= LENGTH
        assert len(inputs) == len(input_names)
        assert all(x.dtype == mx.uint8 and x.size >= 8 for x in inputs), "shorter ones are constant"
        shapes = zip(output_shapes, output_dtypes, strict=True)
        results = [mx.full(shape, init_value, dtype) for shape, dtype in shapes]
        mx.eval(*inputs, *results)
        held = [np.asarray(memoryview(x)) for x in (*inputs, *results)]
        addresses = (ctypes.c_void_p * len(held))(*(h.ctypes.data for h in held))
        sizes = ctypes.c_uint32 * 3
        shim()._library(text).entry(addresses, sizes(*grid), sizes(*map(min, threadgroup, grid)))
        return results

    return call


def stand_in() -> None:
    """Let kernels be queued as on a Mac."""
    runtime().host = False
    mx.fast.metal_kernel = metal_kernel
