"""``python -m tensorbus.cli`` is the same as ``tensorbus``."""

from __future__ import annotations

from .app import main

main()
