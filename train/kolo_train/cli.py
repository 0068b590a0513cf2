# SPDX-License-Identifier: Apache-2.0
"""The command line: options to a Config, ranks started, the report printed."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kolo_train.config import WAYS, Config, UsageError
from kolo_train.launch import is_rank, start_elastic, start_ranks

EXAMPLES = """
examples:
  python -m kolo_train --parallel ddp                      two ranks, a GPT that learns Jane Austen
  python -m kolo_train --parallel zero3 -n 4 --precision bf16 --check
  python -m kolo_train --parallel ps-async -n 4 --model cnn --straggle-ms 20 --plot curves.png
  python -m kolo_train --compare all -n 4 --plot ways.png
  torchrun --nproc-per-node 4 -m kolo_train --parallel tp  ranks that something else starts
  kolo run -n 4 python -m kolo_train --parallel fsdp
"""


def make_parser() -> argparse.ArgumentParser:
    """Every option. Config has the defaults of model and training."""
    ways = "\n".join(f"  {name:<16}{text}" for name, text in WAYS.items())
    parser = argparse.ArgumentParser(
        prog="python -m kolo_train",
        description="Train a small model on several ranks. --parallel selects the parallelism:\n" + ways,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    job = parser.add_argument_group("the job")
    _offer(job, "--parallel", "kind of parallelism, see above", choices=WAYS, metavar="WAY")
    beside = "run these ways one after the other: all, or names with commas; a table, and --plot draws all of them"
    job.add_argument("--compare", metavar="WAYS", help=beside)
    job.add_argument("-n", "--ranks", type=_positive, help="ranks to start on this machine (2; 1 for single)")
    elastic = "go on without ranks that die, and take others in; for dp, ddp (kolo run or torchrun) and ps-... (kolo run)"
    job.add_argument("--elastic", type=_range, metavar="MIN:MAX", help=elastic)
    checkpoint = "for elastic: keep the state there each second, and go on from it if no rank is left"
    job.add_argument("--checkpoint", type=Path, metavar="FILE", help=checkpoint)
    _offer(job, "--backend", choices=("kolo", "gloo", "nccl"))
    codec = "for kolo: how float32 travels in all-reduces, all-gathers and reduce-scatters, where that is faster"
    _offer(job, "--codec", codec, choices=("none", "int8", "int4", "fp8", "bf16"))
    job.add_argument("--device", choices=("cpu", "cuda"), help="device of the tensors (cuda with nccl, else cpu)")
    job.add_argument("--mesh", type=_mesh, metavar="D,P,T", help="for 3d: ranks along data, pipeline and tensor")
    _offer(job, "--expert-ranks", "for ep+dp: ranks that share the experts; 0 is half of all", type=int)
    _offer(job, "--host-ranks", "for hpz, qwz, qgz and zero++: ranks of a host; 0: as the launcher says, or all", type=int)
    sync = "for pp-pipedream: one version of the weights for a batch on all stages"
    job.add_argument("--vertical-sync", action="store_true", help=sync)
    _offer(job, "--local-steps", "for local-sgd: steps between averages", type=_positive)
    _offer(job, "--ps-timeout-ms", "for ps-hybrid: time-out of a step", type=float)
    _offer(job, "--straggle-ms", "delay of the last rank in each step", type=float)
    model = parser.add_argument_group("the model")
    _offer(model, "--model", choices=("mlp", "cnn", "gpt", "moe"))
    _offer(model, "--layers", "number of blocks, convolutions or hidden layers", type=_positive)
    _offer(model, "--width", type=_positive)
    _offer(model, "--heads", "for gpt and moe: attention heads", type=_positive)
    _offer(model, "--context", "for gpt and moe: length of the context in characters", type=_positive)
    _offer(model, "--experts", "for moe: experts of a block", type=_positive)
    _offer(model, "--top-k", "for moe: experts that see a token", type=_positive)
    capacity = "for moe: an expert's tokens of a sample, as a multiple of the mean; the rest is dropped; 0: no limit"
    _offer(model, "--capacity", capacity, type=float)
    train = parser.add_argument_group("the training")
    _offer(train, "--steps", type=_positive)
    _offer(train, "--seconds", "if not 0: train for about this time, not for --steps", type=float)
    _offer(train, "--batch", "samples of one step on all ranks together", type=_positive)
    _offer(train, "--lr", "learning rate", type=float)
    _offer(train, "--optimizer", choices=("adamw", "sgd", "1bit-adam", "1bit-lamb"))
    _offer(train, "--momentum", "for sgd", type=float)
    _offer(train, "--topk", "for ddp: part of the gradients' elements that travels; 0: all", type=float)
    _offer(train, "--warmup-steps", "for --topk and 1bit-...: steps whose gradients travel whole", type=_positive)
    _offer(train, "--accumulate", "number of micro-batches of a rank's batch", type=_positive)
    train.add_argument(
        "--recompute",
        action="store_true",
        help="activation checkpointing: recompute activations in the backward pass",
    )
    precision = "type of parameters and gradients; bf16 and fp16 keep float32 masters"
    _offer(train, "--precision", precision, choices=("fp32", "bf16", "fp16"))
    _offer(train, "--loss-scale", "for fp16: initial loss scale", type=float)
    offload = "place of the optimizer's state: beside the parameters, in host memory, in mapped files"
    _offer(train, "--offload", offload, choices=("none", "host", "disk"))
    _offer(train, "--seed", type=int)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--check",
        action="store_true",
        help="compare the weights with a run of one rank on the same batches",
    )
    predict = "predict the time of a step on a machine of kolo sim, of this FILE (this machine), beside the measured one"
    output.add_argument("--predict", nargs="?", const="live", default="", metavar="FILE", help=predict)
    output.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the curves")
    output.add_argument("--json", type=Path, metavar="FILE.json", help="write all figures")
    return parser


def _offer(group: argparse._ArgumentGroup, flag: str, text: str = "", **how: Any) -> None:
    """An option of Config, with its default."""
    default = getattr(Config(), flag.removeprefix("--").replace("-", "_"))
    group.add_argument(flag, default=default, help=f"{text} (%(default)s)".lstrip(), **how)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: 1 or more")
    return value


def _mesh(text: str) -> tuple[int, int, int]:
    sizes = tuple(int(part) for part in text.split(","))
    if len(sizes) != 3 or min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"{text}: three numbers, as in 1,2,2")
    return sizes[0], sizes[1], sizes[2]


def _range(text: str) -> tuple[int, int]:
    least, _, most = text.partition(":")
    if not 1 <= int(least) <= int(most):
        raise argparse.ArgumentTypeError(f"{text}: two numbers of ranks, as in 2:4")
    return int(least), int(most)


def config_of(options: argparse.Namespace) -> Config:
    """The options that say what is trained."""
    names = {item.name for item in dataclasses.fields(Config)}
    values = {name: value for name, value in vars(options).items() if name in names}
    values["device"] = options.device or ("cuda" if options.backend == "nccl" else "cpu")
    return Config(**values)


def main(arguments: Sequence[str] | None = None) -> int:
    """Status 0; 1 where --check found other weights; 2 where the options cannot be followed."""
    options = make_parser().parse_args(arguments)
    config = config_of(options)
    try:
        if is_rank():
            return _train(config, options)
        if options.compare:
            return _compare(config, options, sys.argv[1:] if arguments is None else arguments)
        ranks = options.ranks or (config.elastic[1] if config.elastic else 1 if config.parallel == "single" else 2)
        config.validate(ranks)
        _need(config, options.plot)
        command = _command(sys.argv[1:] if arguments is None else arguments)
        if config.elastic:
            return start_elastic(config.elastic, command)
        return start_ranks(ranks, command)
    except UsageError as error:
        print(f"kolo_train: {error}", file=sys.stderr)
        return 2


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "kolo_train", *arguments]


def _compare(config: Config, options: argparse.Namespace, arguments: Sequence[str]) -> int:
    from kolo_train.beside import beside

    if config.elastic:
        raise UsageError("--compare takes ways whose ranks all live: no --elastic")
    _need(config, options.plot)
    return beside(options.compare, config, options.ranks or 2, _command(arguments), options.plot, options.json)


def _need(config: Config, plot: Path | None) -> None:
    """Find out before ranks start, not after training, that a package or a GPU is missing."""
    from importlib.util import find_spec

    for module, why, needed in (
        ("torch", "trains", True),
        ("sklearn", "has the digits", not config.reads),
        ("matplotlib", "draws --plot", plot is not None),
    ):
        if needed and find_spec(module) is None:
            package = "scikit-learn" if module == "sklearn" else module
            raise UsageError(
                f"Python's {package}, which {why}, is not installed: ./setup --torch, or pip install {package}"
            )
    if config.predict:
        from kolo_train.predict import need_kolo

        need_kolo()
    if config.device == "cuda":
        from kolo_train.job import need_cuda

        need_cuda()


def _train(config: Config, options: argparse.Namespace) -> int:
    """As a rank of the job."""
    if config.elastic:
        from kolo_train.elastic import ServerLost, run_elastic

        try:
            told = run_elastic(config)
        except ServerLost:  # kolo run says why
            return 1
        if told is not None:
            _show(told, options)
        return 0
    from kolo_train.job import join, leave
    from kolo_train.train import run

    job = join(config)
    try:
        report = run(config, job)
        if job.rank == 0:
            _show(report, options)
    finally:
        leave()
    return 0 if report.check is None or report.check.passed else 1


def _show(report, options: argparse.Namespace) -> None:  # type: ignore[no-untyped-def]
    from kolo_train.plot import plot
    from kolo_train.report import summary

    print(summary(report), flush=True)
    if options.json:
        options.json.write_text(json.dumps(report.as_dict(), indent=1, default=str) + "\n", encoding="utf-8")
    if options.plot and not options.compare:
        plot(report, options.plot)
