"""No file is longer than 500 lines, and no function longer than 80: longer ones are two things."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = (".py", ".pyi", ".c", ".cpp", ".cu", ".cuh", ".cl", ".h", ".metal")


def long_functions(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1 if node.end_lineno else 0
            if lines > 80:
                yield f"{path.relative_to(ROOT)}: {node.name} has {lines} lines"


def test_files_and_functions_are_short():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.split() if name.endswith(SOURCES)]
    assert len(files) > 1000
    counted = [(path, path.read_text(encoding="utf-8").count("\n")) for path in files if path.exists()]
    rows = [f"{path.relative_to(ROOT)} has {lines} lines" for path, lines in counted if lines > 500]
    for path, _ in counted:
        if path.suffix == ".py":
            rows += long_functions(path)
    assert not rows, "\n".join(rows)
