"""Attention by functions of scores and indices, causal masks by their sizes, and backends to choose from.

With PyTorch's names and meaning. In order: ``bias``, ``sdpa_backends``, ``tiles``, ``packed_rows``,
``score_capture``, ``mask_mods``, ``program_cache``, ``block_mask``, ``mask_creation``, ``flex``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...system.lazy_import import lazy_exports

if TYPE_CHECKING:
    from . import bias as bias
    from .block_mask import BlockMask as BlockMask
    from .flex import flex_attention as flex_attention
    from .mask_creation import create_block_mask as create_block_mask
    from .mask_creation import create_mask as create_mask
    from .mask_mods import and_masks as and_masks
    from .mask_mods import noop_mask as noop_mask
    from .mask_mods import or_masks as or_masks
    from .sdpa_backends import SDPBackend as SDPBackend
    from .sdpa_backends import sdpa_kernel as sdpa_kernel

_PARTS: Final = {
    "block_mask": "BlockMask",
    "mask_creation": "create_block_mask create_mask",
    "flex": "flex_attention",
    "mask_mods": "and_masks noop_mask or_masks",
    "sdpa_backends": "SDPBackend sdpa_kernel",
}
__getattr__, __dir__, __all__ = lazy_exports(__name__, _PARTS, "bias")
