"""exp, tanh and erf of the dialects of C: their errors over all magnitudes, and odd numbers."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tensorbus.dtypes.definition import float32
from tensorbus.lowering.codegen.c_math import C_SINGLE, OPENCL_WIDE_SINGLE

PRELUDE = """
#include <math.h>
#include <stdint.h>
#include <string.h>
static inline float tb_from_bits(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
static inline uint32_t tb_bits(float x) { uint32_t bits; memcpy(&bits, &x, 4); return bits; }
"""
EPSILONS = {"exp": 1.0, "tanh": 3.0, "erf": 3.0}
EXACT = {"exp": np.exp, "tanh": np.tanh, "erf": np.vectorize(math.erf)}
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def magnitudes() -> np.ndarray:
    """Return numbers of all magnitudes and signs, many of them where the functions change."""
    bits = np.arange(0, 0x7F800000, 4001, dtype=np.uint32).view(np.float32)
    near = np.linspace(0, 110, 200_001, dtype=np.float32)
    result = np.concatenate([bits, near])
    return np.concatenate([result, -result])


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "apart"])
@pytest.mark.parametrize("op", sorted(C_SINGLE))
def test_errors(op: str, fused: bool, tmp_path: Path) -> None:
    helper = C_SINGLE[op]
    assert not isinstance(helper, str)
    names = {"inline": "static inline ", "lanes": 1}
    parts = [PRELUDE, "#define FP_FAST_FMAF" if fused else "#undef FP_FAST_FMAF"]
    parts += [one.source.format(**names) for one in (*helper.needs, helper)]
    parts.append(
        "void run(const float *x, float *y, long n) { for (long k = 0; k < n; ++k) y[k] = "
        + helper.call.format("x[k]") + "; }"
    )  # fmt: skip
    source, library = tmp_path / "one.c", tmp_path / "one.so"
    source.write_text("\n".join(parts))
    options = "-std=gnu11 -O2 -ffp-contract=off -shared -fPIC".split()
    subprocess.run([str(COMPILER), *options, str(source), "-o", str(library), "-lm"], check=True)
    run = ctypes.CDLL(str(library)).run
    run.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long)
    run.restype = None

    def call(x: np.ndarray) -> np.ndarray:
        y = np.empty_like(x)
        run(x.ctypes.data, y.ctypes.data, x.size)
        return y

    x = magnitudes()
    got = call(x)
    with np.errstate(all="ignore"):
        want = EXACT[op](x.astype(np.float64))
        rounded = want.astype(np.float32)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(got[~finite], rounded[~finite])
    eps = float(np.finfo(np.float32).eps)
    allowed = EPSILONS[op] * eps * np.abs(want) + 1.5e-45
    error = np.abs(got[finite].astype(np.float64) - want[finite])
    assert (error <= allowed[finite]).all()
    assert (np.signbit(got) == np.signbit(rounded)).all()
    if op != "exp":
        assert np.abs(got).max() == 1.0
    odd = call(np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32))
    ends = EXACT[op](np.array([np.inf, -np.inf, 0.0, -0.0])).astype(np.float32)
    assert np.isnan(odd[:2]).all()
    np.testing.assert_array_equal(odd[2:], ends)
    np.testing.assert_array_equal(np.signbit(odd[2:]), np.signbit(ends))


def test_vectors_have_names_of_their_own() -> None:
    for op, helper in OPENCL_WIDE_SINGLE.items():
        assert not isinstance(helper, str)
        text = helper.source.format(inline="static inline ", lanes=16, S=float32.name)
        assert f"float16 tb_{op}_single_16(float16 x)" in text
        assert "{{" not in text
        assert "lanes" not in text
