"""Transforms of programs: functions that take a function and return another one."""

from .vectorize import vmap as vmap
