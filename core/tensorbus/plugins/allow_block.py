"""The user's switches: which of the installed plugins may load, and the errors that leave the choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import DeviceUnavailableError, PluginError, suggest
from ..system import env
from .discovery import EntryPoint, metadata_of, normalized


def refusal(claim: EntryPoint) -> str | None:
    """Return why the switches keep a plugin from loading, or None.

    ``TENSORBUS_PLUGINS`` and ``TENSORBUS_BLOCK`` name device types, entry points or distributions.
    """
    names = {normalized(claim.name), normalized(claim.dist)}
    if names & set(map(normalized, env.blocked())):
        return f"TENSORBUS_BLOCK={','.join(sorted(env.blocked()))!r} blocks it"
    allowed = env.allowed()
    if allowed is not None and not names & set(map(normalized, allowed)):
        return f"TENSORBUS_PLUGINS={','.join(sorted(allowed))!r} does not name it"
    return None


def choose_claim(device_type: str, claims: Sequence[EntryPoint]) -> EntryPoint:
    """Return the one entry point that supplies ``device_type``.

    Raises ``DeviceUnavailableError`` where the switches block all of them, and ``PluginError`` naming them
    where more than one is left and none is chosen by the name of its distribution.
    """
    allowed = [claim for claim in claims if refusal(claim) is None]
    if not allowed:
        claim = claims[0]
        raise DeviceUnavailableError(
            f"device type {device_type!r} cannot be used: {claim.dist} {claim.version} is installed, but"
            f" {refusal(claim)}. Change that variable and start the program again, or choose another device."
        )
    if len(allowed) > 1:
        named = set(map(normalized, env.allowed() or ()))
        chosen = [claim for claim in allowed if normalized(claim.dist) in named]
        if len(chosen) != 1:
            dists = [claim.dist for claim in allowed]
            raise PluginError(
                f"device type {device_type!r} is claimed by {len(allowed)} packages:"
                f" {'; '.join(map(str, allowed))}. Choose one: set TENSORBUS_BLOCK={dists[-1]} (or"
                f" {', '.join(dists[:-1])}), or name it in TENSORBUS_PLUGINS by its distribution, or"
                f" uninstall the other."
            )
        return chosen[0]
    return allowed[0]


def hidden(claims: Iterable[EntryPoint]) -> str:
    """Return which devices the user's switches hide, as a sentence after a space; "" where they hide none."""
    if not env.autoload():
        return " TENSORBUS_AUTOLOAD=0 turns the discovery of installed devices off."
    refused = {claim.name: why for claim in claims if (why := refusal(claim)) is not None}
    if not refused:
        return ""
    reasons = "; ".join(f"{name}, as {why}" for name, why in sorted(refused.items()))
    return f" Installed, but not to be used: {reasons}."


def unknown(
    device_type: str, installed: Iterable[str], claims: Iterable[EntryPoint] = ()
) -> DeviceUnavailableError:
    """Return the error for a device type that nothing installed supplies; ``claims`` are of all devices."""
    known = sorted(installed)
    off = hidden(claims)
    have = "" if off else " No device is installed."
    if known:
        have = f" Installed device types: {', '.join(known)}."
    help = "" if device_type.lower() in map(str.lower, known) else f" {_supplier(device_type)}"
    return DeviceUnavailableError(
        f"no installed package supplies the device type {device_type!r}.{have}{off}"
        f"{suggest(device_type, known)}{help}"
    )


def _supplier(device_type: str) -> str:
    extras: list[str] = []
    package = f"tensorbus-{normalized(device_type)}"
    metadata = metadata_of("tensorbus")  # "" where only tensorbus-core and some devices are installed
    for line in metadata.splitlines():
        field, _, value = line.partition(":")
        requirement, _, condition = value.partition(";")
        if field == "Provides-Extra" and value.strip() == device_type:
            extras.insert(0, value.strip())
        elif field == "Requires-Dist" and "extra" in condition and _is_for(requirement, package):
            extras.append(condition.rpartition("==")[2].strip(" '\")"))
        elif not line:
            break
    if extras:
        commands = [f"`pip install 'tensorbus[{extra}]'`" for extra in dict.fromkeys(extras)]
        return f"To install it: {' or '.join(commands)}."
    whose = "tensorbus itself has no such device. A third party's" if metadata else "A package that has it"
    return (
        f"{whose} would by convention be called {package}: `pip install {package}`,"
        " if there is one that you trust."
    )


def _is_for(requirement: str, package: str) -> bool:
    name = requirement.strip()
    end = next((k for k, letter in enumerate(name) if not (letter.isalnum() or letter in "-_.")), len(name))
    return normalized(name[:end]) == package
