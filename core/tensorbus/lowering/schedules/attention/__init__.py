"""Schedules of attention by tiles of scores that never leave a core, forward and backward.

In order: ``tile``, ``score_code``, ``forward``, ``key_parts``, ``gradients``.
"""
