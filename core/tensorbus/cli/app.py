"""The commands and their options."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from ..api_version import API_VERSION
from ..version import __version__
from . import devices as devices_command
from . import doctor as doctor_command
from .waiting import waiting

app = typer.Typer(
    help="Tensors on any device, whose devices are plugins.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tensorbus {__version__} (backend API {API_VERSION})")
        raise typer.Exit


@app.callback()
def tensorbus(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Tensors on any device, whose devices are plugins."""


@app.command()
def devices(as_json: AsJson = False) -> None:
    """List the devices: what is installed, what works here, and which one is the default."""
    with waiting("Opening devices"):
        rows = devices_command.collect()
        problem = devices_command.why_no_default() if rows else None
    if as_json:
        typer.echo(json.dumps([row.as_dict() for row in rows], indent=2))
    else:
        Console().print(devices_command.render(rows))
    if problem is not None:
        # Beside JSON it goes to the error stream, so that the output stays JSON.
        typer.echo(f"The default device cannot be used: {problem}", err=as_json)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Examine every plugin, and run one op on every device.

    The exit code is 1 where a device that should work does not: its package is broken, its result is wrong,
    or it is the default device or named in TENSORBUS_DEFAULT_DEVICE. Hardware that is merely absent is no
    failure.
    """
    with waiting("Examining plugins"):
        diagnosis = doctor_command.examine()
    if as_json:
        typer.echo(json.dumps(diagnosis.as_dict(), indent=2))
    else:
        doctor_command.render(diagnosis, Console())
    raise typer.Exit(0 if diagnosis.healthy else 1)


def main() -> None:
    """Run the command line."""
    app()
