"""What lower packages call of upper ones is there, and is imported when it is called, not before."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest
import tensorbus as tb
from tensorbus.system.late_binding import LateFunction, provided


@pytest.mark.parametrize("target", provided().values())
def test_every_target_is_a_function(target: str) -> None:
    module, _, function = target.partition(":")
    assert callable(getattr(import_module(module), function))


def test_a_target_is_found_by_its_name() -> None:
    assert LateFunction("compile").load() is tb.compile


def test_nothing_of_it_is_imported_at_the_start() -> None:
    modules = sorted({target.partition(":")[0] for target in provided().values()})
    code = f"import sys, tensorbus; print([m for m in {modules!r} if m in sys.modules])"
    text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert text.strip() == "[]"
