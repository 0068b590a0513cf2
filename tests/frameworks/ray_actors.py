# SPDX-License-Identifier: Apache-2.0
"""Ray on one host: ray.util.collective by its registry, between two actors. The driver is rank 0 alone."""
import os

os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")

import numpy  # noqa: E402
import ray  # noqa: E402
from ray.util import collective  # noqa: E402
from told import tell  # noqa: E402

SERVED_BY = os.environ["SERVED_BY"]


@ray.remote(num_cpus=0)
class Actor:
    def __init__(self, rank):
        self.rank = rank

    def run(self, backend):
        if backend == "KOLO":
            import kolo.ray

            kolo.ray.register()
        collective.init_collective_group(2, self.rank, backend, "two")
        results = []
        for kind in (numpy.float32, numpy.int64):
            own = numpy.arange(5).astype(kind) + 10 * self.rank
            for call in ("allreduce", "broadcast", "reduce"):
                array = own.copy()
                getattr(collective, call)(array, group_name="two", **({"src_rank": 1} if call == "broadcast" else {}))
                results.append((call, array.tolist() if call != "reduce" or self.rank == 0 else None))
            outs = [numpy.zeros_like(own) for _ in range(2)]
            collective.allgather(outs, own, "two")
            results.append(("allgather", [out.tolist() for out in outs]))
            out = numpy.zeros_like(own)
            collective.reducescatter(out, [own.copy(), own + 1], "two")
            results.append(("reducescatter", out.tolist()))
            message = numpy.zeros_like(own)
            if self.rank == 0:
                collective.send(own, 1, "two")
            else:
                collective.recv(message, 0, "two")
            results.append(("sent", message.tolist()))
        collective.barrier("two")
        collective.destroy_collective_group("two")
        return results


if os.environ["RANK"] == "0":
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, _temp_dir=os.environ["SHARED_FOLDER"])
    actors = [Actor.remote(rank) for rank in range(2)]
    for results in ray.get([actor.run.remote("KOLO" if SERVED_BY == "kolo" else "GLOO") for actor in actors]):
        tell("collectives", results)
    ray.shutdown()
else:
    tell("nothing", "to do")
