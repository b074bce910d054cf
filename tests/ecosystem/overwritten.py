"""What PyTorch's derivatives save, and which writes to it raise: ``python tests/ecosystem/overwritten.py``.

Each of PyTorch's own samples of an operator (``opinfo``) is called in PyTorch and here; then one of the
tensors that it was given, or one of its results, is written over by what it holds, and gradients are taken.
Where PyTorch raises, as it saved that tensor, tensorbus may; where PyTorch does not, tensorbus must not.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any, Final

import tensorbus as tb
import torch

from opinfo import RANDOM, AbsentError, Arguments, function, leaves

THERE, HERE = "modified by an inplace operation", "has overwritten since"
RESULT: Final = "result"


class Pairs(Arguments):
    """Arguments that remember every tensor of both libraries."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[tuple[Any, Any]] = []

    def __call__(self, value: Any) -> Any:
        """Return ``value`` as tensorbus has it."""
        x = super().__call__(value)
        if isinstance(value, torch.Tensor):
            self.tensors.append((value, x))
        return x


def is_told(text: str, write: Callable[[], Any], derive: Callable[[], Any], no_grad: Any) -> bool | None:
    """Return whether gradients after a write are an error with ``text``; None where either is no question."""
    try:
        with no_grad():
            write()
    except Exception:  # a result that shows one element at several places, say
        return None
    try:
        derive()
    except RuntimeError as error:
        return True if text in str(error) else None
    except Exception:
        return None
    return False


def outcomes(op: Any, sample: Any) -> dict[str, tuple[bool, bool]]:
    """Return, for each tensor of a call, whether PyTorch raises where it is written over, and tensorbus."""
    here = Pairs()
    args, options = here((sample.input, *sample.args)), here(sample.kwargs)
    last = sample.output_process_fn_grad or (lambda result: result)

    def there_and_here() -> tuple[list[Any], list[Any]]:
        theirs = [*leaves(last(op(sample.input, *sample.args, **sample.kwargs)))]
        return theirs, [*leaves(last(function(op.name, op.variant_test_name)(*args, **options)))]

    theirs, _ = there_and_here()
    results = [k for k, a in enumerate(theirs) if isinstance(a, torch.Tensor)]
    rows: dict[str, tuple[bool, bool]] = {}
    for what in [*range(len(here.tensors)), *[f"{RESULT} {k}" for k in results]]:
        theirs, ours = there_and_here()
        pairs = [
            (a, b)
            for a, b in zip(theirs, ours, strict=True)
            if isinstance(a, torch.Tensor) and a.requires_grad
        ]
        if not pairs or not here.leaves:
            continue
        if isinstance(what, int):
            target, own = here.tensors[what]
        else:
            target, own = theirs[int(what.split()[1])], ours[int(what.split()[1])]
        if target.numel() == 0 or not isinstance(own, tb.Tensor):
            continue
        # A sum of copies saves nothing of the results, and is not what is written over.
        there = is_told(
            THERE,
            lambda target=target: target.copy_(target.detach().clone()),
            lambda pairs=pairs: torch.autograd.grad(
                [a for a, _ in pairs], [x for x, _ in here.leaves], [torch.ones_like(a) for a, _ in pairs],
                allow_unused=True,
            ),
            torch.no_grad,
        )  # fmt: skip
        ours_raises = is_told(
            HERE,
            lambda own=own: own.copy_(own.detach().clone()),
            lambda pairs=pairs: tb.grad(
                [b for _, b in pairs], [x for _, x in here.leaves], [tb.ones_like(b) for _, b in pairs],
                allow_unused=True,
            ),
            tb.no_grad,
        )  # fmt: skip
        if there is not None and ours_raises is not None:
            rows[what if isinstance(what, str) else f"argument {what}"] = (there, ours_raises)
    return rows


def run(names: list[str], most: int) -> dict[str, dict[str, list[tuple[bool, bool]]]]:
    """Return the outcomes of the samples of operators, by operator and by what was written over."""
    from torch.testing._internal.common_methods_invocations import op_db

    rows: dict[str, dict[str, list[tuple[bool, bool]]]] = {}
    for op in op_db:
        if (names and op.name not in names) or op.name in RANDOM or not op.supports_autograd:
            continue
        if torch.float32 not in op.supported_dtypes("cpu"):
            continue
        try:
            function(op.name, op.variant_test_name)
        except AbsentError:
            continue
        samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=True))
        for sample in samples[:: max(1, len(samples) // most)]:
            try:
                results = outcomes(op, sample)
            except Exception:  # what opinfo tells of
                continue
            for what, outcome in results.items():
                rows.setdefault(op.formatted_name, {}).setdefault(what, []).append(outcome)
    return rows


def main() -> None:
    """Print where both libraries do not raise alike."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="operators; all of them if none is given")
    parser.add_argument("--most", type=int, default=3, help="samples of each operator")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = run(options.names, options.most)
    both = alarms = silent = 0
    for name, outcomes_of in rows.items():
        for what, pairs in outcomes_of.items():
            both += sum(there and ours_raises for there, ours_raises in pairs)
            if any(ours_raises and not there for there, ours_raises in pairs):
                alarms += 1
                print(f"raises here only: {name}, {what}")
            if any(there and not ours_raises for there, ours_raises in pairs):
                silent += 1
                print(f"raises in PyTorch only: {name}, {what}")
    total = sum(len(pairs) for outcomes_of in rows.values() for pairs in outcomes_of.values())
    print(f"{total} writes: {both} raise in both, {alarms} kinds here only, {silent} kinds in PyTorch only")


if __name__ == "__main__":
    main()
