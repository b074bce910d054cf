"""The orders and reports of the ranks of one launch: data, which travels between processes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..outcome import Finding

SETTING = "setting.json"
"""The file in the folder of a launch that holds its setting."""
CELL_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One launch: which communicator, on which device, what its ranks run, and how long they wait."""

    communicator: str
    device: str
    program: str
    ranks: int
    dtypes: tuple[str, ...] = ()
    quick: bool = False
    timeout: float = 60.0
    threads: bool = False
    cell_seconds: float = CELL_SECONDS
    """How long a rank that is a process may take for the calls of one group, dtype and layout."""

    def __str__(self) -> str:
        return f"{self.communicator}-{self.device}-{self.program}"

    def write(self, folder: Path) -> None:
        """Leave it for the ranks."""
        (folder / SETTING).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Setting:
        """Return what ``write`` left."""
        data = json.loads((folder / SETTING).read_text(encoding="utf-8"))
        return cls(**{**data, "dtypes": tuple(data["dtypes"])})


@dataclass(slots=True)
class Report:
    """The report of one rank: ``digests`` are of results that must be the same bits on several ranks."""

    is_complete: bool = False
    calls: int = 0
    findings: list[Finding] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    """By step of a fault: the class and the text of the error that this rank got, "" where it got none."""

    def write(self, path: Path) -> None:
        """Leave it for the process that started the ranks; a reader sees all of it or nothing."""
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(self)), encoding="utf-8")
        new.replace(path)

    @classmethod
    def read(cls, path: Path) -> Report:
        """Return what ``write`` left."""
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**data, "findings": [Finding(**finding) for finding in data["findings"]]})
