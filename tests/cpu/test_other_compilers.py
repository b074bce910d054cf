"""Programs are compiled with whatever C compiler is named, with the options that it takes."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from error_bounds import gamma

_STRICT = """#!{shell}
unwatched= last=
for given in "$@"; do
  [ "$last" = -o ] && echo "$given" >> {places}
  [ "$last" = -o ] && [ -e "$given" ] && {{ echo "$given" >> {overwritten}; exit 1; }}
  last=$given
  case "$given" in
    -fno-tree-loop-distribution)
      [ -z "{macro}" ] || {{ echo "error: unknown option: $given" >&2; exit 1; }} ;;
    -fno-sanitize=undefined) unwatched=1 ;;
    -dM) exec {compiler} "$@" {macro} ;;
  esac
done
[ -n "$unwatched" ] || {{ echo "error: code would be watched" >&2; exit 1; }}
exec {compiler} "$@"
"""
_PROGRAM = (
    f"ROUNDED = {gamma(12 + 8, 'float32')}  # of sums of twelve\n"
    + """
import numpy as np
import tensorbus as tb
from tensorbus_cpu.compiler import NATIVE

@tb.compile(fullgraph=True)
def f(x, y):
    return tb.nn.functional.softmax(tb.erf(x) * y + tb.sin(y), -1), tb.sum(x * y)

x = tb.asarray(np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4))
found = f(x, x + 1)
expected = tb.nn.functional.softmax(tb.erf(x) * (x + 1) + tb.sin(x + 1), -1), tb.sum(x * (x + 1))
for a, b in zip(found, expected):
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=ROUNDED)
print(NATIVE.compiler().built)
"""
)


@pytest.mark.parametrize("macro", ["", "-D__clang__=1"])
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is called cc here")
def test_a_compiler_gets_the_options_that_it_takes_and_needs(tmp_path: Path, macro: str) -> None:
    """And is told to write to new files only: one that removes them first would remove ``/dev/null``."""
    compiler, places, overwritten = tmp_path / "strict", tmp_path / "places", tmp_path / "overwritten"
    names = {"shell": shutil.which("sh"), "compiler": shutil.which("cc"), "macro": macro}
    compiler.write_text(_STRICT.format(**names, places=places, overwritten=overwritten))
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    env = os.environ | {"CC": str(compiler), "TENSORBUS_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", _PROGRAM], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
    assert places.exists()
    assert not overwritten.exists(), overwritten.read_text()
