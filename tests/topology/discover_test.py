# SPDX-License-Identifier: Apache-2.0
# covers: topology/machine
"""Discovery on machines that are not here: GPUs by a library with NVML's names, NICs and switches by
a folder that stands for /sys, both as their users see them, in `kolo topo`.

usage: discover_test.py KOLO NVML SOURCE   (the kolo tool, the fake library, the source folder)
"""
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile

from tap import check, done, machine_env

KOLO, NVML, SOURCE = map(os.path.abspath, sys.argv[1:])
RECORDED = os.path.join(SOURCE, "..", "shared", "data", "topologies", "sysfs-p9-ac922.tar.bz2")


def topo(*args, **env):
    return subprocess.run([KOLO, "topo", *args], capture_output=True, text=True, timeout=60,
                          check=False, env=machine_env(**env))


def machine(**env):
    ran = topo("--json", **env)
    return json.loads(ran.stdout) if ran.returncode == 0 else ran.stderr


def fake(name, **env):
    return machine(KOLO_NVML_PATH=NVML, KOLO_FAKE_NVML=name, **env)


def links(data, kind):
    return [link for link in data["machine"]["links"] if link["kind"] == kind]


def test_machines():
    for name, gpus, rings, gbs, over in (
            ("dgx1v", 8, 6, 6 * 20.6248, "links between GPUs"),
            ("dgxa100", 8, 8, 12 * 20.6248, "NVSwitch"),
            ("dgxh100", 8, 8, 18 * 21.2496, "NVSwitch"),
            ("vm", 8, 8, 18 * 21.2496, "NVSwitch")):
        data = fake(name)
        plan = data["plan"]
        check(plan["gpus"] == gpus and plan["channels"] == 2 * rings and plan["over"] == over and
              abs(plan["achieved_gbs"] - gbs) < 0.01 and plan["optimal"],
              f"a {name} is discovered by NVML and planned at its bound",
              {k: v for k, v in plan.items() if k not in ("rings", "trees")})
    data = fake("h200nvl")
    check(sorted(link["count"] for link in links(data, "NVLink")) == [18, 18],
          "two pairs of H200 NVL have 18 links each", links(data, "NVLink"))
    data = fake("pcie")
    check(data["plan"]["gpus"] == 4 and not links(data, "NVLink") and data["plan"]["achieved_gbs"] > 0,
          "GPUs without NVLink are planned over PCI", data["plan"])
    data = fake("p2p")
    check("GPUs 0 and 1 have no peer access: the chipset does not support it" in
          data["machine"]["notes"], "a pair without peer access is noted, with the cause",
          data["machine"]["notes"])


def test_no_driver():
    data = fake("broken")
    check("plan" not in data, "a driver that does not answer leaves a machine without GPUs", data)
    data = machine(KOLO_NVML_PATH="/no/such/library.so")
    check("plan" not in data, "a library that is not there leaves a machine without GPUs", data)


def test_hint(folder):
    """A file that places NVML's GPUs below switches is a hint about this machine."""
    path = os.path.join(folder, "hint.xml")
    gpus = "".join(f'<pci busid="0000:{0x10 + i:02x}:00.0" class="0x030200" link_speed="16 GT/s" '
                   'link_width="16"/>' for i in range(8))
    with open(path, "w", encoding="utf-8") as file:
        file.write('<system version="1"><cpu numaid="0"><pci busid="ffff:ff:01.0" class="0x060400" '
                   f'link_speed="16 GT/s" link_width="16">{gpus}</pci></cpu></system>')
    data = fake("dgx1v", KOLO_TOPO_FILE=path)
    kinds = [node["kind"] for node in data["machine"]["nodes"]]
    check(data["plan"]["achieved_gbs"] > 120 and kinds.count("switch") == 1 and
          kinds.count("gpu") == 8,
          "KOLO_TOPO_FILE adds switches to the GPUs that NVML found", data["machine"]["nodes"])
    other = os.path.join(SOURCE, "tests", "data", "smi-4gpu.txt")
    data = fake("dgx1v", KOLO_TOPO_FILE=other)
    check(data["plan"]["gpus"] == 4, "a file of another machine stands in its place", data["plan"])


def device(root, bus, files, links_to=()):
    """A PCI device of a folder that stands for /sys."""
    path = os.path.join(root, "sys/bus/pci/devices", bus)
    os.makedirs(path)
    for name, text in files.items():
        with open(os.path.join(path, name), "w", encoding="utf-8") as file:
            file.write(text + "\n")
    for name, to in links_to:
        os.symlink(to, os.path.join(path, name))


def test_sysfs(folder):
    """Speeds a link can have, a port's rate, and virtual functions, by a folder beside hwloc's XML."""
    root, path = os.path.join(folder, "root"), os.path.join(folder, "machine.xml")
    for i in range(2):
        device(root, f"0000:{0x10 + i:02x}:00.0",
               {"max_link_speed": "16.0 GT/s PCIe", "max_link_width": "8"})
    with open(path, "w", encoding="utf-8") as file:
        file.write("<system/>")
    data = fake("p2p", HWLOC_FSROOT=root, HWLOC_THISSYSTEM="0", HWLOC_COMPONENTS="no_os,stop")
    speeds = [link["gbs"] for link in links(data, "PCI")]
    check(speeds.count(12) >= 2, "a link is as fast as sysfs says that it can be", data["machine"])


def test_damaged(folder):
    """hwloc ends by a signal on many a file whose objects lack what it counts on; we do not ask it."""
    with open(os.path.join(SOURCE, "tests", "data", "hwloc-4gpu-nvswitch.xml"),
              encoding="utf-8") as file:
        text = file.read()
    path, ends = os.path.join(folder, "damaged.xml"), []
    for name in ("complete_cpuset", "cpuset", "nodeset", "os_index", "type", "gp_index", "pci_busid", "nbobjs"):
        parts = text.split(f' {name}="')
        for place in range(1, min(5, len(parts))):
            head, tail = f' {name}="'.join(parts[:place]), f' {name}="'.join(parts[place:])
            for value in ("", f' {name}=""', f' {name}="-1"', f' {name}="0xf...f"'):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(head + value + tail[tail.index('"') + 1:])
                ran = topo(path)
                ends.append(ran.returncode)
                if ran.returncode != 0 and path not in ran.stderr:
                    ends.append(ran.stderr)
    check(set(ends) == {0, 1}, "a damaged hwloc file is read or refused by name, never a crash", ends)


def test_picture():
    """The picture in README.md is what the command below it draws."""
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
        readme = file.read()
    told = re.search(r"picture above is `kolo topo (\S+) --svg (\S+)`", readme)
    drawn = topo("--svg", "-", os.path.join(SOURCE, told[1])).stdout
    with open(os.path.join(SOURCE, told[2]), encoding="utf-8") as file:
        check(file.read() == drawn and f"]({told[2]})" in readme, "README.md shows what kolo topo draws", told[0])


def test_recorded(folder):
    if not os.path.isfile(RECORDED):
        check(True, "a gathered /sys replays # SKIP no collection of recorded machines")
        return
    with tarfile.open(RECORDED) as tar:
        tar.extractall(folder)
    root = os.path.join(folder, sorted(name for name in os.listdir(folder)
                                       if os.path.isdir(os.path.join(folder, name, "sys")))[0])
    ran = topo(HWLOC_FSROOT=root, HWLOC_COMPONENTS="linux,stop", HWLOC_THISSYSTEM="0")
    check(ran.returncode == 0 and ran.stdout.startswith("2 packages, 8 cores, 32 PUs") and
          "POWER9" in ran.stdout, "a gathered /sys of an AC922 replays", ran.stdout[:500], ran.stderr)


def main():
    with tempfile.TemporaryDirectory(prefix="kolo-discover-") as folder:
        test_machines()
        test_no_driver()
        test_hint(folder)
        test_sysfs(folder)
        test_damaged(folder)
        test_picture()
    with tempfile.TemporaryDirectory(prefix="kolo-discover-") as folder:
        test_recorded(folder)
    done()


main()
