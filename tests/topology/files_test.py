# SPDX-License-Identifier: Apache-2.0
# covers: topology/formats topology/machine topology/layout topology/draw
"""Files of machines as people have them, a small one of each class. expected.json has the facts of each
file, written by hand. If a collection of more files lies beside the source folder, wild.json has their
facts.

usage: files_test.py KOLO SOURCE [COLLECTION]
"""
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

from boxes import overlaps
from tap import check, done

KOLO, SOURCE = sys.argv[1:3]
CLASSES = os.path.join(SOURCE, "tests", "data", "topologies")
WILD = sys.argv[3] if len(sys.argv) > 3 else os.path.join(SOURCE, "..", "shared", "data", "wild", "topologies")
LINKS = ("NVLink", "xgmi", "C2C")


def kolo(*args):
    ran = subprocess.run([KOLO, "topo", *args], capture_output=True, text=True, timeout=60, check=False,
                         env={k: v for k, v in os.environ.items() if k != "KOLO_TOPO_FILE"})
    return ran.returncode, ran.stdout, ran.stderr


class Machine:
    """kolo's description of a file, in the terms of expected.json."""

    def __init__(self, data):
        self.plan = data.get("plan", {})
        self.nodes, self.edges = data["machine"]["nodes"], data["machine"]["links"]
        self.notes = " | ".join(data["machine"]["notes"])
        gpus = [i for i, n in enumerate(self.nodes) if n["kind"] == "gpu"]
        self.gpu = sorted(gpus, key=lambda i: self.nodes[i].get("number", i))

    def kind(self, kind):
        return [n for n in self.nodes if n["kind"] == kind]

    def numa(self, i):
        while i is not None and self.nodes[i]["kind"] != "numa":
            i = self.nodes[i].get("parent")
        return i

    def numa_number(self, i):
        return None if self.numa(i) is None else self.nodes[self.numa(i)].get("number")

    def name(self, i):
        return self.nodes[i].get("name", self.nodes[i].get("bus", "?"))

    def nics(self):
        return {self.name(i): [max(n.get("ports", 1), 1), round(n.get("gbs", 0), 4), self.numa_number(i)]
                for i, n in enumerate(self.nodes) if n["kind"] == "nic"}

    def fast(self):
        return [e for e in self.edges if e["kind"] in LINKS]

    def links(self):
        place = {node: i for i, node in enumerate(self.gpu)}
        return {"-".join(map(str, sorted((place[e["a"]], place[e["b"]])))): e["count"]
                for e in self.fast() if e["a"] in place and e["b"] in place}

    def to_switch(self):
        counts = {e["count"] for e in self.fast()
                  if "nvswitch" in (self.nodes[e["a"]]["kind"], self.nodes[e["b"]]["kind"])}
        return counts.pop() if len(counts) == 1 else sorted(counts)

    def pci(self, bus):
        for e in self.edges:
            for child, parent in ((e["a"], e["b"]), (e["b"], e["a"])):
                if e["kind"] == "PCI" and self.nodes[child].get("parent") == parent and \
                        self.nodes[child].get("bus") == bus:
                    return round(e["gbs"], 3)
        return None

    def known_numas(self):
        """NUMA nodes that the file tells of: kolo adds one without number and CPUs for lost devices."""
        return [n for n in self.kind("numa") if "number" in n or "cpus" in n]

    def numas(self):
        numbers = [n.get("number") for n in self.known_numas()]
        return sorted(numbers, key=lambda n: -1 if n is None else n)

    def cpus(self, number):
        return next((n.get("cpus") for n in self.kind("numa") if n.get("number") == number), "no such node")

    def said(self, key, wanted):
        """The value of one key of expected.json."""
        nics = [i for i, n in enumerate(self.nodes) if n["kind"] == "nic"]
        nics.sort(key=lambda i: (self.nodes[i].get("number", -1), self.nodes[i].get("bus", ""), i))
        values = {
            "numas": self.numas, "switches": lambda: len(self.kind("switch")),
            "cpus": lambda: {number: self.cpus(int(number)) for number in wanted},
            "cpus_any": lambda: sorted(n.get("cpus") for n in self.known_numas()),
            "gpus": lambda: [self.nodes[i].get("bus") for i in self.gpu],
            "gpu_numa": lambda: [self.numa_number(i) for i in self.gpu],
            "gpu_groups": lambda: sorted(sorted(k for k, i in enumerate(self.gpu) if self.numa(i) == numa)
                                         for numa in {self.numa(i) for i in self.gpu}),
            "nics": self.nics, "devices": lambda: len(self.kind("device")),
            "interfaces": lambda: len(self.kind("interface")), "links": self.links,
            "nvswitch": self.to_switch,
            "lane": lambda: {round(e["gbs"] / e["count"], 3) for e in self.fast()}.pop(),
            "bound": lambda: round(self.plan.get("bound_gbs", 0), 3),
            "untold": lambda: self.plan.get("links_untold"),
            "pci": lambda: {bus: self.pci(bus) for bus in wanted},
            "notes": lambda: [part for part in wanted if part in self.notes],
            "nic_of_gpu": lambda: [self.name(nics[k]) for k in self.plan["nic_of_gpu"]],
        }
        return values[key]()


def check_machine(name, path, wanted):
    status, out, err = kolo("--json", path)
    check(status == 0, f"{name} is read", err)
    if status != 0:
        return
    machine = Machine(json.loads(out))
    wrong = []
    for key, value in wanted.items():
        said = machine.said(key, value)
        if said != value:
            wrong.append(f"{key}: {said}, not {value}")
    check(not wrong, f"{name} is what people read in it", *wrong, machine.notes)
    if "untold" in wanted:
        _, text, _ = kolo(path)
        line = next((line for line in text.splitlines() if line.startswith("plan ")), "")
        check(("without NVLink" in line) == wanted["untold"],
              f"beside the bound of {name} stands whether links are untold", line)


def check_graphs(name, path, wanted):
    status, out, err = kolo("--json", path)
    plan = json.loads(out)["plan"] if status == 0 else {"rings": [], "trees": []}
    check([ring["ranks"] for ring in plan["rings"]] == wanted["rings"] and
          len(plan["trees"]) == wanted["trees"], f"{name} has the rings and trees of the file", err, plan)
    for form in ("--xml", "--nccl-xml"):
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "copy.xml")
            status, out, err = kolo(form, path)
            with open(copy, "w", encoding="utf-8") as file:
                file.write(out)
            again, text, _ = kolo("--json", copy)
            check(status == again == 0 and json.loads(text)["plan"] == plan,
                  f"{name} is the same again from {form}", err)


def attributes(text, tag):
    return [element.attrib for element in ElementTree.fromstring(text).iter(tag)]


def check_nccl(name, path, wanted):
    """The values that NCCL reads: masks of CPUs, addresses of devices, each port a <net> with its own number."""
    status, out, err = kolo("--nccl-xml", path)
    if wanted.get("gpus") and wanted["gpus"][0] is None:
        check(status == 1 and out == "" and "addresses" in err, f"{name} without addresses is refused to NCCL",
              out, err)
        return
    check(status == 0, f"{name} is written for NCCL", err)
    if status != 0:
        return
    masks = [a["affinity"] for a in attributes(out, "cpu") if "affinity" in a]
    check(all(len(word) == 8 and int(word, 16) >= 0 for mask in masks for word in mask.split(",")),
          f"the CPUs of {name} are masks of 32 bits", masks)
    source = open(path, encoding="utf-8").read().lower()
    buses = [a["busid"] for a in attributes(out, "pci")]
    invented = [bus for bus in buses if bus not in source and bus[4:] not in source]
    check(not invented and len(buses) == len(set(buses)), f"{name} has its own addresses, each once", invented,
          buses)
    guids = [a["guid"] for a in attributes(out, "net") if int(a.get("guid", "1"), 16) == 0]
    devs = [a["dev"] for a in attributes(out, "net")]
    check(not guids and len(set(devs)) == len(devs), f"the ports of {name} are told apart", devs, guids)
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "copy.xml")
        with open(copy, "w", encoding="utf-8") as file:
            file.write(out)
        keys = {k: v for k, v in wanted.items() if k in ("numas", "cpus", "gpus", "nics", "devices", "switches",
                                                         "links", "nvswitch", "bound", "pci")}
        if wanted.get("interfaces"):
            check("<net name=\"br-" not in out, f"{name} gives NCCL no virtual interface", out)
        check_machine(f"{name}, written for NCCL and read again,", copy, keys)


def check_picture(name, path):
    status, svg, err = kolo("--svg", "-", path)
    check(status == 0, f"{name} is drawn", err)
    if status == 0:
        over, width, words = overlaps(svg)
        check(not over, f"no two boxes or words of the picture of {name} overlap", over[:6])
        check(width <= 1700, f"the picture of {name} is not too wide to read", width)


def check_file(name, path, wanted):
    if "error" in wanted:
        status, out, err = kolo(path)
        check(status == 1 and wanted["error"] in err, f"{name} is refused, with the cause", out, err)
    elif "rings" in wanted:
        check_graphs(name, path, wanted)
        check_picture(name, path)
    else:
        check_machine(name, path, wanted)
        if "type" not in wanted:
            check_nccl(name, path, wanted)
        check_picture(name, path)


def wide_machine(switches):
    """A file of 16 GPUs and 61 NICs, below switches or below the NUMA nodes."""
    nic, text = 0, '<system version="1">'
    for numa in range(2):
        text += f'<cpu numaid="{numa}" affinity="{"ff" if numa == 0 else "ff00"}" vendor="AuthenticAMD">'
        for group in range(8):
            bus = 0x10 * group + 0x80 * numa
            text += f'<pci busid="{numa:04x}:{bus:02x}:00.0" class="0x060400">' if switches else ""
            text += f'<pci busid="{numa:04x}:{bus + 1:02x}:00.0" class="0x030200"><gpu dev="{8 * numa + group}" sm="90"/></pci>'
            for _ in range(4 if numa == 0 or group < 5 else 3):
                if nic < 61:
                    text += f'<pci busid="{numa:04x}:{bus + 2 + nic % 4:02x}:00.0" class="0x020000" link_speed="32 GT/s" ' \
                            f'link_width="16"><nic><net name="rdma{nic}" dev="{nic}" speed="200000"/></nic></pci>'
                    nic += 1
            text += "</pci>" if switches else ""
        text += "</cpu>"
    return text + "</system>"


def check_wide(switches):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "wide.xml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(wide_machine(switches))
        name = "a machine of 61 NICs " + ("below switches" if switches else "without switches")
        check_picture(name, path)
        status, svg, err = kolo("--svg", "-", path)
        words = overlaps(svg)[2] if status == 0 else []
        check({f"rdma{i}" for i in range(61)} <= set(words) and {f"GPU{i}" for i in range(16)} <= set(words),
              f"the picture of {name} shows each of them by name", err, words)


def check_options():
    matrix = os.path.join(CLASSES, "smi-numa.txt")
    status, out, err = kolo("--nvlink", "40.1", matrix)
    check(status == 0 and "bound 721.8 GB/s (18 links of 40.1)" in out and "18 x 40.1 GB/s" in out,
          "--nvlink gives the rate of a lane", out, err)
    for wrong in ("fast", "0", "-3", "nan", ""):
        status, out, err = kolo("--nvlink", wrong, matrix)
        check(status == 2 and out == "" and "not a rate in GB/s" in err, f"--nvlink \"{wrong}\" is refused", err)
    status, out, err = kolo("--gpus", "0", os.path.join(CLASSES, "nccl-graphs.xml"))
    check(status == 1 and "no machine for --gpus" in err, "a file of graphs is no machine to choose GPUs of", err)
    status, out, err = kolo(os.path.join(SOURCE, "tests", "data", "hwloc-2pack-2l3-4core-2pu.xml"))
    check(status == 0 and "bound to" not in out, "a thread of this machine is not bound to CPUs of a file's", out)
    _, out, _ = kolo(os.path.join(CLASSES, "nccl-joined-ports.xml"))
    check("(PHB), no GPUDirect" in out, "a NIC across the host bridge serves without GPUDirect", out)
    status, out, err = kolo("--merge", os.path.join(CLASSES, "smi-lost-escapes.txt"),
                            os.path.join(CLASSES, "nccl-cloud.xml"))
    check(status == 0 and "matched by their order" in out and "NVLink 1 x" in out and "00a1:00:00.0" in out,
          "a matrix is merged by the order of its GPUs", out, err)


def check_folder(folder, expected):
    with open(expected, encoding="utf-8") as file:
        for name, wanted in json.load(file).items():
            check_file(name, os.path.join(folder, name), wanted)


def main():
    check_folder(CLASSES, os.path.join(CLASSES, "expected.json"))
    if os.path.isdir(WILD):
        check_folder(WILD, os.path.join(CLASSES, "wild.json"))
    check_wide(True)
    check_wide(False)
    check_options()
    done()


main()
