# SPDX-License-Identifier: Apache-2.0
"""Ray Train on one host: a TorchTrainer of two workers. The driver is rank 0 alone."""
import os

os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0", RAY_TRAIN_V2_ENABLED="1")

import ray  # noqa: E402
import ray.train  # noqa: E402
from ray.train.torch import TorchConfig, TorchTrainer  # noqa: E402
from told import check_served, tell  # noqa: E402


def train(config):
    """A worker's loop. It leaves its results in a file: Ray does not hand on what workers print."""
    import torch
    from ray.train import get_context
    from ray.train.torch import prepare_model

    torch.manual_seed(3)
    rank = get_context().get_world_rank()
    model = prepare_model(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        inputs = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + rank))
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.distributed.all_reduce(loss.detach_())
    check_served()
    with open(os.path.join(config["folder"], f"worker{rank}-{config['backend']}"), "w", encoding="utf-8") as file:
        file.write(f"{[p.tolist() for p in model.parameters()]} {loss.item()!r}")


if os.environ["RANK"] == "0":
    folder, backend = os.environ["SHARED_FOLDER"], os.environ["SERVED_BY"]
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, _temp_dir=folder)
    TorchTrainer(train, train_loop_config={"folder": folder, "backend": backend},
                 torch_config=TorchConfig(backend=backend),
                 scaling_config=ray.train.ScalingConfig(num_workers=2),
                 run_config=ray.train.RunConfig(storage_path=folder, name="run")).fit()
    ray.shutdown()
    for worker in range(2):
        with open(os.path.join(folder, f"worker{worker}-{backend}"), encoding="utf-8") as file:
            tell(f"worker {worker}", file.read())
else:
    tell("nothing", "to do")
