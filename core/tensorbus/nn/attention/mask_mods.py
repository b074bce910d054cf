"""Functions that say which scores count, and what combines them."""

from __future__ import annotations

from typing import Any

from ...errors import ArgumentError
from ...ops.elementwise.comparison import greater_equal
from .score_capture import Mod


def noop_mask(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Any:
    """Return True: a ``mask_mod`` by which every score counts."""
    return greater_equal(token_q, token_q)


def and_masks(*mask_mods: Mod) -> Mod:
    """Return a ``mask_mod`` by which those scores count that count by all of ``mask_mods``.

    >>> import tensorbus as tb
    >>> causal = lambda b, h, q, kv: q >= kv
    >>> near = lambda b, h, q, kv: q - kv < 2
    >>> tb.nn.attention.create_mask(tb.nn.attention.and_masks(causal, near), None, None, 3, 3)[0, 0].tolist()
    [[True, False, False], [True, True, False], [False, True, True]]
    """
    _check_functions("and_masks", mask_mods)

    def and_mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        result = noop_mask(b, h, q_idx, kv_idx)
        for mask in mask_mods:
            result = result & mask(b, h, q_idx, kv_idx)
        return result

    return and_mask


def or_masks(*mask_mods: Mod) -> Mod:
    """Return a ``mask_mod`` by which those scores count that count by any of ``mask_mods``.

    >>> import tensorbus as tb
    >>> prefix = lambda b, h, q, kv: kv < 1
    >>> diagonal = lambda b, h, q, kv: q == kv
    >>> mask = tb.nn.attention.or_masks(prefix, diagonal)
    >>> tb.nn.attention.create_mask(mask, None, None, 2, 3)[0, 0].tolist()
    [[True, False, False], [True, True, False]]
    """
    _check_functions("or_masks", mask_mods)

    def or_mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        result = q_idx != q_idx
        for mask in mask_mods:
            result = result | mask(b, h, q_idx, kv_idx)
        return result

    return or_mask


def _check_functions(name: str, mask_mods: tuple[Any, ...]) -> None:
    for mask in mask_mods:
        if not callable(mask):
            raise ArgumentError(
                f"{name}: every mask_mod is a function of (b, h, q_idx, kv_idx), got {mask!r}."
            )
