"""PyTorch's modules, and names in them, that are elsewhere here: errors of an import say where.

``from tensorbus.nn.parallel import DistributedDataParallel`` is what a program from PyTorch tries first.
Python forgets what a module's ``__getattr__`` said when a ``from`` import fails, so it is told by a finder of
modules, which is asked last, when no other has found one.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

from . import torch_names

_PACKAGE: Final = "tensorbus"

MODULES: Final = {
    "autograd.Variable": "a tensor: x.requires_grad_()",
    "cuda": "tensorbus.devices(); Device.synchronize(), memory_stats(); Stream, Event, empty_cache(device)",
    "cuda.amp": "tensorbus.autocast(dtype=tensorbus.bfloat16)",
    "distributed.algorithms.ddp_comm_hooks.powerSGD_hook": "a hook of your own",
    "distributed.algorithms.model_averaging": "tensorbus.distributed.all_reduce(p, 'average')",
    "distributed.checkpoint": "tensorbus.save and tensorbus.load, which take DTensors",
    "distributed.DDP": "tensorbus.distributed.replicate(module)",
    "distributed.elastic": "tensorbus run --max-restarts N",
    "distributed.FSDP": "tensorbus.distributed.fully_shard(module)",
    "distributed.get_model_state_dict": "module.state_dict(), whose DTensors tensorbus.save takes",
    "distributed.get_optimizer_state_dict": "optimizer.state_dict()",
    "distributed.optim": "an optimizer made after tensorbus.distributed.fully_shard(module)",
    "distributed.run": "tensorbus run -n N script.py",
    "distributed.set_model_state_dict": "module.load_state_dict(state), of whole tensors too",
    "distributed.ShardingStrategy": "tensorbus.distributed.fully_shard: a mesh, and reshard_after_forward",
    "distributed.StateDictType": "module.state_dict(): its DTensors have full_tensor() and to_local()",
    "distributed.tensor": "tensorbus.distributed: its names are distributed's own",
    "distributed.tensor.parallel": "tensorbus.distributed: its names are distributed's own",
    "futures": "tensorbus.distributed.Future, as Work.get_future() returns one",
    "fx": "tensorbus.compile, and TENSORBUS_DUMP=folder, which writes a graph",
    "get_rng_state": "tensorbus.random.default_generator.get_state()",
    "multiprocessing": "tensorbus.distributed.run_ranks, or tensorbus run -n N script.py",
    "nn.DataParallel": "tensorbus.distributed.replicate(module), on ranks",
    "nn.modules": "tensorbus.nn: its names are nn's own",
    "nn.parallel": "tensorbus.distributed: replicate(module) is its DistributedDataParallel",
    "nn.parallel.DistributedDataParallel": "tensorbus.distributed.replicate(module)",
    "nn.SyncBatchNorm": "tensorbus.distributed.distribute_module(nn.BatchNorm2d(n), mesh)",
    "profiler": "Python's own profilers, tensorbus.Event for times, TENSORBUS_LOG=dispatch for kernels",
    "set_rng_state": "tensorbus.random.default_generator.set_state(state)",
    "utils": torch_names.EXPRESSIONS["utils"],
    "utils.checkpoint": "tensorbus.checkpoint(function, *args)",
    "utils.data": "Python's own loops over data: tensorbus.stack(samples) is a batch",
    "utils.tensorboard": "tensorboardX or wandb, which take x.item()",
}
"""What stands for a module of PyTorch's, or a name in one, by its path below ``torch``."""

_PUBLIC: Final = (
    "distributed",
    "nn",
    "nn.functional",
    "optim",
    "linalg",
    "special",
    "func",
    "fft",
    "library",
)
"""Modules in which a name is looked for that its own module has not."""


def of_path(path: str) -> str:
    """Return the sentence that says what a path below ``torch`` is here, to follow an error; empty if none.

    >>> of_path("utils.data.DataLoader")
    "; PyTorch's utils.data is here Python's own loops over data: tensorbus.stack(samples) is a batch"
    >>> of_path("nn.Wrong")
    ''
    """
    module, _, name = path.rpartition(".")
    if module.partition(".")[0] == "distributed" and name in torch_names.DISTRIBUTED:
        return torch_names.of_distributed(name)
    if module == "distributions":
        return torch_names.of_distributions(name)
    if not module and path not in MODULES:
        return torch_names.hint(name)
    module = path
    while module and module not in MODULES:
        module = module.rpartition(".")[0]
    return f"; PyTorch's {module} is here {MODULES[module]}" if module else ""


class MissingModules:
    """The last finder of ``sys.meta_path``: it finds nothing, and says what stands for PyTorch's names."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise ``ImportError`` for a name of PyTorch's that stands elsewhere here; otherwise return None."""
        below = name.removeprefix(f"{_PACKAGE}.")
        if below == name or name in sys.modules or _is_there(below):
            return None
        module, _, last = below.rpartition(".")
        hint = "" if below in MODULES else _home(module, last)
        hint = hint or of_path(below)
        if not hint:
            return None
        what = f"module {_PACKAGE}.{module!s} has no {last!r}" if module else f"there is no {name!r}"
        # Without its attribute ``name`` a ``from`` import takes it for an error of its own, which it keeps.
        raise ModuleNotFoundError(f"{what}{hint}")


def _is_there(below: str) -> bool:
    """Return whether there is a module: who looks into one folder alone, as pytest does, asks here too."""
    place = Path(__file__).parent.parent.joinpath(*below.split("."))
    return place.is_dir() or place.with_suffix(".py").exists()


def _home(module: str, name: str) -> str:
    """Return the sentence that names the public module which has a name that ``module`` has not."""
    for public in _PUBLIC:
        home = importlib.import_module(f"{_PACKAGE}.{public}")
        if public != module and not isinstance(getattr(home, name, home), ModuleType):
            return f"; it is {_PACKAGE}.{public}.{name}"
    return ""


def tell_of_missing_modules() -> None:
    """Let failed imports of tensorbus's modules say what stands for a name of PyTorch's."""
    if MissingModules not in sys.meta_path:
        sys.meta_path.append(MissingModules)
