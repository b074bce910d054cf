"""How sources become binaries, several at a time, by a stand-in for NVRTC: no GPU is needed."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tensorbus.errors import DeviceError


class _Error(Exception):
    pass


class _Nvrtc:
    """Compiles a source into its text; those in ``wrong`` do not compile. Two wait for each other."""

    NVRTCError = _Error

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.wrong: set[str] = set()
        self.meeting: threading.Barrier | None = None

    def getVersion(self) -> tuple[int, int]:
        return 12, 8

    def createProgram(self, source: str, *others: Any) -> str:
        return source

    def compileProgram(self, source: str, options: Any) -> None:
        if self.meeting is not None:
            self.meeting.wait(30)
        self.compiled.append(source)
        if source in self.wrong:
            raise _Error("no such name")

    def getCUBIN(self, source: str) -> bytes:
        return source.encode()

    def getProgramLog(self, source: str) -> str:
        return "line 1"

    def destroyProgram(self, source: str) -> None:
        pass


@pytest.fixture
def compiler(cupy_or_names: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A compiler with an empty cache; ``compiler.nvrtc`` is what it compiles by, ``loaded`` what it loads."""
    nvrtc, loaded = _Nvrtc(), list[bytes]()

    class Module:
        def load(self, binary: bytes) -> None:
            if binary in refused:
                raise RuntimeError("another driver's")
            loaded.append(binary)

        def get_function(self, name: str) -> Any:
            return SimpleNamespace(ptr=name)

    refused: list[bytes] = []
    cuda: Any = ModuleType("cupy.cuda")
    cuda.nvrtc, cuda.function = nvrtc, SimpleNamespace(Module=Module)
    cuda.driver = SimpleNamespace(CUDADriverError=RuntimeError)
    cuda.runtime = SimpleNamespace(CUDARuntimeError=RuntimeError)
    cupy: Any = ModuleType("cupy")
    cupy.cuda = cuda
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    for name in [name for name in sys.modules if name.startswith("tensorbus_cuda.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setenv("TENSORBUS_CACHE_DIR", str(tmp_path))
    from contextlib import nullcontext

    from tensorbus_cuda.compiler import CudaCompiler

    unit = SimpleNamespace(index=0, name="cuda:0", architecture="90", current=nullcontext)
    subject: Any = CudaCompiler(SimpleNamespace(unit=lambda index: unit))  # type: ignore[arg-type]
    subject.nvrtc, subject.loaded, subject.refused, subject.unit = nvrtc, loaded, refused, unit
    return subject


def test_new_sources_are_built_side_by_side_and_once(compiler: Any) -> None:
    compiler.nvrtc.meeting = threading.Barrier(2)
    compiler.build(["a", "b", "a"], 0)
    compiler.nvrtc.meeting = None
    for source in ("a", "b", "c", "a"):
        assert compiler._function(compiler.unit, source, "f").ptr == "f"
    assert sorted(compiler.nvrtc.compiled) == ["a", "b", "c"]
    assert compiler.loaded == [b"a", b"b", b"c"]
    assert compiler.built == 3
    compiler.build(["a", "b", "c"], 0)
    assert compiler.built == 3


def test_a_source_that_does_not_compile_is_shown_by_number_of_line(compiler: Any) -> None:
    compiler.nvrtc.wrong = {"b"}
    with pytest.raises(DeviceError, match=r"does not compile: no such name\nline 1\n *1"):
        compiler.build(["a", "b"], 0)
    assert compiler._function(compiler.unit, "a", "f").ptr == "f"


def test_a_binary_that_the_driver_refuses_is_built_again(compiler: Any) -> None:
    compiler.build(["a", "b"], 0)
    compiler.refused.append(b"a")
    with pytest.raises(RuntimeError, match="another"):
        compiler._function(compiler.unit, "a", "f")
    assert compiler.nvrtc.compiled.count("a") == 2


def test_sources_are_built_while_another_thread_loads(compiler: Any) -> None:
    """Kernels that are loaded meanwhile are in the table that tells what is new."""

    class Index(int):
        """A unit's number, with whose comparison a kernel is loaded elsewhere."""

        def __eq__(self, other: object) -> bool:
            compiler._functions[0, f"other {len(compiler._functions)}", "f"] = None
            return int(self) == other

        __hash__ = int.__hash__

    compiler._functions.update({(Index(0), source, "f"): None for source in ("a", "b")})
    compiler.build(["a", "b", "c", "d"], 0)
    assert sorted(compiler.nvrtc.compiled) == ["c", "d"]
