"""Libraries that are cut short are refused before the loader reads what is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tensorbus.system.shared_library import check_complete, load_library


@pytest.mark.skipif(sys.platform != "linux", reason="ELF is Linux's")
def test_a_library_that_is_cut_short_is_refused() -> None:
    loaded = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if ".so" in line]
    whole = Path(loaded[0]).read_bytes()
    check_complete(whole)
    for length in (4, 50, 100, 3000):  # half of one with much to debug it by may be all that is loaded
        with pytest.raises(OSError, match=f"cut short after {length} bytes"):
            check_complete(whole[:length])
        with pytest.raises(OSError, match="cut short"):
            load_library("half.so", whole[:length])


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("bits", [32, 64])
def test_segments_are_found_in_each_form_of_elf(bits: int, order: str) -> None:
    word, head, entry = (8, 64, 56) if bits == 64 else (4, 52, 32)

    def number(value: int, length: int) -> bytes:
        return value.to_bytes(length, order)

    ident = b"\x7fELF" + bytes([bits // 32, 1 if order == "little" else 2]) + bytes(10)
    binary = bytearray(ident.ljust(head, b"\0") + bytes(entry))
    places = (32, 54) if bits == 64 else (28, 42)
    binary[places[0] : places[0] + word] = number(head, word)
    binary[places[1] : places[1] + 4] = number(entry, 2) + number(1, 2)
    at, size = (head + 8, head + 32) if bits == 64 else (head + 4, head + 16)
    binary[at : at + word], binary[size : size + word] = number(100, word), number(200, word)
    check_complete(bytes(binary).ljust(300, b"\0"))
    with pytest.raises(OSError, match="cut short after 299 bytes"):
        check_complete(bytes(binary).ljust(299, b"\0"))


def test_what_is_no_elf_is_the_loaders_own_affair() -> None:
    for binary in (b"", b"no library", b"\xcf\xfa\xed\xfe"):
        check_complete(binary)
