"""The commands and their options."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..plugins.api_version import API_VERSION
from ..version import __version__
from . import cache as cache_command
from . import conformance as conformance_command
from . import coverage as coverage_command
from . import devices as devices_command
from . import doctor as doctor_command
from .spinner import waiting

app = typer.Typer(
    help="Tensors on any device, whose devices are plugins.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def _print_version(requested: bool) -> None:
    if requested:
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
        rows, problem = devices_command.collect()
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


@app.command()
def coverage(
    device: Annotated[str, typer.Option("--device", help="The device type to look at.")] = "",
    write: Annotated[bool, typer.Option("--write", help=r"Write the \[ops] table of its manifest.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="All devices, by their manifests, as Markdown.")
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown; goes with --all.")] = False,
    reports: Annotated[
        Path | None, typer.Option("--reports", help="With --all: a folder with reports of the kit.")
    ] = None,
    add: Annotated[
        list[Path] | None,
        typer.Option("--add", help="A new report of the kit, to be kept in --reports."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show which ops a device has kernels for, which decompose, and which go through the host.

    `tensorbus coverage --device X` asks what is registered; `--write` puts it into the manifest of X.
    `tensorbus coverage --all --markdown` prints the matrix of all installed devices by their manifests, with
    what the conformance kit found on them, as far as its reports are kept in `--reports`.
    """
    if add and reports is None:
        raise typer.BadParameter("name the folder in which the report is to be kept with --reports.")
    if every or markdown:
        with conformance_command.problems():
            typer.echo(coverage_command.document(reports, add or ()), nl=False)
        return
    if not device:
        raise typer.BadParameter("name a device with --device, or ask for --all.")
    with conformance_command.problems(), waiting(f"Asking {device}"):
        survey = coverage_command.of(device, own=write)
    if write:
        typer.echo(f"wrote {coverage_command.write(survey)}")
    elif as_json:
        typer.echo(json.dumps(coverage_command.as_dict(survey), indent=2))
    else:
        Console().print(coverage_command.render(survey))


@app.command()
def conformance(
    device: Annotated[
        list[str] | None, typer.Option("--device", help="The device type to examine; may be repeated.")
    ] = None,
    ops: Annotated[str, typer.Option("--ops", help="Only these ops, by commas.")] = "",
    dtypes: Annotated[str, typer.Option("--dtypes", help="Only these dtypes, by commas.")] = "",
    checks: Annotated[str, typer.Option("--checks", help="Only these checks, or programs, by commas.")] = "",
    report: Annotated[Path | None, typer.Option("--report", help="Write the report as JSON.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One dtype of each kind, fewer checks.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-n", help="Processes; 0: one for each processor.")] = 1,
    shard: Annotated[str, typer.Option(help="Only one of several parts of the ops, such as 1/2.")] = "",
    in_process: Annotated[
        bool, typer.Option("--in-process", help="Run here, where a crash ends the run: for debuggers.")
    ] = False,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            help="Seconds for one check of one call (600), or a communicator's calls in one group (120).",
        ),
    ] = None,
    communicator: Annotated[
        str, typer.Option("--communicator", help="Examine what connects ranks instead, on these devices.")
    ] = "",
    ranks: Annotated[int, typer.Option("--ranks", help="How many ranks a communicator connects.")] = 4,
    launch: Annotated[
        str, typer.Option("--launch", help="What starts its ranks, such as 'mpiexec -n {ranks}'.")
    ] = "",
) -> None:
    """Hold a device to what every op means, and print a report of op x dtype.

    With --communicator: hold what connects ranks to what every collective means, and to its faults.

    The exit code is 1 where anything was found, 2 where the kit is not installed or the question is wrong.
    """
    if not communicator and not device:
        raise typer.BadParameter("name a device with --device, or a communicator with --communicator.")
    with conformance_command.problems():
        if communicator:
            code = conformance_command.run_communicator(
                communicator, device or (), dtypes, ranks, launch, report, quick, checks, time_limit
            )
            raise typer.Exit(code)
        code = conformance_command.run(
            device or (), ops, dtypes, checks, report, quick, jobs, shard, in_process, time_limit
        )
    raise typer.Exit(code)


cache = typer.Typer(help="Compiled code that is kept on disk.", no_args_is_help=True)
app.add_typer(cache, name="cache")


@cache.command()
def info(as_json: AsJson = False) -> None:
    """Show where compiled code is kept, and how much of it there is, by device and kind."""
    if as_json:
        typer.echo(json.dumps(cache_command.as_dict(), indent=2))
    else:
        cache_command.render(Console())


@cache.command()
def clear(
    device: Annotated[str, typer.Option("--device", help="Only what this device type keeps.")] = "",
) -> None:
    """Remove compiled code from the disk. Programs that run go on; what is needed again is compiled again."""
    typer.echo(cache_command.clear(device or None))


def main() -> None:
    """Run the command line."""
    app()


@app.command()
def plan(
    model: Annotated[
        str, typer.Option(help="gpt2, llama-8b, llama-70b, or module:function, which returns a module and"
                               " the arguments of its forward.")
    ],
    mesh: Annotated[
        str, typer.Option(help="The ranks: ddp copies, dp divides parameters, tp splits layers; dp=64,tp=8.")
    ],
    batch: Annotated[int, typer.Option(min=1, help="Sequences in a step, of each group of tp.")] = 1,
    sequence: Annotated[int | None, typer.Option(min=1, help="Tokens in a sequence.")] = None,
    layers: Annotated[int | None, typer.Option(min=1, help="Blocks.")] = None,
    width: Annotated[int | None, typer.Option(min=1, help="Numbers that stand for a token.")] = None,
    heads: Annotated[int | None, typer.Option(min=1, help="Heads of attention.")] = None,
    kv_heads: Annotated[int | None, typer.Option(min=1, help="Heads of keys and values.")] = None,
    hidden: Annotated[int | None, typer.Option(min=1, help="Width inside of feed-forward layers.")] = None,
    vocabulary: Annotated[int | None, typer.Option(min=1, help="Different tokens.")] = None,
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="Keep the inputs of blocks, and run these again.")
    ] = False,
    compute_dtype: Annotated[str, typer.Option(help="What dp computes in, such as bfloat16.")] = "",
    reduce_dtype: Annotated[str, typer.Option(help="What dp averages gradients in.")] = "",
    optimizer: Annotated[str, typer.Option(help="adamw, sgd or momentum.")] = "adamw",
    rank: Annotated[int, typer.Option(min=0, help="Which rank to be: the first has the largest parts.")] = 0,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Show memory and communication of a training step of one rank of many, without any of them.

    The step runs on tensors without elements, with ranks that are not there: what is printed was measured.
    """
    from . import plan as plan_command

    sizes = {
        "layers": layers, "width": width, "heads": heads, "kv_heads": kv_heads, "hidden": hidden,
        "vocabulary": vocabulary, "sequence": sequence,
    }  # fmt: skip
    with conformance_command.problems():
        result = plan_command.plan(
            plan_command.builder(
                model, batch, checkpoint, {name: n for name, n in sizes.items() if n is not None}
            ),
            plan_command.mesh_of(mesh), rank=rank, optimizer=optimizer,
            compute_dtype=plan_command.dtype_of(compute_dtype),
            reduce_dtype=plan_command.dtype_of(reduce_dtype), progress=waiting,
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(plan_command.as_dict(result), indent=2))
    else:
        plan_command.render(result, Console())


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def run(
    script: Annotated[str, typer.Argument(help="The script, or with -m the module.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="What the script is given.")] = None,
    ranks: Annotated[int, typer.Option("-n", "--ranks", min=1, help="How many ranks to start.")] = 1,
    max_restarts: Annotated[
        int, typer.Option(min=0, help="How many times to start all again when one fails.")
    ] = 0,
    store: Annotated[
        str | None, typer.Option(help="URL of the store where the ranks meet; one of their own by default.")
    ] = None,
    log_dir: Annotated[
        Path | None, typer.Option(help="Folder for what each rank says, which is shown all the same.")
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="Run a module, as python -m does.")] = False,
    launcher: Annotated[
        str, typer.Option(help="What starts the ranks: local, or a plugin's, such as ray.")
    ] = "local",
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="name=value for the launcher; may be repeated.")
    ] = None,
) -> None:
    """Run a program on several ranks: processes that communicate by tensorbus.distributed.

    They are processes of this machine, or of those that a launcher chooses.
    """
    from ..distributed.launch import launcher as launchers
    from ..errors import TensorbusError

    if not module and not Path(script).exists():
        is_python = Path(script).stem.startswith("python")  # as behind mpiexec
        advice = "name the program alone" if is_python else "a module is run by -m"
        typer.echo(f"tensorbus run: there is no script {script!r}; {advice}.", err=True)
        raise typer.Exit(2)
    command = [sys.executable, *(["-m"] if module else []), script, *(arguments or ())]
    pairs = [text.partition("=") for text in option or ()]
    unreadable = [name for name, equals, _ in pairs if not (name and equals)]
    if unreadable:
        raise typer.BadParameter(f"an option of a launcher is name=value, got {unreadable[0]!r}.")
    try:
        code = launchers.run(
            command, ranks, max_restarts=max_restarts, store=store, launcher=launcher,
            options={name: value for name, _, value in pairs}, log_dir=log_dir, progress=waiting,
        )  # fmt: skip
    except TensorbusError as error:
        typer.echo(f"tensorbus run: {str(error).removeprefix('run: ')}", err=True)
        code = 2
    except KeyboardInterrupt:
        typer.echo("tensorbus run: interrupted; the ranks were ended.", err=True)
        code = 130
    raise typer.Exit(code)
