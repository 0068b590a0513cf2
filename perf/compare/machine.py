# SPDX-License-Identifier: Apache-2.0
"""What a table was measured on."""
import os
import platform


def _read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def cpu_name():
    """ "AMD EPYC, family 26 model 2": a virtual machine's name alone says little."""
    fields = {}
    for line in _read("/proc/cpuinfo").split("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    name = fields.get("model name") or platform.machine()
    return f"{name}, family {fields['cpu family']} model {fields['model']}" if "cpu family" in fields else name


def l3_size():
    """Bytes of the last cache of the first core as the kernel writes them, "32768K"."""
    folder = "/sys/devices/system/cpu/cpu0/cache"
    sizes = {}
    for index in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        sizes[_read(f"{folder}/{index}/level")] = _read(f"{folder}/{index}/size")
    return sizes.get("3") or "none"


def cores():
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


def describe():
    """Lines for a table's head."""
    virtual = " (virtual)" if "hypervisor" in _read("/proc/cpuinfo") else ""
    return [f"machine: {cpu_name()}{virtual}, {cores()} cores, L3 {l3_size()}, Linux {platform.release()}"]


def available_bytes():
    """Memory that is free to take."""
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def busy_s():
    """Processor seconds that the machine has spent on anything, and those that its host has taken."""
    words = _read("/proc/stat").splitlines()[:1]
    ticks = [int(word) for word in words[0].split()[1:]] if words else [0] * 8
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    return (sum(ticks[:3]) + sum(ticks[5:7])) * tick_s, ticks[7] * tick_s
