# SPDX-License-Identifier: Apache-2.0
"""The ways of training by the names of --parallel; a module is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

from kolo_train.config import Config
from kolo_train.job import Job
from kolo_train.ways.base import Way

MODULES = {
    "single": ("base", "Way"),
    "dp": ("dp", "DataParallel"),
    "ddp": ("ddp", "BucketedDataParallel"),
    "horovod": ("horovod", "Horovod"),
    "fsdp": ("fsdp", "FullyShardedDataParallel"),
    "zero1": ("zero1", "ZeroStage1"),
    "zero2": ("zero2", "ZeroStage2"),
    "zero3": ("fsdp", "ZeroStage3"),
    "hpz": ("zero_plus_plus", "HierarchicalPartition"),
    "qwz": ("zero_plus_plus", "QuantizedWeights"),
    "qgz": ("zero_plus_plus", "QuantizedGradients"),
    "zero++": ("zero_plus_plus", "ZeroPlusPlus"),
    "deepspeed-zero1": ("deepspeed_zero", "DeepSpeed"),
    "deepspeed-zero2": ("deepspeed_zero", "DeepSpeed"),
    "deepspeed-zero3": ("deepspeed_zero", "DeepSpeed"),
    "ep": ("ep", "ExpertParallel"),
    "ep+dp": ("ep", "ExpertParallel"),
    "tp": ("tp", "TensorParallel"),
    "pp-gpipe": ("pp", "Pipeline"),
    "pp-1f1b": ("pp", "Pipeline"),
    "pp-interleaved": ("pp", "Pipeline"),
    "pp-pipedream": ("pipedream", "PipeDream"),
    "pp-2bw": ("pipedream", "PipeDream"),
    "3d": ("three_d", "ThreeDimensional"),
    "ps-sync": ("parameter_server", "ParameterServer"),
    "ps-async": ("parameter_server", "ParameterServer"),
    "ps-hybrid": ("parameter_server", "ParameterServer"),
    "local-sgd": ("local_sgd", "LocalSgd"),
}


def make_way(config: Config, job: Job) -> Way:
    """The way of training that --parallel names, set up on this rank. All ranks call this together."""
    module, name = MODULES[config.parallel]
    way: type[Way] = getattr(import_module(f"kolo_train.ways.{module}"), name)
    return way(config, job)
