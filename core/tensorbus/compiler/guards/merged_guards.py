"""Guards of the same form about many objects, merged into one that loops in C.

The state of an optimizer has some guards for each parameter: that a dict has its keys, that these lead to the
same tensors as before, that those have no history. One condition for all takes a tenth of the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any, Final

from ...tracing.mutation_counter import CountedDict
from .guard import Guard

MERGED_GLOBALS: Final = {
    "is_": is_, "flattened": chain.from_iterable, "histories": attrgetter("_node"), "itemgetter": itemgetter,
}  # fmt: skip
"""The globals of merged guards."""
MIN_MERGED: Final = 16
"""The number of guards of one form from which they are merged."""
_NO_HISTORY: Final = re.compile(r"(k\d+)\._node is None")
_ITEM: Final = re.compile(r"(k\d+)\[(?:'(\w+)'|(k\d+))\] is (k\d+)")
_KEYS: Final = re.compile(r"\[\*(k\d+)\] == (k\d+) and \[\*map\(type, \1\)\] == k\d+")


def merge_guards(
    guards: Sequence[Guard], constants: dict[str, Any], name: Callable[[Any], str]
) -> list[Guard]:
    """Return the guards with those merged that have a form in common; ``name`` makes something a constant."""
    forms: dict[Any, list[tuple[Guard, re.Match[str]]]] = {}
    for guard in guards:
        if guard.binds or guard.locations or guard.text.startswith("attribute "):
            continue
        for pattern in (_NO_HISTORY, _ITEM, _KEYS):
            match = pattern.fullmatch(guard.code)
            if match is None or (pattern is _KEYS and type(constants[match[1]]) not in (dict, CountedDict)):
                continue
            if not guard.on_mutation_only or type(constants[match[1]]) is CountedDict:
                forms.setdefault((pattern, guard.on_mutation_only), []).append((guard, match))
    replaced: dict[int, Guard | None] = {}
    for (pattern, on_mutation_only), matches in forms.items():
        if len(matches) < MIN_MERGED:
            continue
        code = _merged(pattern, [match for _, match in matches], constants, name)
        first, *rest = [guard for guard, _ in matches]
        text = f"{first.text}, and {len(rest)} of the kind"
        replaced[id(first)] = Guard(code=code, text=text, on_mutation_only=on_mutation_only)
        replaced.update((id(guard), None) for guard in rest)
    merged = [replaced.get(id(guard), guard) for guard in guards]
    return [guard for guard in merged if guard is not None]


def _merged(
    pattern: re.Pattern[str], matches: Sequence[re.Match[str]], constants: dict[str, Any],
    name: Callable[[Any], str],
) -> str:  # fmt: skip
    owners = {match[1]: constants[match[1]] for match in matches}
    if pattern is _NO_HISTORY:
        return f"not any(map(histories, {name(tuple(owners.values()))}))"
    if pattern is _KEYS:
        dicts, keys = name(tuple(owners.values())), [constants[match[2]] for match in matches]
        lengths, flat = name([*map(len, keys)]), name([key for each in keys for key in each])
        return f"[*map(len, {dicts})] == {lengths} and all(map(is_, flattened({dicts}), {flat}))"
    items: dict[str, dict[Any, Any]] = {}
    for match in matches:
        key = match[2] if match[2] is not None else constants[match[3]]
        items.setdefault(match[1], {})[key] = constants[match[4]]
    alike: dict[tuple[Any, ...], list[str]] = {}
    for owner, values_by_key in items.items():
        alike.setdefault(tuple(values_by_key), []).append(owner)
    parts = []
    for keys_alike, names in alike.items():
        values = name([value for owner in names for value in items[owner].values()])
        get, holders = name(itemgetter(*keys_alike)), name(tuple([owners[owner] for owner in names]))
        found_now = f"map({get}, {holders})" if len(keys_alike) == 1 else f"flattened(map({get}, {holders}))"
        parts.append(f"all(map(is_, {found_now}, {values}))")
    return " and ".join(parts)
