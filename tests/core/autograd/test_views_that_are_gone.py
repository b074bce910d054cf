"""Parameters that were views once, of tensors that are gone, cost programs nothing."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import tensorbus as tb
from tensorbus.autograd.views import no_views

base = tb.zeros((4,), device="cpu")
parameters = [tb.nn.Parameter(tb.ones((3,), device="cpu")) for _ in range(20)]
assert not no_views()  # each shows what it was made of, as far as anybody knows
double = tb.compile(lambda: [p.mul_(2) for p in parameters] and None)
with tb.no_grad():
    double()
    double()
assert any(no_views() for _ in range(40))
view = base[1:]
assert not any(no_views() for _ in range(40))
view += 1
assert base.tolist() == [0, 1, 1, 1]
del view
assert any(no_views() for _ in range(40))
assert all(p.tolist() == [4, 4, 4] for p in parameters)
"""


def test_families_whose_views_are_gone_are_forgotten() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
