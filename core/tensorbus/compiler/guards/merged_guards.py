"""Guards of the same form about many objects, merged into one that loops over them.

The state of an optimizer has some guards for each parameter: that a dict has its keys, that these lead to the
same tensors as before, that those have no history. A distributed tensor has some for its layout and its part.
One condition for all takes a tenth of the time.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import is_, itemgetter
from typing import Any, Final

from ...tracing.mutation_counter import CountedDict
from .guard import Guard

MERGED_GLOBALS: Final = {
    "is_": is_, "flattened": chain.from_iterable, "itemgetter": itemgetter,
}  # fmt: skip
"""The globals of merged guards."""
MIN_MERGED: Final = 16
"""The number of guards of one form from which they are merged."""
_ITEM: Final = re.compile(r"(k\d+)\[(?:'(\w+)'|(k\d+))\] is (k\d+)")
_PATH: Final = r"(?P<owner>k\d+)(?P<path>(?:\.\w+)+)"
_ATTRIBUTES: Final = (
    re.compile(_PATH + r" is (?P<value>k\d+|None|True|False)"),
    re.compile(rf"type\({_PATH}\) is (?P<value>k\d+)"),
    re.compile(_PATH + r" == (?P<value>\((?:\d+, ?)*\d*\))"),
    re.compile(rf"type\({_PATH}\) is str and (?P=owner)(?P=path) == (?P<value>'[^'\\]*')"),
)
"""What guards ask of attributes."""
_KEYS: Final = re.compile(r"\[\*(k\d+)\] == (k\d+) and \[\*map\(type, \1\)\] == k\d+")


def merge_guards(
    guards: Sequence[Guard], constants: dict[str, Any], name: Callable[[Any], str]
) -> list[Guard]:
    """Return the guards with those merged that have a form in common; ``name`` makes something a constant."""
    forms: dict[Any, list[tuple[Guard, re.Match[str]]]] = {}
    asked: dict[str, list[tuple[Guard, re.Match[str]]]] = {}
    for guard in guards:
        if guard.binds or guard.locations:
            continue
        attribute = next(filter(None, (each.fullmatch(guard.code) for each in _ATTRIBUTES)), None)
        if attribute is not None and not guard.on_mutation_only:
            asked.setdefault(attribute["owner"], []).append((guard, attribute))
            continue
        for pattern in (_ITEM, _KEYS):
            match = pattern.fullmatch(guard.code)
            if match is None or guard.text.startswith("attribute "):
                continue
            if pattern is _KEYS and type(constants[match[1]]) not in (dict, CountedDict):
                continue
            if not guard.on_mutation_only or type(constants[match[1]]) is CountedDict:
                forms.setdefault((pattern, guard.on_mutation_only), []).append((guard, match))
    replaced: dict[int, Guard | None] = {}
    for (pattern, on_mutation_only), matches in forms.items():
        if len(matches) < MIN_MERGED:
            continue
        code = _merged(pattern, [match for _, match in matches], constants, name)
        _replace([guard for guard, _ in matches], code, on_mutation_only, replaced)
    _merge_attributes(asked, constants, name, replaced)
    merged = [replaced.get(id(guard), guard) for guard in guards]
    return [guard for guard in merged if guard is not None]


def _replace(
    guards: Sequence[Guard], code: str, on_mutation_only: bool, replaced: dict[int, Guard | None]
) -> None:
    """Note one guard in the place of the first of these, and none in those of the others."""
    first, *rest = guards
    text = f"{first.text}, and {len(rest)} of the kind"
    replaced[id(first)] = Guard(code=code, text=text, on_mutation_only=on_mutation_only)
    replaced.update((id(guard), None) for guard in rest)


def _merge_attributes(
    asked: Mapping[str, Sequence[tuple[Guard, re.Match[str]]]], constants: dict[str, Any],
    name: Callable[[Any], str], replaced: dict[int, Guard | None],
) -> None:  # fmt: skip
    """Merge what is asked of attributes of many objects of one class, where of each the same is asked.

    It is a loop in Python, whose look-ups the interpreter specializes by the one class that it sees.
    """
    alike: dict[Any, list[str]] = {}
    for owner, questions in asked.items():
        form = tuple((match.re, match["path"]) for _, match in questions)
        alike.setdefault((type(constants[owner]), form), []).append(owner)
    for (_, form), owners in alike.items():
        if len(owners) < MIN_MERGED:
            continue
        rows = [
            (constants[owner], *(_value_of(match["value"], constants) for _, match in asked[owner]))
            for owner in owners
        ]
        parts = [_question(pattern, f"t{path}", f"v{n}") for n, (pattern, path) in enumerate(form)]
        names = "".join(f", v{n}" for n in range(len(form)))
        code = f"all([{' and '.join(parts)} for t{names} in {name(rows)}])"
        _replace([guard for owner in owners for guard, _ in asked[owner]], code, False, replaced)


def _value_of(text: str, constants: Mapping[str, Any]) -> Any:
    return constants[text] if text in constants else literal_eval(text)


def _question(pattern: re.Pattern[str], at: str, value: str) -> str:
    """Return one condition, with the name of the value in its place."""
    by_identity, by_type, equal, _ = _ATTRIBUTES
    if pattern is by_identity:
        return f"{at} is {value}"
    if pattern is by_type:
        return f"type({at}) is {value}"
    return f"{at} == {value}" if pattern is equal else f"type({at}) is str and {at} == {value}"


def _merged(
    pattern: re.Pattern[str], matches: Sequence[re.Match[str]], constants: dict[str, Any],
    name: Callable[[Any], str],
) -> str:  # fmt: skip
    owners = {match[1]: constants[match[1]] for match in matches}
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


def ids(places: Sequence[str], constants: dict[str, Any], name: Callable[[Any], str]) -> str:
    """Return the ids of what is at these places, between commas: of one attribute of many objects at once."""
    paths: dict[Any, list[str]] = {}
    for at in places:
        match = re.fullmatch(_PATH, at)
        if match is not None and match["owner"] in constants:
            kind = type(constants[match["owner"]])
            paths.setdefault((kind, match["path"]), []).append(at)
    several = {
        key: several_places for key, several_places in paths.items() if len(several_places) >= MIN_MERGED
    }
    merged = {at for several_places in several.values() for at in several_places}
    parts = [f"id({at})" for at in places if at not in merged]
    for (_, path), several_places in several.items():
        owners = name(tuple([constants[at.partition(".")[0]] for at in several_places]))
        parts.append(f"*[id(t{path}) for t in {owners}]")
    return ", ".join(parts)
