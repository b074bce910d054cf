"""The process of a rank that runs a function: ``python -m tensorbus_ray.function_rank FOLDER``.

The function lies in the folder, and what it returns or raises is written there. Both are pickles, which come
from the process that started the ranks and go back to it.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

from .rank_actor import FUNCTION, OUTCOME, PATHS


def main(folder: Path) -> int:
    """Run the function; return the exit code."""
    known = set(sys.path)
    sys.path += [
        path for path in (folder / PATHS).read_text(encoding="utf-8").split("\n") if path not in known
    ]
    import tensorbus
    from ray import cloudpickle

    try:
        function, arguments, settings = cloudpickle.loads((folder / FUNCTION).read_bytes())
        tensorbus.distributed.init(**settings)
        value = function(*arguments)
        outcome = _pickled(cloudpickle, value)
        tensorbus.distributed.shutdown()
    except BaseException as error:  # raised where the ranks were started
        text = traceback.format_exc()
        name = f"{type(error).__module__}.".removeprefix("builtins.") + type(error).__qualname__
        print(f"{name}: {error}", file=sys.stderr)
        (folder / OUTCOME).write_bytes(cloudpickle.dumps(("error", _portable(cloudpickle, error), text)))
        return 1
    (folder / OUTCOME).write_bytes(outcome)
    return 0


def _pickled(cloudpickle: Any, value: object) -> bytes:
    try:
        outcome: bytes = cloudpickle.dumps(("value", value, ""))
    except Exception as error:
        from tensorbus.errors import DistributedError

        raise DistributedError(
            f"run_ranks: the function returned {type(value).__qualname__!r}, which cannot be pickled:"
            f" {error}. Return arrays, numbers, or containers of them."
        ) from error
    return outcome


def _portable(cloudpickle: Any, error: BaseException) -> BaseException:
    """Return an exception that can be pickled: this one, or one that says the same."""
    try:
        error.__cause__ = error.__context__ = None  # whose text is in the traceback
        cloudpickle.loads(cloudpickle.dumps(error.with_traceback(None)))
    except Exception:
        from tensorbus.errors import DistributedError

        return DistributedError(f"{type(error).__qualname__}: {error}")
    return error


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
