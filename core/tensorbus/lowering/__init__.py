"""From a graph to source in the language of a device.

A graph and a target come in; a program of launches with their source leaves. Stages in order: ``passes``,
``fusion``, ``schedules``, ``ir``, ``program``, ``codegen``. In order: ``target``, ``heuristics``,
``op_sets``, ``library``.
"""
