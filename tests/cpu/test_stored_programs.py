"""Programs that a second process loads: right, without the code generator, whatever became of the files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorbus as tb
from tensorbus_cpu.native.relocatable_program import PythonCall, RelocatableProgram, decoded, encoded

from error_bounds import gamma

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        tb.device("cpu").properties.extra.get("compiler") is None, reason="there is no C compiler"
    ),
]
ROUNDED = gamma(4 + 8, "float32")  # of sums of four, and exponentials of them
HEAD = f"""
import sys
import numpy as np
import tensorbus as tb

ROUNDED = {ROUNDED}

def generates():
    return "tensorbus.lowering.program.lower" in sys.modules
"""
STEP = """
w = np.linspace(-1, 1, 12, dtype="f4").reshape(4, 3)
x = np.linspace(0, 1, 8, dtype="f4").reshape(2, 4)

@tb.compile
def run(x, w, factor=0.5):
    y = tb.exp(x @ w) * factor
    return y.sum(axis=1), tb.sort(y, axis=1)

def right(x, w):
    y = np.exp(x @ w) * 0.5
    total, ordered = run(tb.asarray(x), tb.asarray(w))
    np.testing.assert_allclose(total.numpy(), y.sum(1), rtol=ROUNDED)
    np.testing.assert_allclose(ordered.numpy(), np.sort(y, 1), rtol=ROUNDED)

right(x, w)
"""
TRAINING = """
from tensorbus import nn, optim
tb.manual_seed(3)
model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
optimizer = optim.Adam(model.parameters(), lr=0.01)
data = tb.asarray(np.linspace(-1, 1, 24, dtype="f4").reshape(4, 6))

@tb.compile
def step(x):
    optimizer.zero_grad()
    loss = (model(x) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()

print([repr(step(data).item()) for _ in range(5)])
"""
ATTENTION = """
from tensorbus.nn.attention import create_block_mask, flex_attention

q = tb.asarray(np.linspace(-1, 1, 2 * 40 * 8, dtype="f4").reshape(1, 2, 40, 8))
slopes = tb.asarray([0.5, FACTOR])
near = create_block_mask(lambda b, h, i, j: i - j < 9, None, None, 40, 40, BLOCK_SIZE=16)

@tb.compile
def step(q, slopes):
    q, slopes = q.requires_grad_(), slopes.requires_grad_()
    out = flex_attention(q, q, q, lambda s, b, h, i, j: s + slopes[h] * (i - j), near)
    return tb.grad((out * out).sum(), [q, slopes])

print([round(float(x.sum()), 4) for x in step(q, slopes)])
"""
PICK = """
@tb.compile
def pick(x, i):
    return tb.take(x, i, axis=0) * 2

try:
    pick(tb.arange(3), tb.asarray([5]))
except tb.IndexingError as error:
    print(error)
"""


class Bench:
    """Processes with a cache of their own."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"

    def run(self, body: str) -> str:
        env = {**os.environ, "TENSORBUS_CACHE_DIR": str(self.cache)}
        done = subprocess.run(
            [sys.executable, "-c", HEAD + body], env=env, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def programs(self) -> list[Path]:
        return sorted(p for p in (self.cache / "cpu" / "programs").iterdir() if not p.suffix)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_second_process_generates_no_code(bench: Bench) -> None:
    bench.run(STEP + "assert generates()")
    assert bench.programs()
    bench.run(STEP + "assert not generates()")


def test_a_stored_training_step_gives_the_same_numbers(bench: Bench) -> None:
    first = bench.run(TRAINING)
    assert bench.programs()
    assert bench.run(TRAINING + "print(end='')") == first


def test_attention_by_functions_is_stored_by_what_the_functions_do(bench: Bench) -> None:
    """Values that they read are inputs; other functions are other programs."""
    body = ATTENTION.replace("FACTOR", "0.25")
    first = bench.run(body)
    count = len(bench.programs())
    assert bench.run(body + "assert not generates()") == first
    assert bench.run(ATTENTION.replace("FACTOR", "4.0") + "assert not generates()") != first
    assert bench.run(body.replace("(i - j)", "(j - i)") + "assert generates()") != first
    assert len(bench.programs()) == 2 * count


def test_other_layouts_are_right_in_a_stored_program(bench: Bench) -> None:
    body = STEP + "right(np.ascontiguousarray(x.T).T, w); right(x, w[:, ::-1]); right(x[::-1], w)"
    bench.run(body)
    bench.run(body)


def test_stages_of_a_stored_program_show_its_code(bench: Bench) -> None:
    body = (
        STEP
        + """
from tensorbus.compiler.programs.program_cache import _programs
(made,) = _programs.values()
print("restrict" in list(made.executable.stages().values())[-1])
"""
    )
    assert bench.run(body) == bench.run(body) == "True\n"


def test_a_stored_program_names_the_op_that_reports_an_index(bench: Bench) -> None:
    first = bench.run(PICK)
    assert "out of range" in first
    assert bench.run(PICK) == first


def test_a_number_that_differs_is_another_program(bench: Bench) -> None:
    bench.run(STEP)
    before = len(bench.programs())
    bench.run(STEP.replace("factor=0.5", "factor=0.25").replace("* 0.5", "* 0.25"))
    assert len(bench.programs()) == before + 1


@pytest.mark.parametrize("damage", [b"", b"{}\n", None])
def test_a_damaged_program_is_made_anew(bench: Bench, damage: bytes | None) -> None:
    bench.run(STEP)
    for path in bench.programs():
        whole = path.read_bytes()
        path.write_bytes(damage if damage is not None else whole[:-1] + bytes([whole[-1] ^ 1]))
    bench.run(STEP + "assert generates()")
    bench.run(STEP + "assert not generates()")


def test_a_program_whose_kernels_are_gone_is_made_anew(bench: Bench) -> None:
    bench.run(STEP)
    for path in (bench.cache / "cpu" / "kernels").iterdir():
        path.unlink()
    bench.run(STEP + "assert generates()")


def test_kernels_of_the_program_itself_are_not_stored(bench: Bench) -> None:
    """Two programs may give one name to different sources: a graph has the name only."""
    for factor in (2, 3):
        code = "void grow(const float *x, float *out, int64_t n, int64_t begin, int64_t end) {"
        code += f" for (int64_t i = begin; i < end; ++i) out[i] = {factor} * x[i]; }}"
        body = f"""
grow = tb.kernel({{"cpu": "{code}"}},
                 name="grow", tensors={{"x": tb.float32}}, out=lambda x: x)
print(tb.compile(lambda x: grow(x) + 1)(tb.asarray([1.0])).item())
"""
        assert float(bench.run(body)) == factor + 1
    assert not (bench.cache / "cpu" / "programs").exists() or not bench.programs()


@pytest.mark.fast
@pytest.mark.parametrize(
    "attrs",
    [{"axis": (0, None)}, {"program": object()}, {"steps": [object()]}],
    ids=["plain", "no value", "no values"],
)
def test_only_calls_with_plain_attributes_are_written(attrs: dict[str, Any]) -> None:
    call = PythonCall(op="sum", attrs=attrs, specs=(), late=(), outputs=())
    written = encoded(RelocatableProgram(words=[7], calls=(call,), names=(), labels=(), products=False))
    if "axis" in attrs:
        assert written is not None
        assert decoded(written).calls[0].attrs == attrs
    else:
        assert written is None
