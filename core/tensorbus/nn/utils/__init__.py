"""The functions of PyTorch's ``nn.utils``: parameters as a vector or passed in, padding.

In order: ``parameter_vector``, ``stateless``, ``rnn``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from .. import parametrizations as parametrizations
from .. import parametrize as parametrize
from . import rnn as rnn
from .parameter_vector import parameters_to_vector as parameters_to_vector
from .parameter_vector import vector_to_parameters as vector_to_parameters
from .stateless import functional_call as functional_call

if TYPE_CHECKING:
    from ...optim import clip_grad_norm_ as clip_grad_norm_
    from ...optim import clip_grad_value_ as clip_grad_value_

_OF_OPTIM: Final = ("clip_grad_norm_", "clip_grad_value_")


def __getattr__(name: str) -> Any:
    """Return what optimizers have too; layers do not know them otherwise."""
    if name not in _OF_OPTIM:
        newer = f"tensorbus.nn.parametrizations.{name}"
        hint = f"; PyTorch's {name} is here {newer}" if hasattr(parametrizations, name) else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    return getattr(importlib.import_module("tensorbus.optim"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_OF_OPTIM})
