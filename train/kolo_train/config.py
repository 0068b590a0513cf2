# SPDX-License-Identifier: Apache-2.0
"""What a run is told: the options of the command line as one value, checked."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

WAYS = {
    "single": "one rank: what all others are compared with",
    "dp": "data parallel by hand: one all-reduce for each parameter after backward",
    "ddp": "DistributedDataParallel: all-reduce of buckets during backward",
    "horovod": "Horovod's way: fused all-reduces that the optimizer's step waits for",
    "fsdp": "FSDP2: parameters, gradients and optimizer sharded, layers gathered when needed",
    "zero1": "ZeRO stage 1: ZeroRedundancyOptimizer, the optimizer's state sharded",
    "zero2": "ZeRO stage 2: gradients sharded too, by a reduce-scatter for each layer",
    "zero3": "ZeRO stage 3: FSDP2 with every layer resharded after its forward",
    "hpz": "ZeRO stage 3 that gathers inside each host before backward, see --host-ranks",
    "qwz": "ZeRO stage 3 with INT8 weights between hosts",
    "qgz": "ZeRO stage 3 with INT4 gradients between hosts",
    "zero++": "hpz with both",
    "deepspeed-zero1": "ZeRO stage 1 by DeepSpeed, where it is installed",
    "deepspeed-zero2": "ZeRO stage 2 by DeepSpeed",
    "deepspeed-zero3": "ZeRO stage 3 by DeepSpeed",
    "ep": "experts divided over all ranks, the batch too: for --model moe",
    "ep+dp": "the same in several groups of --expert-ranks, each with all experts",
    "tp": "tensor parallel: each linear layer split over all ranks",
    "pp-gpipe": "pipeline: all forwards of the micro-batches, then all backwards",
    "pp-1f1b": "pipeline: one forward, one backward in turn",
    "pp-interleaved": "pipeline: 1F1B with two stages a rank",
    "pp-pipedream": "pipeline that is never flushed: 1F1B over batches, stashed weights",
    "pp-2bw": "the same over micro-batches, gradients one update old, two versions",
    "3d": "data x pipeline x tensor parallel, see --mesh",
    "ps-sync": "parameter server (rank 0) that waits for every worker",
    "ps-async": "parameter server that applies each gradient as it comes",
    "ps-hybrid": "parameter server that waits for a time, then drops what is late",
    "local-sgd": "local steps, every --local-steps an average of the weights",
}

CODED = ("dp", "ddp", "horovod", "zero1", "zero3", "fsdp", "tp")
"""Ways that take a codec. Others only send and receive, or make subgroups, which have options of their
own, or train on with the weights that were sent (zero2, local-sgd): small updates would be rounded away."""

QUANTIZED = {"qwz": "int8", "qgz": "int4", "zero++": "int8 and int4"}
"""Ways with codecs of their own, between hosts."""

ELASTIC = ("dp", "ddp", "ps-sync", "ps-async", "ps-hybrid")
"""Ways whose ranks have all that a rank needs to go on: the whole model and its optimizer, or a server that
has them."""


class UsageError(ValueError):
    """What was asked for cannot be done; the message says what can."""


@dataclass(frozen=True)
class Config:
    """The options of a run; `--help` tells what each means. Times in ms where the name says so."""

    parallel: str = "ddp"
    backend: str = "kolo"
    codec: str = "none"
    device: str = "cpu"
    model: str = "gpt"
    layers: int = 4
    width: int = 128
    heads: int = 4
    context: int = 64
    experts: int = 8
    top_k: int = 2
    capacity: float = 0
    steps: int = 200
    seconds: float = 0
    batch: int = 32
    lr: float = 1e-3
    optimizer: str = "adamw"
    momentum: float = 0.9
    topk: float = 0
    warmup_steps: int = 50
    accumulate: int = 1
    recompute: bool = False
    precision: str = "fp32"
    loss_scale: float = 2.0**16
    offload: str = "none"
    mesh: tuple[int, int, int] | None = None
    expert_ranks: int = 0
    host_ranks: int = 0
    vertical_sync: bool = False
    local_steps: int = 8
    ps_timeout_ms: float = 50
    straggle_ms: float = 0
    seed: int = 1
    check: bool = False
    elastic: tuple[int, int] | None = None
    checkpoint: Path | None = None
    predict: str = ""

    def validate(self, ranks: int) -> None:
        """Raises UsageError where options do not go together with each other or `ranks` ranks."""
        if self.parallel == "single" and ranks != 1:
            raise UsageError(f"--parallel single takes one rank, not {ranks}: give -n 1")
        if self.has_server and ranks < 2:
            raise UsageError(f"--parallel {self.parallel} takes a server and workers: give -n 2 or more")
        if self.width % self.heads:
            raise UsageError(f"--width {self.width} is not a multiple of --heads {self.heads}")
        if self.parallel.startswith("ep") and self.model != "moe":
            raise UsageError(f"--parallel {self.parallel} divides experts: give --model moe")
        if not 1 <= self.top_k <= self.experts:
            raise UsageError(f"--top-k {self.top_k} is not 1 to --experts {self.experts}")
        if self.compresses and (self.parallel != "ddp" or self.half or self.offload != "none"):
            raise UsageError("compressed gradients (--topk, --optimizer 1bit-...) take --parallel ddp in fp32, --offload none")
        if self.topk and (self.optimizer.startswith("1bit") or not 0 < self.topk <= 1):
            raise UsageError(f"--topk {self.topk}: a part of 0 to 1, with --optimizer adamw or sgd")
        if self.compresses and self.warmup_steps < 1:
            raise UsageError("--warmup-steps: 1 or more")
        self._validate_codec()
        self._validate_elastic()
        self._validate_predict(ranks)
        if self.host_ranks and ranks % self.host_ranks:
            raise UsageError(f"{ranks} ranks are not hosts of --host-ranks {self.host_ranks} each")
        if self.parallel == "tp" and self.heads % ranks:
            raise UsageError(f"--heads {self.heads} cannot be split over {ranks} ranks of tp")
        if self.offload == "host" and self.device == "cpu":
            raise UsageError("--offload host moves from a GPU to host memory; on the CPU, --offload disk")
        if self.offload == "disk" and self.parallel == "local-sgd":
            raise UsageError("--parallel local-sgd averages the masters: --offload disk has them in files")
        if self.check and self.seconds:
            raise UsageError("--check compares a number of steps: give --steps, not --seconds")

    def _validate_elastic(self) -> None:
        """Raises UsageError where a rank that comes could not go on with what another one has."""
        if self.elastic is None:
            if self.checkpoint is not None:
                raise UsageError("--checkpoint is for --elastic: others end with their ranks")
            return
        if self.parallel not in ELASTIC:
            ways = ", ".join(ELASTIC)
            raise UsageError(f"--elastic takes --parallel {ways}, not {self.parallel}: its ranks divide the state")
        if self.has_server and self.elastic[0] < 2:
            raise UsageError(f"--parallel {self.parallel} takes a server and workers: give --elastic 2:N or more")
        if self.backend != "kolo" or self.device != "cpu":
            raise UsageError("--elastic takes --backend kolo and --device cpu")
        if self.precision == "fp16" or self.compresses or self.offload != "none":
            raise UsageError("--elastic takes --precision fp32 or bf16, whole gradients, and no --offload")
        if self.accumulate != 1 or self.check or self.seconds or self.straggle_ms:
            raise UsageError("--elastic divides each step anew: no --accumulate, --check, --seconds, --straggle-ms")

    def _validate_predict(self, ranks: int) -> None:
        """Raises UsageError where no record tells what the ranks wait for."""
        if not self.predict:
            return
        if self.backend != "kolo" or self.device != "cpu" or ranks < 2:
            raise UsageError("--predict takes --backend kolo, --device cpu and two ranks or more")
        if self.elastic or self.has_server or self.codecs != "none":
            raise UsageError("--predict takes ways whose ranks make their steps together, without codecs")

    def _validate_codec(self) -> None:
        """Raises UsageError where a codec would compress nothing."""
        if self.codecs == "none":
            return
        if self.backend != "kolo":
            raise UsageError(f"codec {self.codecs} takes --backend kolo: {self.backend} has no codecs")
        if self.device != "cpu":
            raise UsageError(f"codec {self.codecs} takes --device cpu")
        if self.codec == "none":
            return
        if self.parallel not in CODED:
            raise UsageError(f"--codec {self.codec} takes --parallel {', '.join(CODED)}, not {self.parallel}")
        if self.half or self.compresses:
            raise UsageError(f"--codec {self.codec} compresses whole gradients in fp32")

    @property
    def codecs(self) -> str:
        """How float32 travels: by --codec, or by the way's own codecs."""
        return QUANTIZED.get(self.parallel, self.codec)

    @property
    def has_server(self) -> bool:
        """A rank keeps the parameters, and the others are its workers."""
        return self.parallel.startswith("ps-")

    @property
    def compresses(self) -> bool:
        """Gradients do not travel whole."""
        return self.topk > 0 or self.optimizer.startswith("1bit")

    @property
    def on_disk(self) -> bool:
        """Parameters and gradients are in files, too: in the ways that let each be on its own."""
        return self.offload == "disk" and self.device == "cpu" and self.parallel in ("single", "zero3", "fsdp")

    @property
    def reads(self) -> bool:
        """The model learns from the novel, not from digits."""
        return self.model in ("gpt", "moe")

    @property
    def half(self) -> bool:
        """Parameters and gradients have 2 bytes, beside float32 masters."""
        return self.precision != "fp32"

    def as_dict(self) -> dict[str, object]:
        """All options, for reports."""
        return asdict(self)
