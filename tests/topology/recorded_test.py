# SPDX-License-Identifier: Apache-2.0
# covers: topology/formats topology/draw
"""Machines and logs that others recorded, where a collection of them lies beside the source folder:
every file is read, planned, drawn and written, every log's parse is the one that people checked.

usage: recorded_test.py KOLO SOURCE
"""
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

from tap import check, done

KOLO, SOURCE = sys.argv[1:]
DATA = os.path.join(SOURCE, "..", "shared", "data")
MACHINES, LOGS = os.path.join(DATA, "topologies"), os.path.join(DATA, "nccl-logs")
SVG = "{http://www.w3.org/2000/svg}"
# GPUs, rings on one host, GB/s of all and of the bound; None: no GPUs, no plan.
PLANS = {
    "hwloc-nvidia-dgx2.xml": (16, 6, 120, 120),
    "hwloc-power8-4gpu-nvlink.xml": (4, 1, 32, 32),
    "hwloc-16intel64-manyVFs.xml": None,
    "hwloc-40intel64-pcilocality.xml": None,
    "hwloc-96em64t-4numa-pci.xml": None,
    "nccl-aws-g5.xml": None,
    "nccl-aws-p4d.xml": (8, 1, 10, 10),
    "nccl-azure-nc48v4.xml": (2, 1, 240, 240),
    "nccl-azure-ncv4-nc96.xml": (4, 2, 24, 24),
    "nccl-azure-ndv2.xml": (8, 1, 10, 10),
    "nccl-azure-ndv4.xml": (8, 2, 24, 24),
    "nccl-oci-flattened-b4.xml": (8, 2, 24, 24),
    "rccl-topo_4p4h.xml": (16, 2, 24, 24),
    "rccl-topo_8p_90a.xml": (8, 8, 96, 108),
    "rccl-topo_8p_940.xml": (8, 7, 336, 336),
    "smi-dgx1v-4nic.txt": (8, 6, 120, 120),
}


def kolo(*args):
    ran = subprocess.run([KOLO, *args], capture_output=True, text=True, timeout=60, check=False,
                         env={k: v for k, v in os.environ.items() if k != "KOLO_TOPO_FILE"})
    return ran.returncode, ran.stdout, ran.stderr


def machine(*args):
    status, out, err = kolo("topo", "--json", *args)
    return json.loads(out) if status == 0 else err


def texts(svg):
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(SVG + "text")]


def check_plan(name, path):
    data = machine(path)
    wanted = PLANS[name]
    if wanted is None:
        check("plan" not in data, f"{name} has no GPU to plan for", data)
        return
    plan = data["plan"]
    got = (plan["gpus"], plan["channels"] // 2, plan["achieved_gbs"], plan["bound_gbs"])
    check(all(abs(a - b) < 0.01 for a, b in zip(got, wanted)), f"{name} is planned as it should be",
          got, wanted)
    check(all(sorted(ring["ranks"]) == list(range(plan["gpus"])) for ring in plan["rings"]),
          f"every ring on {name} passes each GPU once", plan["rings"])


def check_rails(name, path, hosts):
    """Each NIC that is used carries one ring into each host, and one out of it."""
    plan = machine("--hosts", str(hosts), path)["plan"]
    first = plan["rings"][:plan["channels"] // 2]
    into, out = [r["in_nic"] for r in first], [r["out_nic"] for r in first]
    check(len(set(into)) == len(into) and sorted(into) == sorted(out),
          f"over {hosts} hosts like {name} each NIC is used once in each direction", into, out)


def check_pairs(name, path, pair):
    """A ring comes in and goes out by the GPUs of its NIC's switch, `pair` of them a NIC."""
    plan = machine("--hosts", "2", path)["plan"]
    rings = [ring["ranks"][:plan["gpus"]] for ring in plan["rings"][:plan["channels"] // 2]]
    ends = [{ring[0] // pair, ring[-1] // pair} for ring in rings]
    check(sorted(map(sorted, ends)) == [[i] for i in range(plan["gpus"] // pair)],
          f"each NIC of {name} serves its own {pair} GPUs", rings)


def check_forms(name, path, folder):
    for option in ("--xml", "--nccl-xml"):
        if option == "--nccl-xml" and name.endswith(".txt"):
            status, out, err = kolo("topo", option, path)
            check(status == 1 and out == "" and "addresses" in err,
                  f"{name} is refused to NCCL, which finds devices by address", out, err)
            continue
        status, out, err = kolo("topo", option, path)
        copy = os.path.join(folder, "copy.xml")
        with open(copy, "w", encoding="utf-8") as file:
            file.write(out)
        again = machine(copy)
        check(status == 0 and isinstance(again, dict), f"{name} is read again from {option}", err,
              again)
        if option == "--xml":
            status, out, err = kolo("topo", "--diff", path, copy)
            check(status == 0 and out == "alike\n", f"{name} and its dump are alike", out, err)


def check_picture(name, path):
    status, svg, err = kolo("topo", "--svg", "-", path)
    words = texts(svg) if status == 0 else []
    nodes = machine(path)["machine"]["nodes"]
    gpus = sum(node["kind"] == "gpu" for node in nodes)
    boxes = sum(word.startswith("GPU") and word[3:].isdigit() for word in words)
    check(status == 0 and boxes == gpus, f"the picture of {name} shows its {gpus} GPUs", err, words)


def test_machines(folder):
    for name in sorted(os.listdir(MACHINES)):
        path = os.path.join(MACHINES, name)
        if name.endswith("v3format.xml"):
            status, out, err = kolo("topo", path)
            check(status == 0 and "NUMA node" in out, f"{name} is read", err)
        elif name in PLANS:
            check_plan(name, path)
            check_forms(name, path, folder)
            check_picture(name, path)
    for name in ("nccl-aws-p4d.xml", "nccl-azure-ndv4.xml", "rccl-topo_8p_940.xml",
                 "rccl-topo_4p4h.xml", "smi-dgx1v-4nic.txt", "nccl-oci-flattened-b4.xml"):
        check_rails(name, os.path.join(MACHINES, name), 4)
    check_pairs("nccl-aws-p4d.xml", os.path.join(MACHINES, "nccl-aws-p4d.xml"), 2)
    check_pairs("smi-dgx1v-4nic.txt", os.path.join(MACHINES, "smi-dgx1v-4nic.txt"), 2)


def test_logs():
    with open(os.path.join(LOGS, "expected.json"), encoding="utf-8") as file:
        expected = json.load(file)
    for name, wanted in expected.items():
        path = os.path.join(LOGS, name)
        status, out, err = kolo("log", "--json", path)
        got = json.loads(out) if status == 0 else {}
        wrong = [key for key in wanted if key != "issues" and got.get(key) != wanted[key]]
        check(status == 0 and not wrong, f"{name} is parsed as people did", wrong, err)
        status, svg, err = kolo("log", "--svg", "-", path)
        words = texts(svg) if status == 0 else []
        check(status == 0 and "Rings" in words, f"{name} is drawn", err)


def main():
    if not os.path.isdir(MACHINES) or not os.path.isdir(LOGS):
        print("1..0 # SKIP no collection of recorded machines beside the source folder")
        return
    with tempfile.TemporaryDirectory() as folder:
        test_machines(folder)
    test_logs()
    done()


main()
