"""What authors of devices import: names are shown, tables skip what is lacking, signatures are checked."""

from __future__ import annotations

import re
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import backend_api
from tensorbus.backend_api import (
    Dialect,
    Graph,
    Node,
    SourceCall,
    Spec,
    TypeRule,
    decompose,
    from_namespace,
    from_source,
)
from tensorbus.backend_api import dtypes as dt
from tensorbus.kernels.from_namespace import NEEDS, SAME_NAME

DTYPES = {d: np.dtype(d.name) for d in (dt.bool_, dt.int64, dt.float32)}


def test_names_that_are_imported_late_are_shown_and_there() -> None:
    shown = dir(backend_api)
    assert {"decompose", "from_dialect", "trace", "Dialect", "from_namespace"} <= set(shown)
    assert [name for name in shown if not hasattr(backend_api, name)] == []


def test_a_program_is_broken_down_to_what_a_lowering_keeps() -> None:
    x = Node(op="input", inputs=(), attrs={}, spec=Spec((2, 3), dt.float32))
    whole = Node(op="softmax", inputs=(x,), attrs={"axis": 1}, spec=x.spec)
    graph = Graph(inputs=(x,), outputs=(whole,))
    assert [node.op for node in decompose(graph, lambda op: op == "softmax").outputs] == ["softmax"]
    broken = decompose(graph, lambda op: False)
    ops, left = set(), list(broken.outputs)
    while left:
        node = left.pop()
        ops.add(node.op)
        left.extend(node.inputs)
    assert "softmax" not in ops
    assert {"max", "exp", "sum"} <= ops


def test_a_table_has_no_kernel_for_what_the_library_lacks_and_one_warning_names_all() -> None:
    absent = {"atan2", "cumsum", "argmax", "matmul", "searchsorted", "conj", "where"}
    names = {name for name in dir(np) if name not in absent}
    library = SimpleNamespace(**{name: getattr(np, name) for name in names if not name.startswith("__")})
    lacking = {op for op, needs in NEEDS.items() if absent & {*needs}} | (absent & {*SAME_NAME})
    whole = from_namespace(np, DTYPES)
    with pytest.warns(
        UserWarning, match=r"SimpleNamespace has no argmax, atan2, conj, .* no kernels for"
    ) as warned:
        table = from_namespace(library, DTYPES)
    assert len(warned) == 1
    message = str(warned[0].message)
    assert all(re.search(rf"\b{name}\b", message) for name in (lacking | absent) - {"searchsorted"})
    assert whole.keys() - table.keys() == lacking | {"searchsorted"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own = from_namespace(library, DTYPES, own=lacking)
    assert own.keys() == table.keys()
    assert from_namespace(np, DTYPES, own=("exp",)).keys() == whole.keys() - {"exp"}
    library.add, library.lib = (
        (lambda x, y: np.add(x, y)),
        object(),
    )  # functions without functions of their own
    with pytest.warns(
        UserWarning, match=r"no add\.at, .*lib\.stride_tricks.* no kernels for .*scatter.*windows"
    ):
        table = from_namespace(library, DTYPES)
    assert not {"scatter", "windows"} & table.keys()


def _dialect() -> Dialect:
    names = {dt.float32: "float", dt.uint8: "uint8_t", dt.int64: "int64_t"}
    return Dialect(
        name="C", types={d: TypeRule(storage=text, register=text) for d, text in names.items()},
        index=TypeRule(storage="int64_t", register="int64_t"), expressions={}, casts={},
        kernel="void {name}({arguments})", task="void {name}({arguments})", buffer="{const}{T} *{name}",
    )  # fmt: skip


class Compiler:
    """What compiles nothing: it keeps the sources that it is handed."""

    def __init__(self) -> None:
        self.sources: list[str] = []

    def dialect(self, index: int) -> Dialect:
        return _dialect()

    def describe(self, index: int) -> str:
        return f"npu:{index}"

    def prepare(self, source: str, launch: Any, index: int) -> Any:
        self.sources.append(source)
        return lambda buffers, late: None


RIGHT = "void leaky(const float *x, float *out, float slope, int64_t n)"
OF_CPU = "void leaky(const float *x, float *out, float slope, int64_t n, int64_t first, int64_t last)"


@pytest.mark.parametrize(
    ("head", "arguments"),
    [(RIGHT, None), (f"// {OF_CPU} {{\n{RIGHT}", None), (OF_CPU, 6), ("void leaky(void)", 0)],
    ids=["right", "another in a comment", "of the cpu", "none"],
)
def test_a_user_kernel_with_another_devices_signature_is_refused_with_the_right_one(
    head: str, arguments: int | None
) -> None:
    call = SourceCall(
        name="leaky", code=f"static float twice(float a) {{ return a; }}\n{head} {{ out[0] = x[0]; }}\n",
        operands=(("x", dt.float32, (4,)),), results=(("out", dt.float32, (4,)),),
        scalars=(("slope", dt.float32, 0.1),), sizes=(4,), grid=(4,),
    )  # fmt: skip
    compiler: Any = Compiler()
    if arguments is None:
        from_source(compiler, call, 0)
        assert len(compiler.sources) == 1
        return
    with pytest.raises(tb.DeviceError) as caught:
        from_source(compiler, call, 0)
    assert compiler.sources == []
    message = str(caught.value)
    assert f"leaky: its source for npu:0 takes {arguments} argument(s), and would be called with 4" in message
    assert message.endswith("void leaky(const TB_x *x, TB_out *out, const float slope, const int64_t size_0)")
