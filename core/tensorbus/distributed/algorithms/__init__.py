"""Additions to ways to train on ranks: uneven numbers of batches, and other ways to average gradients.

In order: ``join``, ``ddp_comm_hooks``.
"""

from .join import Join as Join
from .join import Joinable as Joinable
from .join import JoinHook as JoinHook
