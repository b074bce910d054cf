"""The stamp of compiled code on disk changes with every file of core that makes kernels.

A file that it leaves out would let kernels of former code be taken from the disk without a word.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
import tensorbus
from tensorbus.system import disk_cache
from tensorbus.system.disk_cache import _UNSTAMPED, code_stamp

CORE = Path(tensorbus.__file__).parent
TRACED = {"compiler", "eager", "distributions", "backend_api"}
"""Parts in the stamp that may know modules, optimizers or hints: what they use of them ends in the graph."""
ENTRIES = {"", "__main__"}
"""Where programs come in: the root, and ``python -m tensorbus``, which nothing imports."""


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of core that the stamp is taken of."""
    copy = tmp_path / "tensorbus"
    shutil.copytree(CORE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(disk_cache, "_PACKAGE", str(copy))
    return copy


def stamp(backend: Path) -> str:
    return code_stamp.__wrapped__(backend)


def test_a_change_of_any_file_that_makes_kernels_is_another_stamp(copied: Path, tmp_path: Path) -> None:
    backend = tmp_path / "backend"
    backend.mkdir()
    (backend / "dialect.py").touch()
    before = stamp(backend)
    assert stamp(backend) == before
    files = sorted(copied.rglob("*.py"))
    assert len(files) > 300
    for file in [backend / "dialect.py", *files]:
        seen = file.stat()
        os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns + 1_000_000_000))
        counted = not (_UNSTAMPED & {*file.relative_to(tmp_path).parts[:2]})
        assert (stamp(backend) != before) is counted, file
        os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert stamp(backend) == before


def test_a_file_more_or_less_is_another_stamp(copied: Path, tmp_path: Path) -> None:
    stamps = [stamp(tmp_path / "tensorbus" / "lowering")]
    (copied / "lowering" / "another.py").touch()
    stamps.append(stamp(copied / "lowering"))
    (copied / "graph" / "fingerprint.py").unlink()
    stamps.append(stamp(copied / "lowering"))
    assert len({*stamps}) == 3


def test_what_is_left_out_exists() -> None:
    assert {path.name for path in CORE.iterdir() if path.is_dir()} >= _UNSTAMPED


def test_nothing_that_makes_kernels_imports_what_is_left_out(checker: ModuleType) -> None:
    known = checker.modules()
    wrong = [
        str(each)
        for name, path in known.items()
        for each in checker.imports_of(name, path, known)
        if checker.part_of(each.imported) in _UNSTAMPED
        and checker.part_of(each.importer) not in {*ENTRIES, "distributed", *TRACED, *_UNSTAMPED}
    ]
    assert not wrong
    assert not [
        str(each)
        for name, path in known.items()
        for each in checker.imports_of(name, path, known)
        if checker.part_of(each.imported) == "__main__"
    ]


@pytest.fixture
def checker() -> ModuleType:
    """``scripts/check_imports.py``, which knows all imports, deferred ones too."""
    path = CORE.parents[1] / "scripts" / "check_imports.py"
    spec = importlib.util.spec_from_file_location("check_imports", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_imports"] = module
    spec.loader.exec_module(module)
    return module
