# SPDX-License-Identifier: Apache-2.0
"""LightGBM over kolo.lightgbm and over its own sockets: the models' texts are the same."""
import os
import re

import kolo
import kolo.lightgbm
import lightgbm
import numpy
from told import tell

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
random = numpy.random.default_rng(7)
x = random.normal(size=(1200, 10))
y = x[:, 0] * 2 + numpy.sin(x[:, 1]) + random.normal(size=1200) * 0.1


def train(learner, network):
    mine = slice(rank, None, ranks)
    settings = {"objective": "regression", "num_leaves": 15, "verbosity": -1, "tree_learner": learner, "seed": 1,
                "num_threads": 1, "force_col_wise": True}
    data = lightgbm.Dataset(x[mine], y[mine], params={**settings, **network})
    return lightgbm.train({**settings, **network}, data, num_boost_round=5).model_to_string()


def trees(text):
    """A model without the parameters that say where the network is."""
    return re.sub(r"\[(machines|local_listen_port|num_machines|time_out|machine_list_filename): .*\]\n", "", text)


if os.environ["SERVED_BY"] == "kolo":
    comm = kolo.Comm()
    network = kolo.lightgbm.attach(comm)
    texts = [train(learner, network) for learner in ("data", "voting")]
    kolo.lightgbm.detach()
    comm.close()
else:
    ports = os.environ["FREE_PORTS"].split(",")
    texts = []
    for learner in ("data", "voting"):  # a port that was used is not free at once
        used, ports = ports[:ranks], ports[ranks:]
        texts.append(train(learner, {"machines": ",".join(f"127.0.0.1:{port}" for port in used),
                                     "local_listen_port": int(used[rank]), "num_machines": ranks,
                                     "pre_partition": True, "time_out": 1}))
for text in texts:
    tell("model", trees(text).replace("\n", " | "))
