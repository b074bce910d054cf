"""Every backend has the same files, and its README says what the others are for."""

from __future__ import annotations

from pathlib import Path

import pytest

BACKENDS = Path(__file__).parents[2] / "backends"
SAME = {"extension.py", "device.py", "memory.py", "kernels.py", "lowering.py", "compiler.py", "manifest.toml"}


@pytest.mark.parametrize("folder", sorted(BACKENDS.iterdir()), ids=lambda folder: folder.name)
def test_a_backend_explains_its_files(folder: Path) -> None:
    package = folder / f"tensorbus_{folder.name}"
    there = {file.name for file in package.iterdir()}
    assert there >= SAME
    readme = (folder / "README.md").read_text(encoding="utf-8")
    more = {name for name in there - SAME if name.endswith(".py") and not name.startswith("_")}
    assert not {name for name in more if f"`{name}`" not in readme}
