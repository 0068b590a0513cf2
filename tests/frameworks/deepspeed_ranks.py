# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed on CPUs: its engine with ZeRO stages 1, 2 and 3 on two processes."""
import deepspeed
import torch
from told import check_served, tell

# Its own operation of shared memory serves inference alone, and is compiled for minutes at the first start.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
deepspeed.init_distributed()
for stage in (1, 2, 3):
    torch.manual_seed(13)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    settings = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": stage}, "bf16": {"enabled": True}}
    engine, *_ = deepspeed.initialize(model=model, config=settings, model_parameters=model.parameters(),
                                      optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2))
    for step in range(4):
        x = torch.randn(4, 16, generator=torch.Generator().manual_seed(10 * step + engine.global_rank))
        loss = torch.nn.functional.mse_loss(engine(x.bfloat16()), x.sum(1, keepdim=True).bfloat16())
        engine.backward(loss)
        engine.step()
        tell(f"stage {stage}", loss)
check_served()
deepspeed.comm.destroy_process_group()
