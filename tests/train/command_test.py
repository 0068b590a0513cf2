# SPDX-License-Identifier: Apache-2.0
# covers: train
"""`python -m kolo_train` as a user meets it.

usage: command_test.py SOURCE_ROOT KOLO   (the kolo tool)
"""
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from python_of import add_to_path, python_with
from tap import check, done

ROOT, KOLO = Path(sys.argv[1]), sys.argv[2]
PYTHON = python_with(ROOT, "torch", "sklearn", "matplotlib", "kolo_torch")
add_to_path(ROOT)
from kolo_train.launch import start_ranks  # noqa: E402  found by the line above

LIMIT_S = 120
TINY = ["--layers", "2", "--width", "32", "--context", "16", "--batch", "8", "--steps", "10"]


def run(*command):
    """Status, output and errors of a command; an endless one is a failure that says so."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        return ended.returncode, ended.stdout, ended.stderr
    except subprocess.TimeoutExpired:
        return None, "", f"still running after {LIMIT_S} s"


def train(*options):
    """The command with these options."""
    return run(PYTHON, "-m", "kolo_train", *options)


def a_run(folder):
    """All that a run writes."""
    picture, figures = Path(folder) / "curves.png", Path(folder) / "figures.json"
    status, out, err = train("--parallel", "zero1", *TINY, "--check", "--plot", str(picture), "--json", str(figures))
    check(status == 0 and "2 ranks over kolo" in out and "EQUAL" in out and "by the formula 8P + 8P/N" in out,
          "a run says what it trained, on what, and whether it is right", status, out, err)
    check("10/10" in err and "samples/s" in err, "it shows how far it is", err)
    check(picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 10000, "--plot draws a picture")
    told = json.loads(figures.read_text(encoding="utf-8"))
    check(len(told["losses"]) == 10 and told["samples_per_s"] > 0 and len(told["memory"]) == 2
          and {"all_reduce", "broadcast"} <= set(told["communication"]), "--json has the figures", told)
    status, out, err = run(PYTHON, "-m", "kolo_train.compare", str(figures), str(figures))
    check(status == 0 and out.count("zero1 over kolo") == 2 and "1.00 times" in out, "runs are put side by side", out, err)


def a_prediction(folder):
    """A step of this run on another machine, whose network is so slow that the messages alone take a known time."""
    machine, figures = Path(folder) / "machine", Path(folder) / "predicted.json"
    machine.write_text("ranks_per_host 1\nnet_gbs 0.0001\n", encoding="utf-8")
    os.environ["PATH"] = f"{Path(KOLO).parent}{os.pathsep}{os.environ['PATH']}"
    for way in (["ddp"], ["pp-gpipe", "--accumulate", "2"]):
        status, out, err = train("--parallel", *way, *TINY, "--predict", str(machine), "--json", str(figures))
        check(status == 0 and f"ms a step on {machine}; measured here:" in out, f"--predict tells of {way[0]}", status, out,
              err)
        told = json.loads(figures.read_text(encoding="utf-8"))
        # ddp: each rank sends the gradients once; a stage: a batch of activations, 8 samples of 16 by 32
        sent = 4 * told["parameters"] if way == ["ddp"] else 4 * 8 * 16 * 32
        share = told["prediction"]["calls"] / (sent / 1e5)
        check(0.99 < share < 1.2, "calls take what the network needs", told["prediction"], sent)
    status, _, err = train("--parallel", "ddp", "--backend", "gloo", *TINY, "--predict")
    check(status == 2 and "--predict takes --backend kolo" in err, "--predict needs records of kolo", status, err)


def several_ways(folder):
    """--compare: every way's run, a table and a picture of all."""
    picture, figures = Path(folder) / "ways.png", Path(folder) / "ways.json"
    status, out, err = train("--compare", "single,ddp,zero3", *TINY, "--plot", str(picture), "--json", str(figures))
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in out.splitlines() if line.startswith("| ")]
    check(status == 0 and rows[2:] == [["single", "1"], ["ddp", "2"], ["zero3", "2"]],
          "--compare has a row for each way", status, out, err)
    check(" 16P/N = " in out and " P + 2P/N = " in out, "with its memory and communication by formula", out)
    runs = json.loads(figures.read_text(encoding="utf-8"))
    last = [run["losses"][-1] for run in runs]
    check(len(runs) == 3 and max(last) - min(last) < 1e-3, "their losses are those of one model", last)
    check(picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 10000, "and one picture")
    status, out, err = train("--compare", "ddp,nothing", *TINY)
    check(status == 2 and "nothing" in err and "loss" not in out, "a way that does not exist is refused at once", status, out, err)


def other_starters():
    """Ranks that something else starts."""
    words = ["-m", "kolo_train", "--parallel", "ddp", *TINY, "--check"]
    # torchrun would look up the machine's own name, which a bare system may not know.
    torchrun = ["torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2"]
    status, out, err = run(PYTHON, "-m", *torchrun, *words)
    check(status == 0 and "EQUAL" in out and "2 ranks over kolo" in out, "torchrun starts the ranks", status, out, err)
    status, out, err = run(KOLO, "run", "-n", "2", PYTHON, *words)
    check(status == 0 and "EQUAL" in out and "2 ranks over kolo" in out, "kolo run starts the ranks", status, out, err)
    status, out, err = train("--parallel", "single", *TINY, "--seconds", "1")
    check(status == 0 and "1 rank over kolo" in out, "one rank needs nobody, and --seconds ends it", status, out, err)


def refused():
    """What is wrong with the options is said once, before ranks start; there is no GPU to be seen."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    for words, why in ((["--parallel", "single", "-n", "2"], "takes one rank"),
                       (["--parallel", "ps-sync", "-n", "1"], "a server and workers"),
                       (["--offload", "host"], "--offload disk"),
                       (["--check", "--seconds", "3"], "give --steps"),
                       (["--codec", "int8", "--backend", "gloo"], "gloo has no codecs"),
                       (["--codec", "bf16", "--parallel", "zero2"], "not zero2"),
                       (["--codec", "int8", "--precision", "bf16"], "in fp32"),
                       (["--elastic", "1:2", "--parallel", "zero3"], "--elastic takes --parallel dp, ddp, ps-sync, ps-async, ps-hybrid, not zero3"),
                       (["--elastic", "1:2", "--parallel", "ps-async"], "give --elastic 2:N"),
                       (["--elastic", "1:2", "--check"], "no --accumulate, --check"),
                       (["--elastic", "3:2"], "two numbers"),
                       (["--mesh", "1,2"], "three numbers"),
                       (["--device", "cuda"], "--device cuda: PyTorch"),
                       (["--parallel", "ring"], "invalid choice")):
        status, out, err = train(*words)
        check(status == 2 and why in err and not out, f"{' '.join(words)} is refused: ... {why} ...", status, err)


def a_rank_that_fails():
    """The others are not left waiting."""
    script = "import os, sys, time; time.sleep(0 if os.environ['RANK'] == '1' else 60); sys.exit(3)"
    start = time.monotonic()
    status = start_ranks(3, [sys.executable, "-c", script])
    check(status == 3 and time.monotonic() - start < 30, "the first rank that fails ends all", status)


with tempfile.TemporaryDirectory(prefix="kolo-train-test-") as FOLDER:
    a_run(FOLDER)
    a_prediction(FOLDER)
    several_ways(FOLDER)
other_starters()
refused()
os.environ.pop("PYTHONPATH")
a_rank_that_fails()
done()
