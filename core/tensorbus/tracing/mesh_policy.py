"""Policy of ops on distributed tensors, what they may do by themselves: state of a thread or task.

``distributed.explicit``, ``implicit_replication`` and ``with mesh:`` set it. It lies this low because
programs that were captured under one policy are not those of another: a capture notes the policy that it
finds, and guards on it where an op asked for it.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class MeshPolicy:
    """``refuses``: none communicates by itself. ``replicates``: each rank has an ordinary tensor alike.

    ``mesh`` is that of calls which name none.
    """

    refuses: bool = False
    replicates: bool = False
    mesh: Any = None


class _Consultations(threading.local):
    count = 0


mesh_policy: Final[ContextVar[MeshPolicy]] = ContextVar("tensorbus_mesh_policy", default=MeshPolicy())  # noqa: B039 - frozen
_POLICIES: Final = {
    (refuses, replicates): MeshPolicy(refuses, replicates)
    for refuses in (False, True) for replicates in (False, True)
    if refuses or replicates
} | {(False, False): mesh_policy.get()}  # fmt: skip
"""One object for each, so that guards compare by identity."""
_consultations: Final = _Consultations()


@dataclass(frozen=True, slots=True)
class NotedPolicy:
    """A policy, and how often this thread had asked for it when that was noted."""

    policy: MeshPolicy
    count: int = field(compare=False)

    def was_consulted(self) -> bool:
        """Return whether this thread has asked for the policy since."""
        return _consultations.count != self.count


def noted() -> NotedPolicy:
    """Return the policy in force, without asking for it."""
    return NotedPolicy(mesh_policy.get(), _consultations.count)


def consulted() -> MeshPolicy:
    """Return the policy in force; what depends on it is right for that policy alone."""
    _consultations.count += 1
    return mesh_policy.get()


def enter(
    *, refuses: bool | None = None, replicates: bool | None = None, mesh: Any = None
) -> Token[MeshPolicy]:
    """Change the policy, None: not; return what ``mesh_policy.reset`` takes."""
    here = mesh_policy.get()
    chosen = (
        here.refuses if refuses is None else bool(refuses),
        here.replicates if replicates is None else bool(replicates),
    )
    there = here.mesh if mesh is None else mesh
    if there is None:
        return mesh_policy.set(_POLICIES[chosen])
    return mesh_policy.set(there.policies.setdefault(chosen, MeshPolicy(*chosen, there)))
