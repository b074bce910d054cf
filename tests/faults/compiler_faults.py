"""C compilers that stop working amid a program: NumPy computes the rest, and one warning says so."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import Final

from registry import child, fault

_COMPILER: Final = """#!/bin/sh
echo >> {runs}
[ $(wc -l < {runs}) -lt {working} ] && exec {real} "$@"
for made; do case "$made" in *made.so) break;; esac; made=; done
{fault}
"""
_FAULTS: Final = {
    "never returns": "sleep 1000",
    "fails": "echo out of order >&2; exit 1",
    "says nothing": "exit 1",
    "ends by a signal": "kill -9 $$",
    "prints bytes": "head -c 3000000 /dev/urandom >&2; exit 1",
    "makes nothing": "exit 0",
    "writes text": '[ -z "$made" ] || echo "no library" > "$made"',
    "writes half": '{real} "$@"; [ -z "$made" ] || truncate -s 9000 "$made"',
    "writes a pipe": '[ -z "$made" ] || mkfifo "$made"',
    "is gone": 'rm "$0"; exit 1',
}  # fmt: skip
_PROGRAM: Final = """
import sys, warnings
from pathlib import Path
import numpy as np
import tensorbus as tb

runs = Path(sys.argv[1])
x = np.arange(360000, dtype=np.float32).reshape(600, 600) % 97 / 97
t = tb.asarray(x, device="cpu")
step = tb.compile(lambda t: (tb.tanh(t) * 2 + 1).sum(axis=0))
rows = tb.compile(lambda t: tb.softmax(t, axis=-1) * 3)
powers = np.exp(x - x.max(-1, keepdims=True))
wanted = {
    "exp": (lambda: tb.exp(t * 0.5), np.exp(x * np.float32(0.5))),
    "sum": (lambda: tb.sum(t, axis=0), x.sum(0)),
    "argmax": (lambda: tb.argmax(t, axis=1), x.argmax(1)),
    "sort": (lambda: tb.sort(t.reshape(-1)), np.sort(x.reshape(-1))),
    "rows": (lambda: rows(t), 3 * powers / powers.sum(-1, keepdims=True)),
    "step": (lambda: step(t), (np.tanh(x) * 2 + 1).sum(0)),
    "pool": (lambda: tb.nn.functional.max_pool2d(t[None, None], 2)[0, 0],
             x.reshape(300, 2, 300, 2).max((1, 3))),
    "half": (lambda: (t.to(tb.float16) + 1.0).to(tb.float32), x.astype(np.float16) + np.float16(1)),
    "matmul": (lambda: t @ t, x @ x),
    "concat": (lambda: tb.concat([t, t])[600:], x),
}

def compute():
    for name, (call, right) in wanted.items():
        np.testing.assert_allclose(call().numpy(), right, 2e-4, 1e-4, err_msg=name)
    return len(runs.read_text()) if runs.exists() else 0

with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    compute(), compute()  # a program is compiled at its second call
    before = compute()
    after = compute()
texts = [str(w.message) for w in told if "no C compiler that works" in str(w.message)]
note = tb.device("cpu").properties.extra.get("note", "")
assert after == before, f"it was run {after - before} times more, once {note!r}"
assert len(texts) <= 1, texts
assert not texts or texts[0] == note
"""


def _stopped(draw: random.Random, working: int) -> None:
    name = draw.choice([*_FAULTS])
    real = shutil.which("cc")
    with tempfile.TemporaryDirectory() as folder:
        compiler, runs = Path(folder, "cc"), Path(folder, "runs")
        text = _FAULTS[name].format(real=real)
        compiler.write_text(_COMPILER.format(runs=runs, working=working, real=real, fault=text))
        compiler.chmod(0o700)
        done = child(
            _PROGRAM, str(runs), timeout=300, CC=str(compiler), TENSORBUS_CACHE_DIR=f"{folder}/cache",
            TENSORBUS_COMPILER_TIMEOUT="4",
        )  # fmt: skip
        assert done.returncode == 0, f"a compiler that {name} from run {working} on: {done.stderr}"


@fault("compilers.stop", trials=3, full=True, device="cpu")
def stop(draw: random.Random) -> None:
    """A compiler that works for some runs, and then never again, in one of many ways."""
    if shutil.which("cc") is not None:
        _stopped(draw, draw.randint(1, 16))
