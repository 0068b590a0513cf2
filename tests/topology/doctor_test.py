# SPDX-License-Identifier: Apache-2.0
# covers: tools/doctor.c tools/doctor_peers.c
"""`kolo doctor` on this machine, and on folders that stand for /sys of machines with something wrong.

usage: doctor_test.py KOLO NVML CUDA   (the kolo tool, the fake libraries)
"""
import json
import os
import subprocess
import sys
import tempfile

from tap import check, done, machine_env

KOLO, NVML, CUDA = map(os.path.abspath, sys.argv[1:])


def doctor(*args, **env):
    ran = subprocess.run([KOLO, "doctor", *args], capture_output=True, text=True, timeout=60,
                         check=False, env=machine_env(**env))
    return ran.returncode, ran.stdout, ran.stderr


def write(root, path, text):
    path = os.path.join(root, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def acs_config(control):
    """A bridge's configuration space: an extended capability that is not ACS, then ACS."""
    config = bytearray(4096)
    config[0x100:0x104] = (0x0001 | 0x1 << 16 | 0x140 << 20).to_bytes(4, "little")
    config[0x140:0x144] = (0x000d | 0x1 << 16).to_bytes(4, "little")
    config[0x146:0x148] = control.to_bytes(2, "little")
    return bytes(config)


def test_here():
    status, out, err = doctor()
    lines = out.splitlines()
    check(status in (0, 1) and not err and all(line[:4] in ("ok  ", "note", "FIX ", "    ")
                                               for line in lines),
          "every line is a verdict or a fix", out, err)
    check(all(lines[i - 1][:4] in ("note", "FIX ") for i, line in enumerate(lines)
              if line.startswith("      -> ")), "a fix follows what it mends", out)
    check((status == 1) == any(line.startswith("FIX ") for line in lines),
          "the exit status says whether something wants a fix", status, out)
    status, out, _ = doctor("-n", "100000")
    check("100000 ranks share" in out, "more ranks than CPUs are told so", out)


def test_wrong(folder):
    """GPUs by the fake library; limits and bridges by the folder."""
    write(folder, "sys/fs/cgroup/cpu.max", "50000 100000\n")
    write(folder, "sys/fs/cgroup/memory.max", "104857600\n")
    write(folder, "sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n")
    write(folder, "sys/bus/pci/devices/0000:00:01.0/config", acs_config(0x1d))
    write(folder, "sys/bus/pci/devices/0000:00:02.0/config", acs_config(0))
    env = {"HWLOC_FSROOT": folder, "HWLOC_COMPONENTS": "no_os,stop", "HWLOC_THISSYSTEM": "0",
           "KOLO_NVML_PATH": NVML, "KOLO_FAKE_NVML": "p2p"}
    status, out, err = doctor("-n", "2", **env)
    for words in ("quota is 0.5 CPUs for 2 ranks", "may take 0.0977 GiB", "[never]",
                  "redirects on 1 bridges, such as 0000:00:01.0"):
        check(any(line.startswith("FIX ") and words in line for line in out.splitlines()),
              f"wants a fix: {words}", out, err)
    check(status == 1 and "GPUs 0 and 1 have no peer access" in out,
          "what discovery notes is told, too", out)
    write(folder, "sys/bus/pci/devices/0000:00:01.0/config", acs_config(0))
    _, out, _ = doctor(**env)
    check("ok    no PCI bridge redirects" in out, "bridges that do not redirect are well", out)


def rdma(folder, index, state="4: ACTIVE", gid="0000:0000:0000:0000:0000:ffff:0a4e:0001", node=True):
    """A software RDMA device of a folder that stands for the root."""
    port = f"sys/class/infiniband/rxe{index}/ports/1"
    write(folder, f"{port}/state", state + "\n")
    write(folder, f"{port}/rate", "10 Gb/sec (1X FDR10)\n")
    write(folder, f"{port}/link_layer", "Ethernet\n")
    write(folder, f"{port}/gids/0", "fe80:0000:0000:0000:78bb:a5ff:fe6c:e771\n")
    write(folder, f"{port}/gids/1", gid + "\n")
    write(folder, f"sys/class/infiniband_verbs/uverbs{index}/ibdev", f"rxe{index}\n")
    if node:
        write(folder, f"dev/infiniband/uverbs{index}", "")


def test_rdma(folder):
    """RDMA devices of software, which no bus shows."""
    rdma(folder, 0)
    rdma(folder, 1, state="1: DOWN")
    rdma(folder, 2, gid="0000:0000:0000:0000:0000:0000:0000:0000")
    rdma(folder, 3, node=False)
    status, out, err = doctor(HWLOC_FSROOT=folder, HWLOC_COMPONENTS="no_os,stop", HWLOC_THISSYSTEM="0")
    for words in ("ok    rxe0: 1.25 GB/s, RDMA", "FIX   rxe1 port 1 is DOWN", "FIX   rxe2 has no address"):
        check(words in out, f"of RDMA devices: {words[6:]}", out, err)
    check(status == 1 and "rxe3" not in out, "one without a node in /dev/infiniband is another container's", out)


PAIR = "P2P of GPU 0 (0000:1b:00.0) and GPU 1 (0000:2b:00.0)"


def peers(folder, word):
    """What is said of the pair of GPUs that the fake driver has: the exit status, the line, its fix."""
    status, out, err = doctor(HWLOC_FSROOT=folder, HWLOC_COMPONENTS="no_os,stop", HWLOC_THISSYSTEM="0",
                              KOLO_CUDA_PATH=CUDA, FAKE_CUDA_PEERS=word)
    lines = out.splitlines() + [""]
    at = next((i for i, line in enumerate(lines) if PAIR in line), len(lines) - 1)
    check(out.count("P2P of") <= 1 and not err, "a pair has one line", out, err)
    return status, lines[at], "".join(lines[at + 1:at + 2])


def probed(word):
    """`kolo topo --probe` on a pair joined by NVLink: its matrix, plan and notes."""
    env = {"KOLO_NVML_PATH": NVML, "KOLO_FAKE_NVML": "pair", "KOLO_CUDA_PATH": CUDA, "FAKE_CUDA_PEERS": word}
    ran = [subprocess.run([KOLO, "topo", "--probe", *form], capture_output=True, text=True, timeout=60,
                          check=False, env=machine_env(**env)) for form in ([], ["--json"])]
    check(all(one.returncode == 0 and not one.stderr for one in ran), f"P2P that is told to {word} is tried",
          ran[0].stderr, ran[1].stderr)
    return ran[0].stdout, json.loads(ran[1].stdout)


def test_probe():
    """What is tried comes into the matrix; the plan has no link of a pair that fails."""
    def links(data):
        return sum(link["kind"] == "NVLink" for link in data["machine"]["links"])

    text, data = probed("work")
    check(data["p2p"][0]["p2p"] == "verified" and data["p2p"][0]["gbs"] > 0 and links(data) == 1 and
          "over links between GPUs" in text, "a pair that works keeps its NVLinks", text, data)
    row = next(line.split() for line in text.splitlines() if line.startswith("  GPU0 "))
    check(row[1] == "." and float(row[2]) > 0, "the matrix says how fast it is", text)
    text, data = probed("none")
    check(data["p2p"][0]["p2p"] == "none" and links(data) == 1, "a pair that claims nothing is left as it is", data)
    for word in ("spoil", "refuse", "die"):
        text, data = probed(word)
        check(data["p2p"][0]["p2p"] == "fails" and links(data) == 0 and "over all links" in text and
              "is claimed and does not work" in text and "  GPU0          .    fails" in text,
              f"a pair whose data {word} is planned without its NVLinks", text, data)
    ran = subprocess.run([KOLO, "topo", "--probe", "file"], capture_output=True, text=True, timeout=60, check=False)
    check(ran.returncode == 2 and "not those of file" in ran.stderr, "a file's GPUs cannot be tried", ran.stderr)


def test_peers(folder):
    """Whether data of GPUs arrive, by the fake driver; why not, by what the folder has more and more of."""
    def cause(words, fix, word="spoil"):
        status, line, told = peers(folder, word)
        check(status == 1 and line.startswith(f"FIX   {PAIR} is claimed and does not work: GPU 0 writes to GPU 1: ")
              and line.endswith(f"; likely cause: {words}"), f"a pair fails: {words}", line)
        check(told.startswith(f"      -> {fix}") and "NCCL_P2P_DISABLE=1" in told, f"a fix: {fix}", told)

    _, line, _ = peers(folder, "work")
    check(line.startswith(f"ok    {PAIR}: verified, ") and line.endswith(" GB/s"),
          "a pair is verified and measured", line)
    _, line, _ = peers(folder, "none")
    check(line == "", "a pair that claims nothing is not spoken of", line)
    cause("not known; bridges' access control (ACS) shows to root only", "run as root")
    cause("not known; bridges' access control (ACS) shows to root only", "run as root", "hang")
    status, line, _ = peers(folder, "die")
    check(status == 1 and "the driver has ended the process" in line, "a driver may end its process", line)
    status, line, _ = peers(folder, "refuse")
    check(status == 1 and "GPU 0 is refused access to memory of GPU 1: CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"
          in line, "a refusal is named", line)

    ways = {"0000:1b:00.0": "pci0000:1a/0000:1a:01.0", "0000:2b:00.0": "pci0000:2a/0000:2a:01.0"}
    os.makedirs(os.path.join(folder, "sys/bus/pci/devices"))
    for bus, way in ways.items():
        for device in (way, f"{way}/{bus}"):
            os.makedirs(os.path.join(folder, "sys/devices", device))
            os.symlink(os.path.join("../../../devices", device),
                       os.path.join(folder, "sys/bus/pci/devices", os.path.basename(device)))
    cause("they are under different host bridges (pci0000:1a, pci0000:2a)", "slots under one")
    write(folder, "proc/cpuinfo", "processor : 0\nflags : fpu hypervisor lahf_lm\n")
    cause("this is a virtual machine, whose host does not let it through", "on the host")
    write(folder, f"sys/devices/{ways['0000:2b:00.0']}/0000:2b:00.0/iommu_group/type", "DMA-FQ\n")
    cause("the IOMMU translates what they send", "boot with iommu=pt")
    write(folder, f"sys/devices/{ways['0000:2b:00.0']}/config", acs_config(0x1d))
    cause("access control (ACS) redirects on bridge 0000:2a:01.0 between them",
          "setpci -s 0000:2a:01.0 ECAP_ACS+6.w=0000")


def test_options():
    for args, words in ((["--cats"], "option --cats is unknown"), (["-n", "x"], '"x" is no number'),
                        (["more"], 'unexpected argument "more"')):
        status, out, err = doctor(*args)
        check(status == 2 and not out and words in err, f"{args} is refused", err)


def main():
    test_here()
    with tempfile.TemporaryDirectory(prefix="kolo-doctor-") as folder:
        test_wrong(folder)
    with tempfile.TemporaryDirectory(prefix="kolo-doctor-") as folder:
        test_rdma(folder)
    with tempfile.TemporaryDirectory(prefix="kolo-doctor-") as folder:
        test_peers(folder)
    test_probe()
    test_options()
    done()


main()
