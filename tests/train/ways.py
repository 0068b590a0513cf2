# SPDX-License-Identifier: Apache-2.0
"""A rank of the tests of training: every way, one after the other, in one job.

usage: ways.py BACKEND GROUP...   (as a rank; GROUP names functions below)
Rank 0 prints TAP. All ranks make the same runs; a fault of one ends the job.
"""
import functools
import gc
import os
import resource
import sys
import tempfile
import traceback
from importlib.util import find_spec
from pathlib import Path

import torch.distributed as dist

import compression_calls
import experts_calls
import horovod_calls
from delayed import weights_by_delayed_gradients
from kolo_train import check as checks
from kolo_train import communication, disk, timeline
from kolo_train.config import QUANTIZED, WAYS, Config, UsageError
from kolo_train.job import join, leave
from kolo_train.launch import free_port
from kolo_train.memory import formula
from kolo_train.train import run, trained
from tap import check, done

BACKEND, GROUPS = sys.argv[1], sys.argv[2:]
FAILED = 1
DEEPSPEED = [way for way in WAYS if way.startswith("deepspeed-") and find_spec("deepspeed")]
LATE = ("ps-async", "ps-hybrid", "local-sgd", "pp-pipedream", "pp-2bw")
SYNCHRONOUS = [way for way in WAYS if way not in ("single", *QUANTIZED, *LATE)
               and (way in DEEPSPEED or not way.startswith("deepspeed-"))]
TINY = {"backend": BACKEND, "layers": 2, "width": 32, "context": 16, "batch": 24, "steps": 8,
        "optimizer": "sgd", "lr": 0.1, "check": True}
JOB = join(Config(backend=BACKEND))
N = JOB.ranks
WHOLE = bool(os.environ.get("KOLO_TEST_WHOLE"))
checks.trained_alone = functools.lru_cache(4)(checks.trained_alone)  # many ways are held against the same run of one rank


def by_turns(ways, turn=0):
    """Every second of the ways: those that a job of 2 ranks leaves out are a larger job's. A turn has them change places."""
    return ways if WHOLE else ways[(turn + (N > 2)) % 2 :: 2]


def report_of(way, **options):
    """A short run; what it came to, on every rank."""
    own = {"batch": 4 * N} if way.startswith(("pp-", "3d")) else {}
    if way.startswith("ep"):
        own["model"] = "moe"
    if way == "hpz":
        own["host_ranks"] = N // 2  # two hosts
    if way == "pp-interleaved":
        own["layers"] = 2 * N - 2  # beside the first and the last
    return run(Config(**{**TINY, **own, "parallel": way, **options}), JOB, quiet=True)


def tell(ok, name, *details):
    """A result, on rank 0; whether it is good is the same everywhere."""
    if JOB.rank == 0:
        check(ok, name, *details)


def falls(report):
    """The loss of the last quarter of the steps is on average less than that of the first."""
    quarter = max(1, len(report.losses) // 4)
    return sum(report.losses[-quarter:]) < sum(report.losses[:quarter])


def equal(report, name):
    """The weights are those of one rank, and training did something."""
    result = report.check
    tell(result.exact and result.passed and result.moved > 0.1 and falls(report),
         f"{name} on {N} ranks gives the weights of one rank, and its loss falls", result, report.losses)


def synchronous():
    """Plain SGD shows a gradient of the wrong size, which Adam would hide."""
    for way in SYNCHRONOUS:
        equal(report_of(way), way)


def together():
    """The options that change how a gradient is computed, not what it is."""
    for way in by_turns(SYNCHRONOUS):
        accumulate = 3 if not way.startswith(("pp-", "3d")) else N
        batch = {"batch": 12 * N} if way in ("dp", "ep", "ep+dp", "ddp", "horovod", "fsdp", "zero1", "zero2", "zero3", "hpz", *DEEPSPEED) else {}
        if way.startswith("ps-"):
            batch = {"batch": 6 * (N - 1)}
        recompute = way != "deepspeed-zero3"
        equal(report_of(way, accumulate=accumulate, recompute=recompute, **batch),
              f"{way} with gradient accumulation" + " and activation checkpointing" * recompute)


def memory():
    """ZeRO's formulas, on a model so large that a parameter more or less on a rank does not count."""
    for turn, precision in enumerate(("fp32", "bf16")):
        for way in by_turns(("ddp", "horovod", "zero1", "zero2", "zero3", "hpz", "fsdp"), turn):
            report = report_of(way, optimizer="adamw", lr=1e-3, precision=precision, width=64, steps=2, check=False)
            words, wanted = formula(report.config, N)
            got = max(memory.together for memory in report.memory) / report.parameters
            tell(abs(got / wanted - 1) < 0.05, f"{way} in {precision} on {N} ranks takes {words} = {wanted:.2f} bytes a parameter",
                 f"{got:.3f}", *report.memory)


def precisions():
    """2-byte types with float32 masters, and the scale of the loss."""
    for turn, precision in enumerate(("bf16", "fp16")):
        ways = ("ddp", "zero1", "zero2", "zero3", "hpz", "tp", "pp-1f1b", "ps-sync", *(DEEPSPEED if precision == "bf16" else []))
        for way in by_turns(ways, turn):
            equal(report_of(way, precision=precision, loss_scale=256), f"{way} in {precision}")
    for way in by_turns(("ddp", "zero2", "fsdp", "pp-gpipe", "ps-sync"), 1):
        report = report_of(way, precision="fp16", loss_scale=2.0**24, steps=16)
        said = " ".join(report.notes)
        skipped = [int(note.split(", ")[1].split()[0]) for note in report.notes if note.startswith("loss scale")]
        # Parts of a batch overflow before its mean does: not as many steps are skipped as on one rank.
        tell(skipped and 0 < skipped[0] < 16 and report.check.relative < 0.5 and falls(report),
             f"{way} in fp16 skips steps that overflow, halves the scale, and learns", said, report.check)


def offload():
    """Optimizer state in mapped files."""
    before = set(Path(tempfile.gettempdir()).glob("kolo-train-*"))
    for way in by_turns(("ddp", "zero2", "zero3")):
        equal(report_of(way, offload="disk", optimizer="adamw", lr=1e-3), f"{way} with the optimizer's state on disk")
    disk.CHUNK, whole = disk.PAGE_ELEMENTS, disk.CHUNK
    for way in by_turns(("zero2", "zero3")):
        equal(report_of(way, offload="disk", optimizer="adamw", lr=1e-3), f"{way} with that in many chunks")
    disk.CHUNK = whole
    tell(set(Path(tempfile.gettempdir()).glob("kolo-train-*")) <= before, "the files of the state have no name that could stay")


def data_bytes():
    """What RLIMIT_DATA counts of this process."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmData:")) << 10


def limited(allowed, **options):
    """Steps with so many bytes more than there are now; what they came to, or why they failed."""
    gc.collect()
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes() + allowed, hard))
    try:
        return report_of("zero3", optimizer="adamw", lr=1e-3, check=False, **options), None
    except RuntimeError as error:
        return None, str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def beyond_memory():
    """A model whose state is five times the memory it may take; without files it cannot even be made."""
    report_of("zero3", offload="disk", optimizer="adamw")  # what any first run takes: threads, modules
    allowed, model = 64 << 20, {"layers": 28, "width": 256, "batch": N, "steps": 2, "recompute": True}
    report, why = limited(allowed, offload="disk", **model)
    tell(report is not None and 16 * report.parameters > 5 * allowed and report.losses[-1] < report.losses[0],
         f"zero3 on {N} ranks trains on disk what has five times the memory allowed", why, report and report.losses)
    report, why = limited(allowed, **model)
    tell(report is None and "memory" in why, "in memory the same model does not fit", why)


def models():
    """The digits' models."""
    for turn, model in enumerate(("mlp", "cnn")):
        for way in by_turns(("ddp", "fsdp", "tp", "pp-1f1b"), turn):
            equal(report_of(way, model=model, layers=3, lr=0.05, steps=16, batch=96), f"{way} of the {model}")


def meshes():
    """Any factors of the number of ranks."""
    for mesh in ((1, 2, 1), (2, 1, 1), (1, 1, 2)) if N == 2 else ((1, 2, 2), (2, 2, 1), (2, 1, 2), (4, 1, 1)):
        equal(report_of("3d", mesh=mesh), f"3d as a mesh of {mesh}")


def asynchronous():
    """What is not meant to be equal, and is seen not to be."""
    report = report_of("local-sgd", local_steps=1, momentum=0.0)
    equal(report, "local-sgd with an average after each plain step")
    report = report_of("local-sgd", local_steps=4)
    tell(falls(report) and not report.check.exact and report.check.relative > report.check.tolerance,
         f"local-sgd with 4 local steps on {N} ranks learns, and the check sees other weights", report.check)
    report = report_of("ps-async", steps=12, lr=0.03)
    tell(falls(report) and report.check.passed, f"ps-async on {N} ranks learns", report.losses)
    report = report_of("ps-hybrid", steps=12, straggle_ms=60, ps_timeout_ms=10)
    dropped = int(report.notes[-1].split(", ")[-1].split()[0])
    tell(falls(report) and (dropped > 0) == (N > 2),
         f"ps-hybrid on {N} ranks learns, and drops what comes late where there are others", report.notes, report.losses)


def unflushed():
    """Pipelines whose gradients are late, against one process that is as late."""
    stages = range(N)
    for way, options, delays, parts in (
            ("pp-pipedream", {}, [N - 1 - s for s in stages], 1),
            ("pp-pipedream", {"vertical_sync": True}, [N - 1 for _ in stages], 1),
            ("pp-2bw", {"accumulate": N + 1, "recompute": True, "batch": 4 * (N + 1)}, [1 for _ in stages], N + 1)):
        config = Config(**{**TINY, "lr": 0.03, "batch": 8, "steps": 12, "parallel": way, **options})
        report, state = trained(config, JOB, quiet=True)
        want = weights_by_delayed_gradients(config, delays, parts)
        wrong = [name for name in want if JOB.rank == 0 and not (name in state and state[name].equal(want[name]))]
        sync = " with vertical sync" * config.vertical_sync
        tell(not wrong and falls(report),
             f"{way}{sync} on {N} ranks gives the weights of gradients {delays} updates late to the last bit, and learns",
             wrong, report.losses, report.notes)


def seen():
    """Communication, as the profiler sees it."""
    for way, words in (("ddp", {"all_reduce"}), ("zero3", {"all_gather"}), ("pp-gpipe", {"send", "recv"})):
        report = report_of(way, check=False)
        shares = report.communication
        tell(any(word in name for word in words for name in shares) and 0 < shares.get("all", 0) <= 1,
             f"{way}'s communication is seen by collective", shares)
    for way, spans in (("pp-gpipe", 8 * N), ("pp-1f1b", 8 * N), ("pp-interleaved", 16 * N)):  # of 2 steps, 2N micro-batches each
        report = report_of(way, check=False)
        tell([len(window.spans) for window in report.windows] == [spans] * N and 0 < timeline.bubbles(report.windows) < 1,
             f"{way} on {N} ranks tells when each of them computes", report.windows)
    middle = ("pp-gpipe", "pp-1f1b", "pp-interleaved") if N > 2 else ()  # the formula is of a rank between two others
    for way in (*by_turns(("dp", "ddp", "zero1", "zero2", "zero3", "fsdp", "local-sgd", "ps-sync")), *middle):
        report = report_of(way, check=False, width=64, local_steps=3)
        words, wanted = communication.formula(report.config, N, report.parameters)
        tell(abs(report.handed_bytes / wanted - 1) < 0.05, f"{way} on {N} ranks hands {words} to calls a step",
             report.handed_bytes, wanted)


def horovod():
    """The calls of Horovod's interface."""
    calls("horovod", horovod_calls.all_of(BACKEND))


def experts():
    """The layer of --model moe, and ways that leave its experts whole."""
    calls("experts", experts_calls.all_of())
    for way, options in (("ep", {"capacity": 0.8}), ("ep+dp", {"expert_ranks": 1}), ("ddp", {}), ("fsdp", {}), ("tp", {})):
        equal(report_of(way, model="moe", experts=4, **options), f"{way} of the mixture of experts")


def compression():
    """Hooks of DDP, alone and as options of a run."""
    calls("compression", compression_calls.all_of())
    adam = (("AdamW", {"optimizer": "adamw"}), ("1-bit Adam", {"optimizer": "1bit-adam", "warmup_steps": 30}),
            ("the largest 5 %", {"optimizer": "adamw", "topk": 0.05, "warmup_steps": 10}))
    lamb = (("LAMB", {"optimizer": "1bit-lamb", "warmup_steps": 1000}), ("1-bit LAMB", {"optimizer": "1bit-lamb", "warmup_steps": 30}))
    for whole, *others in by_turns((adam, lamb)):
        first, want = ends_of(*whole)
        for name, options in others:
            _, end = ends_of(name, options)
            said = f"{name}: {end:.4f}, {whole[0]}: {want:.4f}, at first {first:.4f}"
            tell(end < 1.1 * want, f"{name} on {N} ranks has the loss of {whole[0]} within 10 %", said)
            if JOB.rank == 0:
                print(f"# {said}")


def ends_of(name, options):
    """The first loss of a run, and the mean of its last ones."""
    losses = report_of("ddp", lr=1e-2 if "LAMB" in name else 3e-3, steps=60, check=False, **options).losses
    return losses[0], sum(losses[-6:]) / 6


def codec():
    """Compressed calls; the losses of the check are those of float32."""
    os.environ["KOLO_CODEC"] = "always"
    for way, name, options in by_turns((("ddp", "ddp with int8", {"codec": "int8"}), *((way, way, {"host_ranks": N // 2}) for way in QUANTIZED))):
        config = Config(**{**TINY, "parallel": way, "steps": 60, "optimizer": "adamw", "lr": 3e-3, **options})
        join_again(config)
        report, state = trained(config, JOB, quiet=True)
        got, want = sum(report.losses[-6:]) / 6, sum(report.check.single_losses[-6:]) / 6
        tell(falls(report) and abs(got / want - 1) < 0.02 and report.check.relative > 1e-4,
             f"{name} on {N} ranks is compressed, and has the loss of float32 within 2 %", got, want, report.check)
        if way == "ddp":  # of the others each weight is on one rank
            others = [None] * N
            dist.all_gather_object(others, state)
            same = all(other[key].equal(state[key]) for other in others for key in state)
            tell(same and len(state) > 0, f"{name} gives {N} ranks the same weights to the last bit", len(state))
    del os.environ["KOLO_CODEC"]
    join_again(Config(backend=BACKEND))


def join_again(config):
    """Leave the job and join another of the same ranks."""
    port = [free_port()]
    dist.broadcast_object_list(port)
    os.environ["MASTER_PORT"] = str(port[0])
    leave()
    join(config)


def calls(of, groups):
    """What every rank says of groups of calls, each (what, what is wrong)."""
    for what, wrong in groups:
        bad = [None] * N
        dist.all_gather_object(bad, wrong)
        tell(not any(bad), f"{of} on {N} ranks: {what}", *bad)


def refused():
    """On every rank, before anything was sent."""
    for options, words in (({"parallel": "ddp", "batch": 2 * N + 1}, "choose a multiple"),
                           ({"parallel": "pp-interleaved", "layers": 1}, "raise --layers"),
                           ({"parallel": "3d", "mesh": (3, 5, 7)}, "is not"),
                           ({"parallel": "single"}, "takes one rank"),
                           ({"parallel": "hpz", "host_ranks": N + 1}, "--host-ranks"),
                           *([] if DEEPSPEED else [({"parallel": "deepspeed-zero2"}, "pip install deepspeed")]),
                           ({"parallel": "ddp", "accumulate": 5}, "equal parts")):
        try:
            report_of(options.pop("parallel"), **options)
            text = "nothing was refused"
        except UsageError as error:
            text = str(error)
        tell(words in text, f"what cannot be done is refused: ... {words} ...", text)


try:
    for name in GROUPS:
        globals()[name]()
except BaseException:
    # The others may wait for this rank: they are ended, not left to a time-out.
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(FAILED)
dist.barrier()
leave()
if JOB.rank == 0:
    done()
