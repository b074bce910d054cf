"""Kernels that users write in MSL: compiled for the host, and in the frame that MLX gives them."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tensorbus.backend_interface.capabilities import SourceCall
from tensorbus.dtypes import definition as dt
from tensorbus.kernels.user_source import launch_of, source_head
from tensorbus_metal.host_shim import SHIM, packed, shim
from tensorbus_metal.mlx_kernel_wrapper import called

from metal_host import COMPILER, needs_compiler, needs_host, printed
from metal_programs import MSL

pytestmark = needs_compiler
CODE = """
static void scale(const device TB_x *x, device TB_out *out, float k, long rows, long n, uint3 at) {
  if (at.y < rows && at.x < n) out[at.y * n + at.x] = k * x[at.y * n + at.x];
}
"""
CALL = SourceCall(
    name="scale", code=CODE, operands=(("x", dt.float32, (3, 5)),), results=(("out", dt.float32, (3, 5)),),
    scalars=(("k", dt.float32, 2.5),), sizes=(3, 5), grid=(5, 3),
)  # fmt: skip
SOURCE = source_head(CALL, lambda dtype: MSL.types[dtype].storage) + CODE


def test_it_runs_on_the_host() -> None:
    launch = launch_of(CALL)
    entry = shim().entry(SOURCE, launch.kernel, MSL)
    x, out = np.arange(15, dtype=np.float32), np.zeros(15, np.float32)
    params = packed([p.dtype for p in launch.kernel.params], launch.values)
    entry([x.ctypes.data, out.ctypes.data], params, launch.grid, (1, 1, 1))
    np.testing.assert_array_equal(out, x * np.float32(2.5))


def test_the_frame_calls_it_with_its_arguments(tmp_path: Path) -> None:
    launch = launch_of(CALL)
    header, body = called(SOURCE, launch.kernel, MSL)
    (tmp_path / "source.metal").write_text(
        f"{header}void custom(const device unsigned char *tb_operand_0, device unsigned char *tb_result_0,"
        f" const device unsigned char *tb_params, uint3 thread_position_in_grid) {{\n{body}}}\n"
        'extern "C" void entry(void *const *b, const char *p, const uint *grid) {\n'
        "  tb_threads(grid, grid, [=](uint3 at) {"
        " custom((unsigned char *)b[0], (unsigned char *)b[1], (unsigned char *)p, at); });\n}\n"
    )
    command = [COMPILER, "-x", "c++", "-std=c++17", "-O1", "-fPIC", "-shared", "-w"]
    done = subprocess.run(
        [*command, f"-I{SHIM}", str(tmp_path / "source.metal"), "-o", str(tmp_path / "made.so"), "-lm"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    x, out = np.arange(15, dtype=np.float32), np.zeros(15, np.float32)
    params = packed([p.dtype for p in launch.kernel.params], launch.values)
    grid = (ctypes.c_uint32 * 3)(*launch.grid, 1)
    ctypes.CDLL(str(tmp_path / "made.so")).entry(
        (ctypes.c_void_p * 2)(x.ctypes.data, out.ctypes.data), params, grid
    )
    np.testing.assert_array_equal(out, x * np.float32(2.5))


PROGRAM = '''
code = """
static void scale(const device TB_x *x, device TB_out *out, float k, long n, uint3 at) {
  if (at.x < n) out[at.x] = k * x[at.x];
}"""


def scaled(code):
    return tb.kernel(
        {"metal": code}, name="scale", tensors={"x": tb.float32}, scalars={"k": tb.float32},
        out=lambda x, k: x, vjp=lambda g, k: (scale(g, k),),
    )


scale = scaled(code)
x = tb.asarray([[1.0, 2.0], [3.0, 4.0]])
print(scale(x, 2.0).tolist(), scale(x.mT, 3).tolist(), scale(tb.zeros((0, 2)), 1.0).shape)
print(tb.compile(lambda x: (scale(x * 2, 3.0) + 1).sum(axis=0), fullgraph=True)(x).tolist())
y = x.requires_grad_()
print(tb.grad(scale(y * y, 0.5).sum(), y)[0].tolist())
try:
    scaled(code.replace("k *", "kk *"))(x, 1.0)
except tb.DeviceError as error:
    print("does not compile" in str(error), "kk * x[at.x]" in str(error))
'''


@needs_host
@pytest.mark.full
def test_the_device_runs_them_on_the_host() -> None:
    assert printed(PROGRAM) == [
        "[[2.0, 4.0], [6.0, 8.0]] [[3.0, 9.0], [6.0, 12.0]] (0, 2)",
        "[26.0, 38.0]",
        "[[1.0, 2.0], [3.0, 4.0]]",
        "True True",
    ]
