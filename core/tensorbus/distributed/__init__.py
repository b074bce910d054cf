"""Many devices as one: ranks, groups, collectives on tensors of any device.

Ranks are threads of a process (``run_ranks``) or processes (``init``). What connects them is a plugin, chosen
by the tensors' device. In order: ``records``, ``work``, ``memory_store``,
``file_store``, ``world``, ``store_urls``, ``group``, ``combination``, ``functional``,
``collectives``, ``thread_ranks``, ``launch_environment``, ``launcher``, ``placements``, ``device_mesh``,
``redistribute``, ``layout``, ``explicit_mode``, ``sharding_plan``, ``mesh_mode``, ``dtensor``,
``module_class``, ``gradient_reducer``, ``replicate``.
"""

from ..errors import DistributedError as DistributedError
from ..errors import DistributedTimeoutError as DistributedTimeoutError
from ..plugins import communicators as communicators
from ..plugins import register_communicator as register_communicator
from ..plugins import unregister_communicator as unregister_communicator
from . import functional as functional
from .collectives import ReduceOp as ReduceOp
from .collectives import all_gather as all_gather
from .collectives import all_gather_into_tensor as all_gather_into_tensor
from .collectives import all_gather_object as all_gather_object
from .collectives import all_reduce as all_reduce
from .collectives import all_to_all as all_to_all
from .collectives import all_to_all_single as all_to_all_single
from .collectives import barrier as barrier
from .collectives import broadcast as broadcast
from .collectives import broadcast_object_list as broadcast_object_list
from .collectives import gather as gather
from .collectives import irecv as irecv
from .collectives import isend as isend
from .collectives import recv as recv
from .collectives import reduce as reduce
from .collectives import reduce_scatter as reduce_scatter
from .collectives import reduce_scatter_tensor as reduce_scatter_tensor
from .collectives import scatter as scatter
from .collectives import send as send
from .device_mesh import DeviceMesh as DeviceMesh
from .device_mesh import init_device_mesh as init_device_mesh
from .dtensor import DTensor as DTensor
from .dtensor import distribute_tensor as distribute_tensor
from .dtensor import local_map as local_map
from .explicit_mode import explicit as explicit
from .file_store import FileStore as FileStore
from .group import ProcessGroup as ProcessGroup
from .group import new_group as new_group
from .launch_environment import init as init
from .memory_store import MemoryStore as MemoryStore
from .placements import Partial as Partial
from .placements import Replicate as Replicate
from .placements import Shard as Shard
from .replicate import replicate as replicate
from .store_urls import open_store as open_store
from .thread_ranks import run_ranks as run_ranks
from .work import Work as Work
from .world import get_local_rank as get_local_rank
from .world import get_rank as get_rank
from .world import get_world_size as get_world_size
from .world import is_initialized as is_initialized
from .world import records as records
from .world import shutdown as shutdown
