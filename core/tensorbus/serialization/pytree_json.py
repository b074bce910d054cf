"""Nested data as a flat dict of tensors and a JSON description of the rest, and back.

Every dict is described as a list of pairs and every sequence as a tagged list, so that no content can be
mistaken for a tag, and keys keep their type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..errors import StateError
from ..tensor.tensor import Tensor

_DEEPEST: Final = 200
"""How many containers in each other are saved: JSON has two or three levels for each."""


def pack(obj: Any) -> tuple[dict[str, Tensor], Any]:
    """Return the tensors in ``obj`` by name, and the description; None for a plain dict of names and tensors.

    Raises ``StateError`` naming the place of a thing that cannot be described.
    """
    if not isinstance(obj, Mapping):
        raise StateError(
            f"save: a dict of tensors is needed, such as model.state_dict(); got {type(obj).__name__}."
        )
    if (
        all(isinstance(k, str) and isinstance(v, Tensor) for k, v in obj.items())
        and "__metadata__" not in obj
    ):
        return dict(obj), None
    tensors: dict[str, Tensor] = {}
    return tensors, _describe(obj, "", tensors, 0)


def _describe(obj: Any, path: str, tensors: dict[str, Tensor], depth: int) -> Any:
    if obj is None or type(obj) in (bool, int, float, str):
        return obj
    if isinstance(obj, Tensor):
        name, copy = path, 1
        while name in tensors:  # "a.b" may be a name and a path
            copy += 1
            name = f"{path}#{copy}"
        tensors[name] = obj
        return ["tensor", name]
    if isinstance(obj, (Mapping, list, tuple)) and depth == _DEEPEST:
        raise StateError(
            f"save: {path[:60]!r} and on, more than {_DEEPEST} containers lie in each other, or one lies in"
            " itself."
        )
    if isinstance(obj, Mapping):
        for key in obj:
            if type(key) not in (str, int):
                raise StateError(
                    f"save: a key is a string or an integer, got {key!r} in {path or 'the top'}."
                )
        return [
            "dict",
            [
                [k, _describe(v, f"{path}.{k}" if path else str(k), tensors, depth + 1)]
                for k, v in obj.items()
            ],
        ]
    if isinstance(obj, (list, tuple)):
        tag = "tuple" if isinstance(obj, tuple) else "list"
        return [tag, [_describe(v, f"{path}.{k}", tensors, depth + 1) for k, v in enumerate(obj)]]
    raise StateError(
        f"save: {path!r} is a {type(obj).__name__}; tensors, dicts, lists, tuples, numbers, strings and"
        f" None can be"
        f" saved. Save a module or an optimizer as its state_dict()."
    )


def unpack(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return what was packed. Raises ``LookupError``, ``TypeError`` or ``ValueError`` for anything else."""
    if not isinstance(tree, list):
        return tree
    tag, content = tree
    if tag == "tensor":
        return tensors[content]
    if tag == "dict":
        return {key: unpack(value, tensors) for key, value in content}
    if tag in ("list", "tuple"):
        values = [unpack(value, tensors) for value in content]
        return tuple(values) if tag == "tuple" else values
    raise ValueError(f"{tag!r} is no tag")
