# SPDX-License-Identifier: Apache-2.0
"""transformers: the Trainer on two processes, and a model split by tp_plan, both of a tiny random Llama."""
import os

import torch
import torch.distributed as dist
from told import check_served, tell
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

set_seed(5)
config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, max_position_embeddings=32, pad_token_id=0)
model = LlamaForCausalLM(config)
rows = [{"input_ids": torch.randint(1, 64, (16,))} for _ in range(16)]
rows = [{**row, "labels": row["input_ids"]} for row in rows]
settings = TrainingArguments(output_dir=".", use_cpu=True, max_steps=3, per_device_train_batch_size=2, report_to=[],
                             save_strategy="no", logging_strategy="no", disable_tqdm=True, seed=5)
trainer = Trainer(model, settings, train_dataset=rows, eval_dataset=rows)
tell("loss", trainer.train().training_loss)
tell("evaluation", trainer.evaluate()["eval_loss"])
tell("model", model)
folder = os.path.join(os.environ["SHARED_FOLDER"], "model")
if dist.get_rank() == 0:
    model.save_pretrained(folder)
dist.barrier()
split = AutoModelForCausalLM.from_pretrained(folder, tp_plan="auto")
tell("rows of a matrix", split.model.layers[0].mlp.gate_proj.weight.shape)
with torch.no_grad():
    tell("logits", split(torch.arange(1, 9)[None]).logits)
check_served()
dist.destroy_process_group()
