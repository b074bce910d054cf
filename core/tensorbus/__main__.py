"""``python -m tensorbus`` is the same as ``tensorbus``, for where the script is not on the path."""

from __future__ import annotations

from .cli.app import main

if __name__ == "__main__":
    main()
