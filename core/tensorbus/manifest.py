"""The manifest of a plugin: data in its wheel that says what it supplies, readable without importing it.

::

    [plugin]
    name = "opencl"                # what people call it
    api = ">=0.1,<1"               # the backend API it was written for
    description = "OpenCL devices" # optional

    [device]                       # for a package that supplies a device type
    type = "opencl"
    host = false                   # true: values live in host memory, as NumPy arrays
    fork_safe = false              # false: cannot be used in a forked child once it was used in the parent
    dlpack_type = 4                # DLDeviceType, where values can be exchanged by DLPack
    dtypes = ["float32", "int32"]  # what units may have; each unit lists its own when asked
    requires = "an OpenCL 1.2 driver"
    install = "pip install tensorbus-opencl[cpu]"

    [kernels]                      # for a package that adds kernels to device types of others
    for = ["opencl"]

    [ops]                          # the dtypes that each op covers: a list of names, or "all"
    add = "all"
    erf = ["float32", "float64"]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Final, Literal

from .api_version import API_VERSION, satisfies
from .dtypes import BY_NAME
from .errors import PluginError, suggest

Coverage = Mapping[str, "tuple[str, ...] | Literal['all']"]

_KEYS: Final[dict[str, dict[str, type]]] = {
    "plugin": {"name": str, "api": str, "description": str},
    "device": {
        "type": str,
        "host": bool,
        "fork_safe": bool,
        "dlpack_type": int,
        "dtypes": list,
        "requires": str,
        "install": str,
    },
    "kernels": {"for": list},
    "ops": {},
}
_KINDS: Final = {str: "a string", bool: "true or false", int: "an integer", list: "a list of strings"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a plugin declares. ``type`` is None for a plugin that supplies no device."""

    name: str
    api: str = f"=={API_VERSION}"
    description: str = ""
    type: str | None = None
    host: bool = False
    fork_safe: bool = True
    dlpack_type: int | None = None
    dtypes: tuple[str, ...] = ()
    requires: str = ""
    install: str = ""
    kernels_for: tuple[str, ...] = ()
    ops: Coverage = field(default_factory=dict)

    @property
    def compatible(self) -> bool:
        """True where this tensorbus has a backend API in the declared range."""
        return satisfies(API_VERSION, self.api)

    @classmethod
    def read(cls, path: str | PathLike[str], owner: str) -> Manifest:
        """Parse the file. Raises ``PluginError`` naming ``owner``, the file, and what is wrong."""
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise PluginError(f"cannot read the manifest of {owner} at {path}: {error}.") from error
        return cls.parse(text, owner, str(path))

    @classmethod
    def parse(cls, text: str, owner: str, file: str = "manifest.toml") -> Manifest:
        """Parse TOML. Raises ``PluginError`` as ``read`` does.

        A manifest for another backend API is read no further than its ``[plugin]`` table: what else it may
        hold is that API's affair.
        """
        import tomllib

        try:
            document = tomllib.loads(text)
            plugin = _table(document, "plugin", required=("name", "api"))
            head = {
                "name": plugin["name"],
                "api": plugin["api"],
                "description": plugin.get("description", ""),
            }
            if not satisfies(API_VERSION, plugin["api"]):
                return cls(**head)
            _known("the file", document, _KEYS, "table")
            _known("[plugin]", plugin, _KEYS["plugin"])
            return cls(**head, **_device(document), kernels_for=_kernels(document), ops=_ops(document))
        except ValueError as error:
            raise PluginError(
                f"the manifest of {owner} is malformed: {error}. File: {file}."
                f" Its author must mend it; `tensorbus doctor` shows the state of every plugin."
            ) from error


def _device(document: Mapping[str, Any]) -> dict[str, Any]:
    if "device" not in document:
        return {}
    table = _table(document, "device", required=("type",))
    _known("[device]", table, _KEYS["device"])
    if not is_type_name(table["type"]):
        raise ValueError(f"[device] type is {table['type']!r}; it must be letters, digits, '_' and '-'")
    return {**table, "dtypes": _dtypes("[device] dtypes", table.get("dtypes", []))}


def _kernels(document: Mapping[str, Any]) -> tuple[str, ...]:
    if "kernels" not in document:
        return ()
    table = _table(document, "kernels", required=("for",))
    _known("[kernels]", table, _KEYS["kernels"])
    return tuple(table["for"])


def _ops(document: Mapping[str, Any]) -> Coverage:
    coverage: dict[str, tuple[str, ...] | Literal["all"]] = {}
    for op, given in _table(document, "ops").items():
        dtypes = given.get("dtypes") if isinstance(given, dict) else given
        if dtypes == "all":
            coverage[op] = "all"
        elif isinstance(dtypes, list):
            coverage[op] = _dtypes(f"[ops] {op}", dtypes)
        else:
            raise ValueError(f'[ops] {op} is {given!r}; it must be a list of dtypes or "all"')
    return coverage


def _table(document: Mapping[str, Any], name: str, required: Iterable[str] = ()) -> dict[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise ValueError(f"{name!r} is {table!r}; it must be a table [{name}]")
    for key in required:
        if key not in table:
            raise ValueError(f"it needs `{key} = ...` in its [{name}] table")
    for key, kind in _KEYS[name].items():
        value = table.get(key)
        wrong = value is not None and (type(value) is not kind)
        if wrong or (kind is list and not all(isinstance(item, str) for item in value or ())):
            raise ValueError(f"[{name}] {key} is {value!r}; it must be {_KINDS[kind]}")
    return table


def _known(where: str, got: Iterable[str], known: Iterable[str], what: str = "key") -> None:
    for key in got:
        if key not in known:
            raise ValueError(
                f"{where} has an unknown {what} {key!r}.{suggest(key, known)} Known: {', '.join(known)}"
            )


def _dtypes(where: str, names: Iterable[str]) -> tuple[str, ...]:
    for name in names:
        if name not in BY_NAME:
            raise ValueError(f"{where} has {name!r}, which is no dtype.{suggest(str(name), BY_NAME)}")
    return tuple(names)


def is_type_name(text: str) -> bool:
    """Return whether ``text`` can name a device type: ASCII letters, digits, ``_`` and ``-``.

    >>> is_type_name("my_npu"), is_type_name("npu:0")
    (True, False)
    """
    return text.isascii() and text.replace("_", "").replace("-", "").isalnum()
