"""Many devices as one: ranks, groups, collectives on tensors of any device.

Ranks are threads of a process (``run_ranks``) or processes (``init``). What connects them is a plugin, chosen
by the tensors' device. Stages in order: ``process_group``, ``stores``, ``collectives``, ``launch``,
``tensor``, ``parallel``, ``algorithms``.
"""

from typing import Any as _Any

from ..amp.rank_agreement import provide_agreement as _provide_agreement
from ..compat import torch_modules as _torch_modules
from ..errors import DistributedError as DistributedError
from ..errors import DistributedTimeoutError as DistributedTimeoutError
from ..plugins import communicators as communicators
from ..plugins import register_communicator as register_communicator
from ..plugins import unregister_communicator as unregister_communicator
from . import algorithms as algorithms
from .collectives import functional as functional
from .collectives.messages import P2POp as P2POp
from .collectives.messages import batch_isend_irecv as batch_isend_irecv
from .collectives.messages import irecv as irecv
from .collectives.messages import isend as isend
from .collectives.messages import recv as recv
from .collectives.messages import send as send
from .collectives.objects import all_gather_object as all_gather_object
from .collectives.objects import broadcast_object_list as broadcast_object_list
from .collectives.objects import gather_object as gather_object
from .collectives.objects import recv_object_list as recv_object_list
from .collectives.objects import scatter_object_list as scatter_object_list
from .collectives.objects import send_object_list as send_object_list
from .collectives.operations import ReduceOp as ReduceOp
from .collectives.operations import all_gather as all_gather
from .collectives.operations import all_gather_into_tensor as all_gather_into_tensor
from .collectives.operations import all_reduce as all_reduce
from .collectives.operations import all_to_all as all_to_all
from .collectives.operations import all_to_all_single as all_to_all_single
from .collectives.operations import barrier as barrier
from .collectives.operations import broadcast as broadcast
from .collectives.operations import gather as gather
from .collectives.operations import reduce as reduce
from .collectives.operations import reduce_scatter as reduce_scatter
from .collectives.operations import reduce_scatter_tensor as reduce_scatter_tensor
from .collectives.operations import scatter as scatter
from .launch.launch_environment import init as init
from .launch.thread_ranks import run_ranks as run_ranks
from .parallel.divided_module import FullyShardedModule as FullyShardedModule
from .parallel.divided_module import UnshardHandle as UnshardHandle
from .parallel.divided_module import register_fsdp_forward_method as register_fsdp_forward_method
from .parallel.fully_shard import fully_shard as fully_shard
from .parallel.gradient_bucket import GradBucket as GradBucket
from .parallel.parallelize import parallelize_module as parallelize_module
from .parallel.policies import CPUOffloadPolicy as CPUOffloadPolicy
from .parallel.policies import MixedPrecisionPolicy as MixedPrecisionPolicy
from .parallel.policies import OffloadPolicy as OffloadPolicy
from .parallel.rank_agreement import AGREEMENT as _AGREEMENT
from .parallel.replicate import replicate as replicate
from .parallel.styles import ColwiseParallel as ColwiseParallel
from .parallel.styles import ParallelStyle as ParallelStyle
from .parallel.styles import PrepareModuleInput as PrepareModuleInput
from .parallel.styles import PrepareModuleInputOutput as PrepareModuleInputOutput
from .parallel.styles import PrepareModuleOutput as PrepareModuleOutput
from .parallel.styles import RowwiseParallel as RowwiseParallel
from .parallel.styles import SequenceParallel as SequenceParallel
from .parallel.vocabulary_loss import loss_parallel as loss_parallel
from .process_group.future import Future as Future
from .process_group.group import ProcessGroup as ProcessGroup
from .process_group.membership import GroupMember as GroupMember
from .process_group.membership import new_group as new_group
from .process_group.monitored_barrier import monitored_barrier as monitored_barrier
from .process_group.subgroups import get_global_rank as get_global_rank
from .process_group.subgroups import get_group_rank as get_group_rank
from .process_group.subgroups import get_process_group_ranks as get_process_group_ranks
from .process_group.subgroups import new_subgroups as new_subgroups
from .process_group.subgroups import new_subgroups_by_enumeration as new_subgroups_by_enumeration
from .process_group.work import Work as Work
from .process_group.world import get_local_rank as get_local_rank
from .process_group.world import get_rank as get_rank
from .process_group.world import get_world_size as get_world_size
from .process_group.world import is_available as is_available
from .process_group.world import is_initialized as is_initialized
from .process_group.world import records as records
from .process_group.world import shutdown as shutdown
from .stores.file_store import FileStore as FileStore
from .stores.memory_store import MemoryStore as MemoryStore
from .stores.prefix_store import PrefixStore as PrefixStore
from .stores.urls import open_store as open_store
from .tensor.creation import empty as empty
from .tensor.creation import full as full
from .tensor.creation import ones as ones
from .tensor.creation import zeros as zeros
from .tensor.device_mesh import DeviceMesh as DeviceMesh
from .tensor.device_mesh import init_device_mesh as init_device_mesh
from .tensor.distribute_module import distribute_module as distribute_module
from .tensor.dtensor import DTensor as DTensor
from .tensor.dtensor import distribute_tensor as distribute_tensor
from .tensor.explicit_mode import explicit as explicit
from .tensor.implicit_replication import implicit_replication as implicit_replication
from .tensor.local_map import local_map as local_map
from .tensor.placements import Partial as Partial
from .tensor.placements import Replicate as Replicate
from .tensor.placements import Shard as Shard
from .tensor.placements import StridedShard as StridedShard
from .tensor.random import rand as rand
from .tensor.random import randn as randn
from .tensor.sharding_table import visualize_sharding as visualize_sharding

_provide_agreement(_AGREEMENT)


def __getattr__(name: str) -> _Any:
    """Say what stands for a name of ``torch.distributed``."""
    hint = _torch_modules.of_path(f"distributed.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
