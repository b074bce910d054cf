"""``own_gpu.py GPUS COMMAND...`` runs a command as the rank that its variables name, with one GPU to see.

Where there are fewer GPUs than ranks all share the first one. NCCL refuses that to ranks of one machine, and
takes ranks whose ``NCCL_HOSTID`` differs for ranks of several: they exchange bytes by sockets.
"""

import os
import sys

rank, size = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
if int(sys.argv[1]) >= size:
    os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)
else:
    os.environ |= {"NCCL_HOSTID": f"rank{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
os.execvp(sys.argv[2], sys.argv[2:])
