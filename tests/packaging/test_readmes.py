"""Every backend has the same files, and its README says what the others are for."""

from __future__ import annotations

from pathlib import Path

import pytest

BACKENDS = Path(__file__).parents[2] / "backends"
SAME = {
    "extension.py", "device.py", "memory.py", "kernels.py", "dialect.py", "lowering.py", "compiler.py",
    "manifest.toml",
}  # fmt: skip


@pytest.mark.parametrize("folder", sorted(BACKENDS.iterdir()), ids=lambda folder: folder.name)
def test_a_backend_explains_its_files(folder: Path) -> None:
    package = folder / f"tensorbus_{folder.name}"
    there = {str(file.relative_to(package)) for file in package.rglob("*") if file.suffix in (".py", ".toml")}
    assert there >= SAME
    readme = (folder / "README.md").read_text(encoding="utf-8")
    more = {name for name in there - SAME if name.endswith(".py") and not Path(name).name.startswith("_")}
    assert not {name for name in more if f"`{name}`" not in readme}
