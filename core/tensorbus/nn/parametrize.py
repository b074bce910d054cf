"""Parameters that are computed from others: a weight from its length and direction, say.

As in PyTorch the parameter ``name`` of a module becomes an attribute that is computed whenever it is read, by
the modules in ``module.parametrizations[name]``, from what these keep as ``original``.
"""

from __future__ import annotations

from typing import Any

from ..autograd.engine import no_grad
from ..errors import ArgumentError, ShapeError
from ..tensor.tensor import Tensor
from ..tracing.mutation_counter import bump_mutation_counter
from .module import Module
from .modules.container import ModuleDict, ModuleList
from .parameter import Parameter


class ParametrizationList(ModuleList):
    """The modules that compute one parameter, one after the other, and the parameters they start from."""

    def __init__(self, first: Module, original: Tensor) -> None:
        super().__init__([first])
        with no_grad():
            inner = first.right_inverse(original.detach()) if hasattr(first, "right_inverse") else original
        self.is_tensor = isinstance(inner, Tensor)
        for k, part in enumerate([inner] if self.is_tensor else inner):
            learned = Parameter(part.detach(), original.requires_grad)
            self.register_parameter("original" if self.is_tensor else f"original{k}", learned)

    def forward(self) -> Tensor:
        """Return the parameter, computed."""
        steps = list(self)
        out: Tensor = steps[0](*self.parameters(recurse=False))
        for step in steps[1:]:
            out = step(out)
        return out


def register_parametrization(module: Module, tensor_name: str, parametrization: Module) -> Module:
    """Make ``module.tensor_name`` the result of ``parametrization``; return the module.

    A method ``right_inverse(value)`` of it says what to start from, one tensor or a tuple; without one it is
    the parameter as it was. A second parametrization goes on from the first. Raises ``ArgumentError`` where
    there is no such parameter, ``ShapeError`` where the result has another shape.

    >>> import tensorbus as tb
    >>> class Positive(tb.nn.Module):
    ...     def forward(self, x):
    ...         return tb.exp(x)
    >>> layer = tb.nn.parametrize.register_parametrization(tb.nn.Linear(2, 1), "weight", Positive())
    >>> bool((layer.weight > 0).all()), [name for name, _ in layer.named_parameters()]
    (True, ['bias', 'parametrizations.weight.original'])
    """
    if is_parametrized(module, tensor_name):
        listed: Any = module.parametrizations[tensor_name]
        listed.append(parametrization)
        return module
    original = module._parameters.get(tensor_name)
    if original is None:
        raise ArgumentError(f"{type(module).__name__} has no parameter {tensor_name!r} to parametrize.")
    parametrizations = ParametrizationList(parametrization, original)
    with no_grad():
        shape = parametrizations().shape
    if shape != original.shape:
        raise ShapeError(
            f"a parametrization keeps the shape {original.shape} of {tensor_name!r}; it gives {shape}."
        )
    if "parametrizations" not in module._modules:
        module.__class__ = type(f"Parametrized{type(module).__name__}", (type(module),), {})
        module.parametrizations = ModuleDict()
    del module._parameters[tensor_name]
    bump_mutation_counter()
    module.parametrizations[tensor_name] = parametrizations
    setattr(type(module), tensor_name, property(lambda self: self.parametrizations[tensor_name]()))
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Return whether a parameter of the module, or any, is computed."""
    parametrizations: Any = module._modules.get("parametrizations")
    return parametrizations is not None and (tensor_name is None or tensor_name in parametrizations)


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make the parameter a plain one again, with its value of now; return the module.

    Without ``leave_parametrized`` it gets back the tensor that was computed from, if that is only one. Raises
    ``ArgumentError`` for a parameter that is not computed, or computed from several then.
    """
    if not is_parametrized(module, tensor_name):
        raise ArgumentError(f"{type(module).__name__}: {tensor_name!r} is not parametrized.")
    parametrizations: Any = module.parametrizations[tensor_name]
    if not leave_parametrized and not parametrizations.is_tensor:
        raise ArgumentError(f"{tensor_name!r} is computed from several tensors; leave_parametrized=True.")
    with no_grad():
        value = parametrizations() if leave_parametrized else parametrizations.original
    learned = next(iter(parametrizations.parameters(recurse=False))).requires_grad
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if not len(module.parametrizations):
        del module._modules["parametrizations"]
        bump_mutation_counter()
        module.__class__ = type(module).__bases__[0]
    module.register_parameter(tensor_name, Parameter(value.detach(), learned))
    return module
