"""``tensorbus cache``: what compiled code is kept on disk, and how to be rid of it."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from ..system import disk_cache
from ..system.cache_key import key_path
from ..system.env import cache_dir


def as_dict() -> dict[str, object]:
    """Return the place and what it holds in a form for JSON; sizes are in bytes."""
    folder = cache_dir()
    return {
        "folder": None if folder is None else str(folder),
        "key": None if (key := key_path()) is None else str(key),
        "kinds": [asdict(kind) for kind in disk_cache.kinds()],
        "skipped": [{"folder": left_out, "reason": why} for left_out, why in disk_cache.skipped()],
    }


def render(console: Console) -> None:
    """Print the place, a table of what it holds, and which folders there are not used."""
    folder = cache_dir()
    if folder is None:
        why = "There is no home folder to keep compiled code in; TENSORBUS_CACHE_DIR names a place."
        console.print(why, soft_wrap=True)
        return
    console.print(f"Compiled code is kept in {folder} (TENSORBUS_CACHE_DIR changes that).", soft_wrap=True)
    if (key := key_path()) is not None:
        console.print(f"Its key is {key}.", soft_wrap=True)
    for left_out, why in disk_cache.skipped():
        console.print(f"Left out: {left_out} {why}.", soft_wrap=True)
    kinds = disk_cache.kinds()
    if not kinds:
        console.print("It holds nothing.")
        return
    table = Table("device", "kind")
    for heading in ("files", "size"):
        table.add_column(heading, justify="right")
    for kind in kinds:
        table.add_row(kind.owner, kind.name, f"{kind.files:,}", decimal(kind.nbytes))
    table.add_section()
    total = sum(kind.nbytes for kind in kinds)
    table.add_row("all", "", f"{sum(kind.files for kind in kinds):,}", decimal(total))
    console.print(table)


def clear(device: str | None) -> str:
    """Remove what all devices keep, or one; return what to say about it."""
    whose = f"{device}'s compiled code" if device else "all compiled code"
    where = cache_dir() or "no folder"
    return f"removed {whose} from {where}: {decimal(disk_cache.clear(device))}"
