"""Finds words of the project's own where the field has one: ``docs/glossary.md`` says which word to use.

``python scripts/check_words.py`` prints each line with such a word, and exits with 1 where there is one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
WORDS: Final = {
    r"\b(light|solo|thin)[ _]items?\b|\bsolo_\w+|\bsolo\b": "work-item, task",
    r"\bteams?\b|_teams?\b": "workgroup",
    r"\bswaps?[ _]lanes?\b|\bswap_\d": "subgroup shuffle",
    r"\bpackets?\b|_packets?\b": "vector",
    r"\bpulls? (in|into|its)\b|\bpulled (in|into|by)\b|\bPULLED\b|\bPull\b": "inline",
    r"\bpart(ed|ing) (in two|of|by|pass)|\bparting\b": "partition",
    r"\bstrips\b|\bstacks of rows\b|is_stack_of_rows": "column reduction or normalization",
    r"\bwalks? (of|over|along|through) (rows?|columns?|elements|an? )|\bwalked by\b": "loop",
    r"\bendings\b": "last-block epilogue",
    r"\bdrifting\b": "varying",
    r"\bsettles?\b|\bsettled\b|\bsettle[sd]?_\w+": "materialize",
    r"\brecordings?\b(?! (function|history|of a))|\b[Rr]ecorders?\b": "tracer, trace",
    r"\bjoined (function|program|op|call)s?\b|\bjoined\(": "eager fusion",
    r"\bbundles?d?\b": "fused update",
    r"\bbrought (kernel|along)|\bbrought\b": "user kernel, source",
    r"\b(MOST|FEW|LEAST|SHORT|EACH|ALONE)\b": "a name that says what it bounds",
}
"""The words, each with what the field says."""
_SKIPPED: Final = (
    "CHANGELOG.md", "docs/decisions/", "docs/glossary.md", "benchmarks/", "scripts/",
    "tests/core/lowering/test_target.py",
)  # fmt: skip
_FORMER: Final = re.compile(r'^(@former_names\(|    )(\w+="\w+",?\s*)+\)?$')
"""A line of a table of former names, which are still taken."""


def findings() -> list[str]:
    """Return a text for each line that has such a word."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = []
    for name in listed.split():
        if not name.endswith((".py", ".md", ".c")) or name.startswith(_SKIPPED):
            continue
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            if _FORMER.match(line):
                continue
            for pattern, word in WORDS.items():
                match = re.search(pattern, line)
                if match:
                    found.append(f"{name}:{number}: {match[0]!r}; the field says: {word}")
    return found


if __name__ == "__main__":
    lines = findings()
    print(*lines, sep="\n")
    sys.exit(bool(lines))
