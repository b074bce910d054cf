"""Guards about many objects, merged: they hold, and fail, where those that they stand for do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tensorbus.compiler.guards.guard import Guard
from tensorbus.compiler.guards.merged_guards import MERGED_GLOBALS, MIN_MERGED, ids, merge_guards


class _One:
    def __init__(self, k: int) -> None:
        self.kind, self.flag, self.shape = "", False, (k, 2)
        self.part: Any = SimpleNamespace(node=None, of=SimpleNamespace(length=(k,)))


class _Other(_One):
    pass


CHANGES = {
    "nothing": (lambda x: None, True),
    "an attribute": (lambda x: setattr(x, "flag", True), False),
    "a part": (lambda x: setattr(x, "part", SimpleNamespace(node=None, of=x.part.of)), False),
    "the type of a part": (lambda x: setattr(x, "part", _One(3)), False),
    "an attribute of a part": (lambda x: setattr(x.part, "node", x), False),
    "a shape": (lambda x: setattr(x, "shape", (2, *x.shape)), False),
    "an equal shape": (lambda x: setattr(x, "shape", (*x.shape,)), True),
    "a text": (lambda x: setattr(x, "kind", "other"), False),
    "an equal text of another type": (lambda x: setattr(x, "kind", type("Text", (str,), {})("")), False),
    "no part": (lambda x: delattr(x, "part"), False),
}  # fmt: skip


def _holds(guards: list[Guard], scope: dict[str, Any]) -> bool:
    try:
        return all(eval(guard.code, scope) for guard in guards)
    except AttributeError:  # which generated code takes for a miss
        return False


@pytest.mark.parametrize("what", CHANGES)
def test_merged_guards_hold_where_all_do(what: str) -> None:
    change, holds = CHANGES[what]
    constants: dict[str, Any] = {}

    def name(x: Any) -> str:
        constants[f"k{len(constants)}"] = x
        return f"k{len(constants) - 1}"

    objects = [(_One if k % 3 else _Other)(k) for k in range(3 * MIN_MERGED)]
    guards = [Guard(code="1 < 2", text="that numbers are in order")]
    for k, x in enumerate(objects):
        at, part, kind = name(x), name(x.part), name(type(x.part))
        codes = [
            f"{at}.flag is False", f"{at}.part is {part}", f"type({at}.part) is {kind}",
            f"{at}.part.node is None", f"{at}.shape == ({k}, 2)", f"{at}.part.of.length == ({k},)",
            f"type({at}.kind) is str and {at}.kind == ''",
        ]  # fmt: skip
        guards += [Guard(code=code, text=f"attribute {n} of an object") for n, code in enumerate(codes)]
    places = [f"{at}.part" for at, x in constants.items() if isinstance(x, _One)]
    every = ids(["x0", *places], constants, name)
    merged = merge_guards(guards, constants, name)
    assert len(merged) == 3  # one for each class
    assert every.count("id(") == 3
    scope = {**MERGED_GLOBALS, **constants, "x0": objects[0]}
    assert eval(f"{{{every}}}", scope) == {id(objects[0]), *(id(x.part) for x in objects)}
    for x in (objects[0], objects[-1]):
        change(x)
        assert _holds(merged, scope) is _holds(guards, scope) is holds
