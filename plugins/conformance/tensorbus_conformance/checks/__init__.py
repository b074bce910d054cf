"""The checks: each takes trials of one op in one dtype on one device and yields what is wrong."""

from __future__ import annotations
