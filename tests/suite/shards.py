"""Parts of the suite that separate machines, or separate runs, take: by a hash of each test's name.

A new test falls into a part by itself, and no other test moves. What shares something that is slow to make
(as the wheels of tests/packaging) goes by the name that it has in common.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shard:
    """Part ``number`` of ``count``, from 1 on."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Return what ``3/12`` means. Raises ``ValueError`` for anything else."""
        number, _, count = text.partition("/")
        if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise ValueError(f"{text!r} is no shard: give a number and how many there are, such as 3/12.")
        return cls(int(number), int(count))

    def holds(self, name: str) -> bool:
        """Return whether the test (or group of tests) of this name is in the part."""
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.count == self.number - 1
