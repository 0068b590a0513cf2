# SPDX-License-Identifier: Apache-2.0
# covers: tests/fuzz
"""libFuzzer over all that reads bytes from outside, under --full and with clang there: the same inputs
in each run, some seconds of each target; with KOLO_FUZZ_SECONDS other ones for that long, as tests/soak
--whole does. Each source is compiled once for all targets.

usage: fuzz_test.py SOURCE [TARGET...]
"""
import concurrent.futures
import glob
import os
import shutil
import subprocess
import sys
import tempfile

from tap import check, done

SOURCE, *TARGETS = sys.argv[1:]
SECONDS = int(os.environ.get("KOLO_FUZZ_SECONDS", "0"))
RUNS = {"frames": 6000, "hub": 10000, "rank": 60000, "words": 60000}  # else 20,000
PLAN = ("builder", "coll_names", "facts")
MORE = {"plugin": ["src/plugin/defaults.c", "src/plugin/struct.c", *(f"src/plan/{name}.c" for name in PLAN)],
        "frames": ["transports/acceptor.c", "transports/carrier.c", "transports/doubt.c", "transports/tcp/*.c"],
        "hub": ["src/boot/hub_job.c", "src/boot/hub_text.c", "src/boot/share.c", "src/boot/wire.c"],
        "rank": ["src/boot/hub.c", "src/boot/hub_job.c", "src/boot/hub_text.c", "src/boot/share.c", "src/boot/wire.c"],
        "words": ["src/boot/*.c", "src/tune/[!b]*.c", "src/plan/*.c", "src/plan/verify/*.c",
                  "algos/*.c"],  # not bench.c, which needs the kernels
        "planes": ["transports/tcp/planes.c"], "log": ["tools/log/[!l]*.c", "tools/log/line.c"]}
CORPORA = {"machine": ["fuzz/machine", "topologies", "nccl-8gpu-4nic.xml", "hwloc-4gpu-nvswitch.xml",
                       "smi-4gpu.txt"], "log": ["fuzz/log", "logs"],
           "graphs": ["fuzz/graphs", "topologies/nccl-graphs.xml"], "plugin": ["fuzz/plugin"], "frames": ["fuzz/frames"],
           "hub": ["fuzz/hub"], "planes": ["fuzz/planes"], "rank": ["fuzz/rank"], "words": ["fuzz/words"]}
if os.path.exists("/usr/include/infiniband/verbs.h"):
    MORE["verbs"] = ["transports/acceptor.c", "transports/carrier.c", "transports/doubt.c", "src/memory/lasting.c", "transports/verbs/[!n]*.c"]  # not none.c
    CORPORA["verbs"] = ["fuzz/verbs"]
FLAGS = ["-g", "-O1", "-std=gnu17", "-D_GNU_SOURCE", "-Iinclude", "-I.", "-Isrc", "-Itests/fuzz",
         "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=undefined"]
LIBRARIES = ["-lhwloc", "-lexpat", "-lcrypto", "-lpthread", "-ldl", "-lm"]


def sources(target):
    """The files that a target is made of."""
    return [f"tests/fuzz/{target}.c",
            *(name for pattern in (*MORE.get(target, []), "topology/*.c", "topology/*/*.c", "src/util/*.c")
              for name in sorted(glob.glob(pattern, root_dir=SOURCE)))]


def object_of(source, folder):
    return os.path.join(folder, source.replace("/", "-")[:-1] + "o")


def clang(*words):
    return subprocess.run(["clang", *FLAGS, *words], cwd=SOURCE, capture_output=True, text=True, timeout=300,
                          check=False)


def compile_all(targets, folder, pool):
    """Compiles each source once; what clang said of those that failed."""
    names = sorted({name for target in targets for name in sources(target)})
    made = pool.map(lambda name: clang("-c", name, "-o", object_of(name, folder)), names)
    return "".join(one.stderr for one in made if one.returncode != 0)


def links(folder):
    """Whether clang has what a fuzzer is linked with."""
    made = subprocess.run(["clang", "-x", "c", *FLAGS[-2:], "-", "-o", os.path.join(folder, "probe")], text=True,
                          input="int LLVMFuzzerTestOneInput(const char *data, long size) { return !data && size; }",
                          capture_output=True, timeout=60, check=False)
    return made.returncode == 0


def amount(target):
    return ([f"-max_total_time={SECONDS}"] if SECONDS else
            ["-seed=1", f"-runs={RUNS.get(target, 20000)}", "-max_total_time=60"])


def fuzz(target, folder):
    """Links and runs a target in a folder of its own; the arguments of a check."""
    home = os.path.join(folder, target)
    program, corpus = os.path.join(home, "fuzzer"), os.path.join(home, "corpus")
    os.makedirs(corpus)
    linked = clang(*(object_of(name, folder) for name in sources(target)), *LIBRARIES, "-o", program)
    if linked.returncode != 0:
        return False, f"the fuzzer of {target} links", linked.stderr[-2000:]
    for name in CORPORA[target]:
        path = os.path.join(SOURCE, "tests", "data", name)
        for file in sorted(glob.glob(path + "/*")) or [path]:
            shutil.copy(file, corpus)
    ran = subprocess.run([program, *amount(target), "-rss_limit_mb=1024", "-timeout=10", corpus], cwd=home,
                         capture_output=True, text=True, errors="replace", timeout=SECONDS + 180,
                         check=False)
    left = [name for name in os.listdir(home) if name.startswith(("crash-", "leak-", "oom-", "timeout-"))]
    found = [name + ": " + open(os.path.join(home, name), "rb").read()[:1500].hex() for name in left]
    return (ran.returncode == 0, f"no input made by chance finds a fault in target {target}", ran.stderr[-3000:],
            *found)


def main():
    if os.environ.get("KOLO_TEST_FULL") != "1" or shutil.which("clang") is None:
        print("1..0 # SKIP", "only with ./test --full" if shutil.which("clang") else "no clang (./setup --dev)")
        return
    targets = TARGETS or list(CORPORA)
    with tempfile.TemporaryDirectory(prefix="kolo-fuzz-") as folder:
        if not links(folder):
            print("1..0 # SKIP clang has no runtime for fuzzers (./setup --dev)")
            return
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            errors = compile_all(targets, folder, pool)
            check(not errors, "the sources of the fuzzers compile", errors[-2000:])
            for result in pool.map(lambda target: fuzz(target, folder), targets):
                check(*result)
    done()


main()
