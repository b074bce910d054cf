"""Lazy imports: names that packages import at first use, and what type checkers are told of them."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = ("tensorbus", "tensorbus.nn", "tensorbus.optim")


def _declared(package: str) -> dict[str, str]:
    """Return the names that imports under ``TYPE_CHECKING`` give, with the modules they are of."""
    source = Path(inspect.getfile(importlib.import_module(package))).read_text(encoding="utf-8")
    blocks = [
        n for n in ast.parse(source).body
        if isinstance(n, ast.If) and isinstance(n.test, ast.Name) and n.test.id == "TYPE_CHECKING"
    ]  # fmt: skip
    return {
        alias.name: node.module or ""
        for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }  # fmt: skip


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_are_told_what_is_there(package: str) -> None:
    module = importlib.import_module(package)
    message = _declared(package)
    offered = module._OFFERED if package == "tensorbus" else module.__all__
    assert sorted(message) == sorted(offered)
    for name, part in message.items():
        home = importlib.import_module(f"{package}.{part}" if part else f"{package}.{name}")
        value = getattr(module, name)
        assert value is (getattr(home, name) if part else home)
        assert name in dir(module)


def test_names_that_are_not_there() -> None:
    module = importlib.import_module("tensorbus.nn")
    with pytest.raises(AttributeError, match=r"'tensorbus\.nn' has no attribute 'Liner'"):
        module.Liner  # noqa: B018


def test_everything_by_a_star() -> None:
    scope: dict[str, object] = {}
    exec("from tensorbus.nn import *\nfrom tensorbus.optim import *", scope)
    assert {"Linear", "functional", "init", "LSTM", "Adam", "lr_scheduler", "Parameter"} <= scope.keys()


def test_modules_are_found_as_attributes_of_their_package() -> None:
    code = "import tensorbus.nn as nn; print(nn.parameter.Parameter.__name__, nn.functional.relu.__name__)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["Parameter", "relu"]


def test_a_function_is_compiled_without_layers_and_optimizers() -> None:
    code = """
import sys
import tensorbus as tb
assert tb.compile(lambda x: tb.exp(x) + 1)(tb.asarray([0.0])).item() == 2.0
print(*sorted(m for m in sys.modules if m in ("tensorbus.nn.modules.linear", "tensorbus.optim.adam")))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == []


def test_no_name_is_that_of_a_module_beside_it() -> None:
    """Python binds a module in its package when anybody imports it, in the place of the function."""
    root = Path(inspect.getfile(importlib.import_module("tensorbus"))).parent
    lazy = [p.parent for p in root.rglob("__init__.py") if "lazy_exports(" in p.read_text(encoding="utf-8")]
    assert len(lazy) > 3
    for folder in lazy:
        package = ".".join(["tensorbus", *folder.relative_to(root).parts])
        modules = {path.stem for path in folder.iterdir()}
        assert not {name for name, module in _declared(package).items() if module and name in modules}, (
            package
        )
