# SPDX-License-Identifier: Apache-2.0
"""Process groups under a launcher that does not set RANK and WORLD_SIZE: mpirun, srun."""
import socket

import torch.distributed as dist

from . import _C


def rendezvous(timeout):
    """store, rank and world_size for init_process_group(): rank 0 opens the store, and the ranks
    tell each other of it over a communicator that the launcher's environment describes.

    Raises DistBackendError where the ranks do not come together within `timeout`."""
    stores = []

    def card(rank):
        if rank == 0:
            stores.append(dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False, timeout=timeout))
        return f"{socket.gethostname()} {stores[0].port if stores else 0}"

    rank, cards = _C.meet_at_launch(card, timeout)
    host, port = cards[0].split()
    here = "localhost" if host == cards[rank].split()[0] else host
    store = stores[0] if stores else dist.TCPStore(here, int(port), timeout=timeout)
    return {"store": store, "rank": rank, "world_size": len(cards)}
