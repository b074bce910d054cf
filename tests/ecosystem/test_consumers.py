"""SciPy and scikit-learn take tensors of any device, as arrays of a library that they have never heard of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from consumers import CASES
from installed import available

pytestmark = pytest.mark.full


@cache
def verdicts(device: str) -> dict[str, str]:
    """Return what is wrong with each case on ``device``, by a process in which SciPy looks at namespaces."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("consumers.py")), device],
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results: dict[str, str] = json.loads(done.stdout)[device]
    return results


@pytest.mark.parametrize("device", available())
@pytest.mark.parametrize("case", CASES)
def test_same_results_as_from_numpy_arrays(case: str, device: str) -> None:
    assert verdicts(device)[case] == ""
