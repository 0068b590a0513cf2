#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The time of a training step in other projects' trainers: over kolo in gloo's place, and over gloo.

usage: frameworks.py [--turns N] [--steps N] [--hidden N] [--layers N] [--packages FOLDER] [TRAINER...]

Two processes of this host train a Llama with random weights: 4 sequences of 32 tokens each a step, in float32.
Nothing but the environment differs (KOLO_TORCH_AS=gloo). The ways take turns; each turn starts new processes.
Shown are the medians over all steps of all turns, in milliseconds, the time over gloo by the time over kolo, and
the loss after the last step, which must be the same.

./setup --frameworks-all installs the trainers, ./test builds kolo_torch in build/torch.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(1, str(ROOT / "tests/frameworks"))
PYTHON = ROOT / ".venv-frameworks/bin/python"
WARM_UP, LIMIT_S = 5, 300
TOKENS, SEQUENCES, VOCABULARY = 32, 4, 512


def llama(config):
    """A Llama with random weights, the same on both ranks."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    hidden = config["hidden"]
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=config["layers"],
        num_attention_heads=hidden // 32, num_key_value_heads=hidden // 64, max_position_embeddings=TOKENS,
        use_cache=False))


def batch(step, rank):
    import torch

    numbers = torch.Generator().manual_seed(100 * step + rank)
    return torch.randint(1, VOCABULARY, (SEQUENCES, TOKENS), generator=numbers)


def timed(steps, rank, step):
    """(milliseconds of each step after the first ones, loss of the last): step(tokens) trains, and returns the loss."""
    times = []
    for number in range(WARM_UP + steps):
        tokens = batch(number, rank)
        begin = time.perf_counter()
        loss = step(tokens)
        times.append(1e3 * (time.perf_counter() - begin))
    return times[WARM_UP:], float(loss)


def optimizer_of(model):
    import torch

    return torch.optim.SGD(model.parameters(), lr=1e-2)


def plain_step(model, optimizer, backward):
    def step(tokens):
        loss = model(input_ids=tokens, labels=tokens).loss
        backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def accelerate(config):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(*(lambda model: (model, optimizer_of(model)))(llama(config)))
    return timed(config["steps"], accelerator.process_index, plain_step(model, optimizer, accelerator.backward))


def transformers_trainer(config):
    import torch.distributed as dist
    from transformers import Trainer, TrainerCallback, TrainingArguments

    times, steps = [], WARM_UP + config["steps"]

    class Clock(TrainerCallback):
        def on_step_begin(self, *_, **__):
            times.append(time.perf_counter())

        def on_step_end(self, *_, **__):
            times[-1] = 1e3 * (time.perf_counter() - times[-1])

    settings = TrainingArguments(
        output_dir=".", use_cpu=True, max_steps=steps, per_device_train_batch_size=SEQUENCES, report_to=[],
        save_strategy="no", logging_strategy="no", disable_tqdm=True, seed=5, optim="sgd")
    rows = [{"input_ids": row, "labels": row} for number in range(2 * steps) for row in batch(number, 0)]
    trainer = Trainer(llama(config), settings, train_dataset=rows, callbacks=[Clock()])
    loss = trainer.train().training_loss
    dist.barrier()
    return times[WARM_UP:], loss


def transformers_split(config):
    """Tensor parallelism by tp_plan: no training, one token after another as in inference."""
    import torch
    import torch.distributed as dist
    from transformers import AutoModelForCausalLM

    dist.init_process_group("cpu:gloo")
    folder = os.path.join(os.environ["SHARED_FOLDER"], "model")
    if dist.get_rank() == 0:
        llama(config).save_pretrained(folder)
    dist.barrier()
    model = AutoModelForCausalLM.from_pretrained(folder, tp_plan="auto")

    def step(tokens):
        with torch.no_grad():
            return model(tokens[:1, :1]).logits.float().sum()

    return timed(config["steps"], 0, step)


def lightning(config):
    from lightning.fabric import Fabric
    from lightning.fabric.plugins.environments import LightningEnvironment
    from lightning.fabric.strategies import DDPStrategy

    fabric = Fabric(accelerator="cpu", devices=2, strategy=DDPStrategy(cluster_environment=LightningEnvironment()))
    fabric.launch()
    model = llama(config)
    model, optimizer = fabric.setup(model, optimizer_of(model))
    return timed(config["steps"], fabric.global_rank, plain_step(model, optimizer, fabric.backward))


def deepspeed(config, stage):
    import deepspeed as ds

    ds.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # compiles for minutes, and serves inference alone
    ds.init_distributed()
    model = llama(config)
    settings = {"train_micro_batch_size_per_gpu": SEQUENCES, "zero_optimization": {"stage": stage},
                "zero_allow_untested_optimizer": True}
    engine, *_ = ds.initialize(model=model, config=settings, model_parameters=model.parameters(),
                               optimizer=optimizer_of(model))

    def step(tokens):
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        return loss.detach()

    return timed(config["steps"], engine.global_rank, step)


def fsdp(config):
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("cpu:gloo")
    model = llama(config)
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    return timed(config["steps"], dist.get_rank(), plain_step(model, optimizer_of(model), lambda loss: loss.backward()))


def ray_train(config):
    """The driver is rank 0; the other process does nothing."""
    if os.environ["RANK"] != "0":
        return [], 0.0
    os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0", RAY_TRAIN_V2_ENABLED="1")
    import ray
    import ray.train
    from ray.train.torch import TorchConfig, TorchTrainer

    folder = os.environ["SHARED_FOLDER"]
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, _temp_dir=folder)
    TorchTrainer(ray_worker, train_loop_config={**config, "folder": folder}, torch_config=TorchConfig(backend="gloo"),
                 scaling_config=ray.train.ScalingConfig(num_workers=2),
                 run_config=ray.train.RunConfig(storage_path=folder, name="run")).fit()
    ray.shutdown()
    return json.loads(pathlib.Path(folder, "told").read_text(encoding="utf-8"))


def ray_worker(config):
    sys.path.insert(0, str(ROOT / "perf/torch"))
    import frameworks
    from ray.train import get_context
    from ray.train.torch import prepare_model

    rank = get_context().get_world_rank()
    model = prepare_model(frameworks.llama(config))
    step = frameworks.plain_step(model, frameworks.optimizer_of(model), lambda loss: loss.backward())
    told = frameworks.timed(config["steps"], rank, step)
    if rank == 0:
        pathlib.Path(config["folder"], "told").write_text(json.dumps(told), encoding="utf-8")


TRAINERS = {
    "Accelerate, DDP": accelerate,
    "transformers, Trainer": transformers_trainer,
    "transformers, tp_plan": transformers_split,
    "Lightning Fabric, DDP": lightning,
    "DeepSpeed, no ZeRO": lambda config: deepspeed(config, 0),
    "DeepSpeed, ZeRO 1": lambda config: deepspeed(config, 1),
    "DeepSpeed, ZeRO 2": lambda config: deepspeed(config, 2),
    "DeepSpeed, ZeRO 3": lambda config: deepspeed(config, 3),
    "PyTorch, FSDP2": fsdp,
    "Ray Train, DDP": ray_train,
}


def turn(way, name, args):
    """(milliseconds of each step on rank 0, its last loss)"""
    import launch

    with tempfile.TemporaryDirectory(prefix="frameworks-") as folder:
        launch.write_metadata(folder)
        master = launch.free_ports(1)[0]
        config = json.dumps({"name": name, "steps": args.steps, "hidden": args.hidden, "layers": args.layers})
        commands = []
        for rank in range(2):
            own = pathlib.Path(folder) / f"rank{rank}"
            own.mkdir()
            env = launch.environment(args.packages, folder, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2",
                                     LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=master,
                                     SHARED_FOLDER=folder, **({"KOLO_TORCH_AS": "gloo"} if way == "kolo" else {}))
            commands.append(([PYTHON, __file__, "--rank", config], env, own))
        ended = launch.run(commands, LIMIT_S)
    lines = [line[len("TOLD "):] for line in ended[0][1].splitlines() if line.startswith("TOLD ")]
    if not lines:
        sys.exit(f"{name} over {way}: no result\n" + "".join(output for _, output in ended)[-4000:])
    return json.loads(lines[0])


def run_rank(text):
    config = json.loads(text)
    result = TRAINERS[config["name"]](config)
    import torch.distributed as dist

    print("TOLD " + json.dumps(result), flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--packages", default=str(ROOT / "build/torch"))
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    parser.add_argument("trainers", nargs="*", metavar="TRAINER", help=", ".join(TRAINERS))
    args = parser.parse_args()
    if args.rank:
        return run_rank(args.rank)
    ratios = []
    print("| trainer | kolo | gloo | gloo / kolo | loss |\n|---|---|---|---|---|")
    for name in args.trainers or TRAINERS:
        times, losses = {"kolo": [], "gloo": []}, set()
        for _ in range(args.turns):
            for way, all_of_way in times.items():
                steps, loss = turn(way, name, args)
                all_of_way += steps
                losses.add(loss)
        kolo, gloo = (statistics.median(each) for each in times.values())
        ratios.append(gloo / kolo)
        print(f"| {name} | {kolo:.2f} | {gloo:.2f} | {gloo / kolo:.2f} | "
              f"{'the same' if len(losses) == 1 else sorted(losses)} |", flush=True)
    print(f"geometric mean {math.exp(statistics.fmean(map(math.log, ratios))):.2f}, least {min(ratios):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
