# SPDX-License-Identifier: Apache-2.0
"""Lightning on CPUs: its Trainer with DDP on two processes that a launcher has started."""
import lightning
import torch
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import DDPStrategy
from told import check_served, tell


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))

    def training_step(self, batch, _):
        loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


lightning.seed_everything(11, verbose=False)
x = torch.randn(32, 8)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x[:, :1] ** 2), batch_size=4)
model = Model()
trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy=DDPStrategy(cluster_environment=LightningEnvironment()),
                            max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                            enable_model_summary=False, barebones=False)
trainer.fit(model, data)
tell("loss", trainer.callback_metrics["loss_epoch"])
tell("model", model)
check_served()
torch.distributed.destroy_process_group()
