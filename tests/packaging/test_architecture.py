"""The drawing, the table of packages and the docstrings of packages say what is there."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(
    path.parent
    for base in ("core", "backends", "plugins/refdev")
    for path in (ROOT / base).rglob("__init__.py")
    if not {"build", ".venv"} & set(path.parts)
)


UNORDERED = {"tensorbus"}  # the public names


def docstring(package: Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""


def test_the_drawing_and_the_table_are_as_the_packages_are() -> None:
    script = ROOT / "scripts" / "draw_architecture.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_package_says_in_which_order_its_files_are_read(package: Path) -> None:
    text = " ".join(docstring(package).split())
    assert text, "a package says what it is for"
    there = {file.stem for file in package.glob("*.py") if not file.stem.startswith("__")}
    there |= {inner.parent.name for inner in package.glob("*/__init__.py")}
    named = re.findall(r"``(\w+)``", text)
    if package.name not in UNORDERED:
        assert there <= set(named), f"not named: {there - set(named)}"
    for name in re.findall(r"``(\w+)``", text.partition("In order: ")[2].partition(". ")[0]):
        assert name in there, f"{name} is not there"
    for stage in re.findall(r"``(\w+)``", text.partition("Stages in order: ")[2].partition(".")[0]):
        assert (package / stage / "__init__.py").exists(), stage
