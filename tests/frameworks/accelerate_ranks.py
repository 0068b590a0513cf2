# SPDX-License-Identifier: Apache-2.0
"""Accelerate on CPUs: a training loop of two processes, and its collectives."""
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, set_seed
from told import check_served, tell

set_seed(3)
accelerator = Accelerator(cpu=True)
tell("type", f"{accelerator.distributed_type} {accelerator.num_processes}")
x = torch.randn(32, 16)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
model, optimizer, data = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2), data)
for _ in range(2):
    for inputs, targets in data:
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
tell("losses", accelerator.gather_for_metrics(loss.detach()[None]))
tell("mean", accelerator.reduce(loss.detach(), "mean"))
tell("objects", broadcast_object_list([{"rank": accelerator.process_index}]))
tell("model", accelerator.unwrap_model(model))
accelerator.wait_for_everyone()
check_served()
accelerator.end_training()
