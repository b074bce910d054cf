"""The package is what authors copy: small, and written against the backend API alone."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import tensorbus_refdev

PACKAGE = Path(tensorbus_refdev.__file__).parent


def test_it_has_fewer_than_300_lines():
    names = ("*.py", "*.toml", "*.pyi")
    files = [path for name in names for path in PACKAGE.rglob(name)]
    # The table of ops in the manifest is generated, by `tensorbus coverage --device refdev --write`.
    written = {path.name: path.read_text().partition("\n# Written by ")[0] for path in files}
    lines = {name: text.count("\n") for name, text in written.items()}
    assert sum(lines.values()) < 300, lines


def test_it_imports_the_backend_api_and_numpy_only():
    names: set[str] = set()
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and not node.level:
                names.add(node.module or "")
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
    ours = {name for name in names if name.startswith("tensorbus")}
    assert ours == {"tensorbus.backend_api"}
    standard = {name for name in names if name.partition(".")[0] in sys.stdlib_module_names}
    assert names - ours - standard == {"numpy"}
