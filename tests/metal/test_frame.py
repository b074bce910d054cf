"""Kernels in the frame that MLX gives them compute what they compute by themselves."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.ir.builder import RuntimeArg
from tensorbus_conformance.sources import planned
from tensorbus_metal.host_shim import SHIM, packed
from tensorbus_metal.mlx_kernel_wrapper import framed

from metal_host import COMPILER, needs_compiler
from metal_programs import MSL, run

pytestmark = needs_compiler


@pytest.mark.parametrize(("op", "kind"), [("add", "float32"), ("sqrt", "float16"), ("add", "complex64")])
def test_the_frame_hands_over_buffers_and_parameters(op: str, kind: str, tmp_path: Path) -> None:
    plan = next(
        p for p in planned(MSL, [op], [dt.dtype(kind)])
        if len(p.program.steps) == 1 and p.program.steps[0].launch.grid
    )  # fmt: skip
    (step,) = plan.program.steps
    launch, kernel = step.launch, step.launch.kernel
    assert not any(isinstance(v, RuntimeArg) for v in launch.values)
    header, body = framed(kernel, MSL)
    names = [f"{'' if b.writes else 'const '}device unsigned char *tb_{b.name}" for b in kernel.buffers]
    arguments = ", ".join([*names, "const device unsigned char *tb_params"])
    calls = ", ".join([*(f"(unsigned char *)b[{k}]" for k in range(len(names))), "(unsigned char *)p"])
    (tmp_path / "source.metal").write_text(
        f"{header}void custom({arguments}, uint3 thread_position_in_grid) {{\n{body}}}\n"
        'extern "C" void entry(void *const *b, const char *p, const uint *grid) {\n'
        f"  tb_threads(grid, grid, [=](uint3 at) {{ custom({calls}, at); }});\n}}\n"
    )
    command = [COMPILER, "-x", "c++", "-std=c++17", "-O1", "-fPIC", "-shared", "-w", "-ffp-contract=off"]
    done = subprocess.run(
        [*command, f"-I{SHIM}", str(tmp_path / "source.metal"), "-o", str(tmp_path / "made.so"), "-lm"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (wanted,), _ = run(plan)
    out = np.zeros(wanted.shape, wanted.dtype)
    operands = [np.ascontiguousarray(x.numpy()) for x in plan.bound.operands]
    memory = [*operands, out]
    addresses = (ctypes.c_void_p * len(step.slots))(*(memory[slot].ctypes.data for slot in step.slots))
    params = packed([p.dtype for p in kernel.params], launch.values)
    grid = (ctypes.c_uint32 * 3)(*launch.grid, *(1,) * (3 - len(launch.grid)))
    ctypes.CDLL(str(tmp_path / "made.so")).entry(addresses, params, grid)
    np.testing.assert_array_equal(out, wanted)


def test_products_and_sums_are_not_fused_on_a_mac() -> None:
    """Metal fuses them unless the source says otherwise, whatever mathematics MLX asks for."""
    plan = next(iter(planned(MSL, ["add"], [dt.float32])))
    header, _ = framed(plan.program.steps[0].launch.kernel, MSL)
    before, message, _ = header.partition("#pragma METAL fp contract(off)\n")
    assert message
    assert "{" not in before
