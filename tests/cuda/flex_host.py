"""Kernels of attention on tensor cores as a host's compiler takes them: instructions become functions."""

from __future__ import annotations

import re
from pathlib import Path

from tensorbus_cuda.attention import flex_kernels

_HERE = Path(__file__).parent
_INSTRUCTIONS = ("shared_address", "copy16", "copy4", "commit", "arrived", "exp2", "pair", "to_float")
"""The functions of ``flex_tiles.cuh`` that are written in PTX: ``flex_host.h`` has them."""


def on_host(source: str) -> str:
    """Return the source of a kernel, with the products of either kind by plain loops."""
    products = (_HERE / "flex_host_products.h").read_text()
    for name in ("flex_mma.cuh", "flex_wgmma.cuh"):
        source = source.replace(flex_kernels.template(name), products)
    before, widths, after = source.partition("template <int N> struct tb_wgmma;")
    source = before + (after[after.index(products) :] if widths else "")
    tiles = plain = flex_kernels.template("flex_tiles.cuh")
    for name in _INSTRUCTIONS:
        plain = _without(plain, f"tb_{name}")
    source = source.replace(tiles, f'#include "{_HERE / "flex_host.h"}"\n{plain}')
    source = source.replace(
        "extern __shared__ uint4 tb_memory[];", "uint4 *const tb_memory = (uint4 *)tb_of_block;"
    )
    return source.replace("__forceinline__", "inline").replace("__host__ ", "")


def _without(text: str, name: str) -> str:
    """Return a text without one of its functions."""
    begin = re.search(rf"(?m)^static __device__ __forceinline__ [\w ]+ {name}\(", text)
    assert begin is not None, name
    end = text.index("{", begin.start())
    depth = 1
    while depth:
        end += 1
        depth += (text[end] == "{") - (text[end] == "}")
    return text[: begin.start()] + text[end + 1 :]
