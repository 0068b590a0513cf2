# SPDX-License-Identifier: Apache-2.0
# covers: packaging debian
"""The Debian packages: made by packaging/deb, installed into a bare system of debootstrap's, and used
there by the program of README.md, by Python and by a sweep.

usage: deb_test.py SOURCE
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

from tap import check, done, machine_env

SOURCE = sys.argv[1]
NEEDED = "gcc,libc6-dev,pkg-config,python3-minimal"
# The system's folders, for as long as this takes and seen by nobody else.
CHROOT = """
for folder in proc sys dev; do mount --rbind "/$folder" "$0/$folder" || exit 99; done
exec chroot "$0" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive sh -ec "$1"
"""
PYTHON = """
import kolo, sys
comm = kolo.Comm()
data = bytearray([1])
comm.all_reduce(data)
sys.stdout.write("%d %s\\n" % (data[0], kolo.loaded_from))
"""


def skip(why):
    print("1..0 # SKIP", why)


def run(*command, seconds=300):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=seconds,
                          env=machine_env())


def said(ran):
    return (ran.stdout + ran.stderr).splitlines()[-40:]


def code_name():
    """Of this Debian; None elsewhere."""
    with open("/etc/os-release", encoding="utf-8") as file:
        about = dict(re.findall(r'^(\w+)="?([^"\n]*)', file.read(), re.MULTILINE))
    return about.get("VERSION_CODENAME") if about.get("ID") == "debian" else None


def readme_program():
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
        return re.search(r"^```c\n(.*?)^```", file.read(), re.DOTALL | re.MULTILINE)[1]


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def check_bare_system(root, debs):
    def inside(script):
        return run("unshare", "--mount", "sh", "-c", CHROOT, root, script)

    for deb in debs:
        shutil.copy(deb, root + "/tmp")
    ran = inside("apt-get install -y --no-install-recommends /tmp/*.deb")
    check(ran.returncode == 0, "they install into a bare system, with what they depend on", *said(ran))
    write(root + "/tmp/hello.c", readme_program())
    ran = inside("cd /tmp; cc -Wall -Werror hello.c -o hello $(pkg-config --cflags --libs kolo); kolo run -n 4 --no-prefix ./hello")
    check(sorted(ran.stdout.splitlines()) == [f"rank {r} of 4: 6" for r in range(4)],
          "the program of README.md is built and runs there", *said(ran))
    write(root + "/tmp/sum.py", PYTHON)
    ran = inside("kolo run -n 2 --no-prefix python3 /tmp/sum.py")
    check(ran.stdout.splitlines() == ["2 libkolo.so.0"] * 2, "Python finds the library there", *said(ran))
    ran = inside("kolo run -n 2 /usr/libexec/kolo/all_reduce_perf -b 8 -e 64K -f 8 -n 2")
    check(ran.returncode == 0 and "# Out of bounds values : 0 OK" in ran.stdout, "a sweep runs there", *said(ran))
    gone = inside("apt-get purge -y libkolo0")
    ran = inside("find /usr /etc /var/lib -name '*kolo*'")
    check(gone.returncode == 0 and ran.returncode == 0 and not ran.stdout,
          "they leave nothing behind when they are removed", *said(gone), *said(ran))


def main():
    if os.environ.get("KOLO_TEST_FULL") != "1":
        return skip("only with ./test --full")
    with tempfile.TemporaryDirectory(prefix="kolo-deb-test-") as folder:
        made = run("bash", SOURCE + "/packaging/deb", folder + "/out", seconds=900)
        if made.returncode == 77:
            return skip(made.stderr.strip().replace("\n", " "))
        debs = [deb for deb in sorted(glob.glob(folder + "/out/*.deb")) if "dbgsym" not in deb]
        names = [os.path.basename(deb).split("_")[0] for deb in debs]
        check(made.returncode == 0 and names == ["kolo-mpi", "kolo-nccl", "kolo-tools", "libkolo-dev", "libkolo0", "python3-kolo"],
              "the packages are built, and lintian finds no error", *names, *said(made))
        root, suite = folder + "/root", code_name()
        if made.returncode != 0 or suite is None or os.geteuid() != 0 or shutil.which("debootstrap") is None:
            check(True, "a bare system # SKIP needs packages, Debian, root and debootstrap")
            return done()
        ran = run("debootstrap", "--variant=minbase", "--include=" + NEEDED, suite, root, seconds=600)
        if ran.returncode != 0:
            check(True, "a bare system # SKIP debootstrap cannot make one here: " + (said(ran) or [""])[-1])
            return done()
        check_bare_system(root, debs)
    return done()


main()
