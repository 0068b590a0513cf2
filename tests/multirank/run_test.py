# SPDX-License-Identifier: Apache-2.0
# covers: tools/run/run.c tools/run/elastic.c tools/run/options.c tools/run/pump.c tools/run/start.c src/boot
"""`kolo run` and the `kolo` command as their user sees them.

usage: run_test.py KOLO MEET   (the kolo tool, and the program of meet.c)
"""
import os
import pty
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from tap import check, run_tests

KOLO, MEET = sys.argv[1:]
LIMIT_S = 60
CPUS = len(os.sched_getaffinity(0))


def kolo(*args, data=b"", env=None, limits=None):
    """Exit status, output and errors of the tool; an endless one is a failure that says so."""
    try:
        ended = subprocess.run([KOLO, *args], input=data, capture_output=True, timeout=LIMIT_S,
                               check=False, env={**os.environ, **(env or {})}, preexec_fn=limits)
        return ended.returncode, ended.stdout, ended.stderr.decode()
    except subprocess.TimeoutExpired as late:
        return None, late.stdout or b"", f"still running after {LIMIT_S} s"


def run(nranks, script, *options, data=b""):
    """The script by `sh` on each of `nranks` ranks."""
    return kolo("run", "-n", str(nranks), *options, "sh", "-c", script, data=data)


def start(nranks, script, *options, **more):
    """The same, but it goes on."""
    command = [KOLO, "run", "-n", str(nranks), *options, "sh", "-c", script]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            bufsize=0, **more)


def ended(process):
    """Exit status and the rest of the output of a process of start()."""
    try:
        out, err = process.communicate(timeout=LIMIT_S)
        return process.returncode, out, err.decode()
    except subprocess.TimeoutExpired:
        process.kill()
        return None, b"", f"still running after {LIMIT_S} s"


def read_until(fd, pattern):
    """What comes from fd up to the pattern; what came when the time or the stream is over."""
    got, deadline = b"", time.monotonic() + LIMIT_S
    while not re.search(pattern, got) and time.monotonic() < deadline:
        if select.select([fd], [], [], 1)[0]:
            try:
                piece = os.read(fd, 65536)
            except OSError:  # a terminal whose other side is closed
                break
            if not piece:
                break
            got += piece
    return got


def state_of(pid):
    """The letter of the process's state; none if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


def is_alive(pid):
    """Whether the process runs (a zombie does not)."""
    return state_of(pid) not in ("", "Z")


def comes_to(pid, state):
    """Whether the process comes to this state within the limit."""
    deadline = time.monotonic() + LIMIT_S
    while state_of(pid) != state and time.monotonic() < deadline:
        os.sched_yield()
    return state_of(pid) == state


def are_gone(pids):
    """Whether all end within the limit."""
    deadline = time.monotonic() + LIMIT_S
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        os.sched_yield()
    return not any(is_alive(pid) for pid in pids)


def pids_in(folder):
    """The process ids that ranks left as names of files."""
    return [int(name) for name in os.listdir(folder)]


# ---- ranks and their environment ---------------------------------------------------------------

def test_environment():
    status, out, err = run(3, "echo $KOLO_RANK $KOLO_NRANKS $KOLO_LOCAL_RANK $KOLO_LOCAL_SIZE "
                              "$KOLO_JOB ${#KOLO_SECRET}", "--prefix")
    rows = sorted(line.split() for line in out.decode().splitlines())
    check(status == 0 and err == "", "a job whose ranks succeed ends with status 0", status, err)
    check([row[:5] for row in rows] == [[f"[{i}]", str(i), "3", str(i), "3"] for i in range(3)],
          "each rank knows its number and how many there are", *rows)
    check(len({row[5] for row in rows}) == 1 and {row[6] for row in rows} == {"64"},
          "all ranks have the same job and a secret", *rows)
    script = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT"
    torch = sorted(line.split() for line in run(2, script, "--no-prefix")[1].decode().splitlines())
    check([row[:5] for row in torch] == [[str(i), "2", str(i), "2", "127.0.0.1"] for i in range(2)] and
          len({row[5] for row in torch}) == 1 and torch[0][5].isdigit(),
          "each rank gets what torch's init_process_group() reads", *torch)
    mine = kolo("run", "-n", "2", "sh", "-c", script, env={"MASTER_ADDR": "::1", "MASTER_PORT": "7", "RANK": "9"})
    check(sorted(line.split()[-6:] for line in mine[1].decode().splitlines()) ==
          [[str(i), "2", str(i), "2", "::1", "7"] for i in range(2)],
          "the user's place where torch's ranks meet stays; the ranks are this job's", mine)
    queues = "echo $CUDA_DEVICE_MAX_CONNECTIONS"
    check(run(1, queues)[1].split()[-1] == b"32", "a GPU has as many hardware queues as it can")
    own = kolo("run", "-n", "1", "sh", "-c", queues, env={"CUDA_DEVICE_MAX_CONNECTIONS": "1"})
    check(own[1].split()[-1] == b"1", "the user's number of hardware queues stays", own)
    other = run(1, "echo $KOLO_JOB")[1].decode().strip()
    check(other not in ("", rows[0][5]), "another job has another name", other)


def test_cpus():
    script = "grep Cpus_allowed_list /proc/self/status"
    one = run(1, script)[1].decode().split()[-1]
    check(one.isdigit(), "a rank is bound to one cpu while there are enough", one)
    every = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    none = run(1, script, "--bind", "none")[1].decode()
    many = run(CPUS + 1, script, "--prefix")[1].decode()
    check(none == every, "--bind none leaves the rank on all cpus", none, every)
    check(all(line.endswith(every.strip()) for line in many.splitlines()),
          "more ranks than cpus are not bound", many)
    status, _, err = run(CPUS + 1, "true", "--bind", "core")
    check(status == 2 and f"{CPUS + 1} ranks" in err,
          "--bind core is refused for more ranks than cpus", status, err)


def test_many_ranks():
    def few_files():
        resource.setrlimit(resource.RLIMIT_NOFILE,
                           (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    status, out, err = kolo("run", "-n", "100", "--prefix", "sh", "-c", "ulimit -n",
                            limits=few_files)
    rows = sorted(out.decode().splitlines(), key=lambda line: int(line[1:line.index("]")]))
    check(status == 0 and rows == [f"[{i}] 64" for i in range(100)],
          "100 ranks run where 64 files may be open, and keep that limit", status, err, *rows[:3])


# ---- how it ends ------------------------------------------------------------------------------

def test_failures():
    status, _, err = run(3, 'test $KOLO_RANK = 1 && exit 3; sleep 1000')
    check(status == 3, "the status is that of the rank that failed", status, err)
    check(re.fullmatch(r"kolo run: rank 1 \(pid \d+\) exited with status 3\n", err),
          "one line says which rank failed and how", err)
    status, _, err = run(3, 'test $KOLO_RANK = 2 && kill -SEGV $$; sleep 1000')
    check(status == 139 and "rank 2 (pid " in err and "signal 11 (Segmentation fault)" in err,
          "a rank that is killed by a signal is named, with status 128 + signal", status, err)
    begin = time.monotonic()
    status, _, err = run(2, 'test $KOLO_RANK = 1 && sleep 1 && exit 7; trap "" TERM; sleep 1000')
    took = time.monotonic() - begin
    check(status == 7 and 3.9 < took < 20,
          "a rank that ignores SIGTERM is killed 3 s later", status, took, err)
    status, _, err = run(2, 'test $KOLO_RANK = 1 && { echo last words >&2; exit 1; }; sleep 1000')
    check(err.startswith("[1] last words\nkolo run: rank 1"),
          "what the failed rank said comes before the report", err)
    status, out, _ = run(2, 'test $KOLO_RANK = 1 && exit 4; trap "echo bye; exit 0" TERM; '
                            'sleep 1000 & wait')
    check((status, out) == (4, b"bye\n"), "the others may end in order on SIGTERM", status, out)


def test_nothing_is_left():
    for what, script, expected in (
            ("fails", 'test $KOLO_RANK = 1 || sleep 1000; exit 5', 5),
            ("succeeds", "exit 0", 0)):
        with tempfile.TemporaryDirectory() as folder:
            family = f'sleep 1000 & : > {folder}/$!; : > {folder}/$$; '
            wait = f'while [ $(ls {folder} | wc -l) -lt 4 ]; do :; done; '
            status, _, err = run(2, family + wait + script)
            check(status == expected and len(pids_in(folder)) == 4 and are_gone(pids_in(folder)),
                  f"no child or grandchild is left of a job that {what}", status, err)
    with tempfile.TemporaryDirectory() as folder:
        process = start(2, f": > {folder}/$$; echo ready; exec sleep 1000")
        read_until(process.stdout.fileno(), b"ready\n(.*\n)*.*ready\n")
        pids = pids_in(folder)
        process.kill()
        ended(process)
        check(len(pids) == 2 and are_gone(pids), "ranks die with a `kolo run` that is killed", pids)


def test_signals():
    for name, number in (("SIGINT", signal.SIGINT), ("SIGTERM", signal.SIGTERM)):
        process = start(2, "trap 'echo caught; exit 9' INT TERM; echo ready; sleep 1000 & wait")
        read_until(process.stdout.fileno(), b"ready\n(.*\n)*.*ready\n")
        process.send_signal(number)
        status, out, err = ended(process)
        check(status == 9 and b"caught\n" in out, f"{name} is passed on to the ranks",
              status, out, err)
    process = start(2, "echo ready; exec sleep 1000")
    read_until(process.stdout.fileno(), b"ready\n(.*\n)*.*ready\n")
    process.send_signal(signal.SIGTERM)
    status, _, err = ended(process)
    check((status, err) == (143, ""), "a job that ends by a signal passed on says nothing of it",
          status, err)
    process = start(2, "trap 'echo caught' TERM; echo ready; "
                       "while :; do sleep 1000 & wait; done")
    read_until(process.stdout.fileno(), b"ready\n(.*\n)*.*ready\n")
    process.send_signal(signal.SIGTERM)
    read_until(process.stdout.fileno(), b"caught\n")
    process.send_signal(signal.SIGTERM)
    status, _, err = ended(process)
    check(status == 137, "the second signal kills", status, err)
    process = start(2, "echo pid $$; kill -STOP $$; exec sleep 1000")
    out = read_until(process.stdout.fileno(), rb"pid \d+\n(.*\n)*.*pid \d+\n")
    stopped = [int(pid) for pid in re.findall(rb"pid (\d+)", out)]
    check(all(comes_to(pid, "T") for pid in stopped), "both ranks have stopped", stopped)
    process.send_signal(signal.SIGTERM)
    status, _, err = ended(process)
    check(status == 143, "one signal ends stopped ranks, too", status, err)


def test_timeout():
    status, _, err = run(2, "exec sleep 1000", "--timeout", "1")
    check((status, err) == (124, "kolo run: 2 of 2 ranks had not ended after 1 s\n"),
          "--timeout ends the job with status 124", status, err)
    check(run(2, "exit 0", "--timeout", "50")[0] == 0, "a job within its time does not notice")


def test_refusals():
    for what, args, text in (
            ("0 ranks", ["-n", "0", "true"], '"0" is not a number of 1 to 4096'),
            ("no number", ["true"], "how many ranks?"),
            ("words for numbers", ["-n", "two", "true"], '"two" is not a number'),
            ("a range that is none", ["--elastic", "3:2", "true"], '"3:2" is not MIN:MAX'),
            ("restarts of a job that is not elastic", ["-n", "2", "--max-restarts", "3", "true"], "for --elastic"),
            ("no command", ["-n", "2"], "which command?"),
            ("an unknown option", ["-n", "2", "--color", "true"], "unknown option --color"),
            ("an unknown binding", ["-n", "2", "--bind", "socket", "true"], '"socket"')):
        status, out, err = kolo("run", *args)
        check(status == 2 and out == b"" and text in err, f"kolo run with {what} is refused",
              status, err)
    status, _, err = kolo("run", "-n", "2", "/nonexistent/program")
    check(status == 127 and err.count("\n") == 1 and "/nonexistent/program" in err,
          "a program that is not there gives one line and status 127", status, err)
    status, _, err = kolo("run", "-n", "2", "/")
    check(status == 126, "a program that may not run gives status 126", status, err)


# ---- output and input -------------------------------------------------------------------------

def elastic(ranks, script, *options):
    """The script by `sh` on the ranks of an elastic job, with a place for its folder of its own."""
    with tempfile.TemporaryDirectory(prefix="kolo-run-test-") as place:
        ended_as = kolo("run", "--elastic", ranks, *options, "sh", "-c", script, env={"TMPDIR": place})
        return *ended_as, os.listdir(place)


def test_elastic():
    script = ('echo $KOLO_RANK of $KOLO_NRANKS, $KOLO_ELASTIC, again $KOLO_RESTARTS; touch $KOLO_ELASTIC_DIR/mine; '
              'stat -c %a $KOLO_ELASTIC_DIR; [ $KOLO_RANK$KOLO_RESTARTS = 10 ] && kill -9 $$; sleep 1')
    status, out, err, left = elastic("1:2", script)
    check(status == 0 and b"[1] 1 of 2, 1:2, again 0" in out and b"[1] 1 of 2, 1:2, again 1" in out
          and out.count(b"700") == 3, "a rank that is killed is started again, and told so", status, out, err)
    check("rank 1 (pid" in err and "killed by signal 9" in err and err.count("kolo run:") == 1,
          "its death is told", err)
    check(left == [], "the folder where ranks meet is removed with what they left", left)
    status, out, err, _ = elastic("1:2", "sleep 60 & echo $!; [ $KOLO_RANK$KOLO_RESTARTS = 10 ] && exit 3; kill $!; sleep 0.5")
    child = re.search(rb"\[1\] (\d+)", out)
    check(status == 0 and child and not is_alive(int(child[1])), "what a failed rank started ends with it", status, out, err)
    status, out, err, _ = elastic("1:2", "[ $KOLO_RANK = 1 ] && exit 5; sleep 1", "--max-restarts", "2")
    check(status == 0 and err.count("exited with status 5") == 3, "restarts are bounded, and enough ranks go on", status, err)
    status, out, err, _ = elastic("2:2", "[ $KOLO_RANK = 1 ] && exit 5; sleep 60")
    check(status == 5, "too few ranks end the job with the status of the first failure", status, err)
    status, out, err, _ = elastic("1:2", "[ $KOLO_RANK = 1 ] && { echo all is lost >$KOLO_ELASTIC_DIR/failed; kill -9 $$; }; sleep 60")
    check(status == 1 and "killed by signal 9" in err and "kolo run: all is lost\n" in err,
          "a job that cannot go on ends with the reason", status, err)
    status, out, err, _ = elastic("1:2", "[ $KOLO_RANK = 1 ] && { sleep 0.5; exit 5; }; echo $KOLO_RESTARTS")
    check(status == 0 and err.count("exited with status 5") == 1, "once a rank has finished, none is started again", status, err)


def test_prefixes():
    say = "echo out$KOLO_RANK; echo err$KOLO_RANK >&2"
    _, out, err = run(2, say)
    check(sorted(out.split(b"\n")) == [b"", b"[1] out1", b"out0"],
          "lines of ranks but 0 have a prefix", out)
    check(sorted(err.split("\n")) == ["", "[1] err1", "err0"],
          "standard error stays standard error", err)
    _, out, _ = run(2, say, "--prefix")
    check(sorted(out.split(b"\n")) == [b"", b"[0] out0", b"[1] out1"], "--prefix is for all", out)
    _, out, _ = run(2, say, "--no-prefix")
    check(sorted(out.split(b"\n")) == [b"", b"out0", b"out1"], "--no-prefix is for none", out)
    check(run(1, say)[1] == b"out0\n", "a single rank has no prefix")
    check(run(1, say, "--prefix")[1] == b"[0] out0\n", "a single rank has one with --prefix")


def test_lines():
    program = ("import os,sys\n"
               "rank = os.environ['KOLO_RANK']\n"
               "for i in range(40):\n"
               "    for piece in range(30):\n"
               "        os.write(1, rank.encode() * 10000)\n"
               "    os.write(1, b'\\n')\n")
    status, out, err = kolo("run", "-n", "3", sys.executable, "-c", program)
    rows = out.split(b"\n")
    want = {b"0" * 300000, b"[1] " + b"1" * 300000, b"[2] " + b"2" * 300000}
    check(status == 0 and rows.pop() == b"" and len(rows) == 120 and set(rows) == want,
          "lines of 300000 characters from three ranks stay whole", status, err, len(rows))
    _, out, _ = run(2, r"test $KOLO_RANK = 0 || printf 'a\0b\n\nend'")
    check(out == b"[1] a\0b\n[1] \n[1] end\n",
          "zero bytes, empty lines and a last line without an end are kept", out)
    _, out, _ = run(2, r"test $KOLO_RANK = 1 || printf 'a\0b\n\nend'")
    check(out == b"a\0b\n\nend", "rank 0's bytes are unchanged", out)


def test_prompt():
    process = start(2, 'test $KOLO_RANK = 1 || { printf "name? "; read x; echo "I am $x"; }',
                    stdin=subprocess.PIPE)
    prompt = read_until(process.stdout.fileno(), rb"name\? ")
    check(prompt == b"name? ", "a prompt is shown though its line has no end", prompt)
    process.stdin.write(b"Kolo\n")
    status, out, err = ended(process)
    check((status, out) == (0, b"I am Kolo\n"), "rank 0 reads standard input", status, out, err)
    _, out, _ = run(3, 'test $KOLO_RANK = 0 || cat; echo end', "--prefix", data=b"text\n")
    check(sorted(out.split(b"\n")) == [b"", b"[0] end", b"[1] end", b"[2] end"],
          "the others read nothing", out)


def test_terminal():
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(KOLO, [KOLO, "run", "-n", "2", "sh", "-c",
                        'test $KOLO_RANK = 0 && { echo ready; read x; echo "got $x"; }; '
                        "exec sleep 1000"])
    got = read_until(terminal, b"ready")
    os.write(terminal, b"word\n")
    got += read_until(terminal, b"got word")
    check(b"got word" in got, "rank 0 reads what is typed at a terminal", got)
    os.write(terminal, b"\x03")
    read_until(terminal, b"$^")
    status = os.waitpid(pid, 0)[1]
    os.close(terminal)
    check(os.waitstatus_to_exitcode(status) == 130, "Ctrl-C at the terminal ends the job", status)


def test_closed_output():
    process = start(2, "exec yes")
    os.read(process.stdout.fileno(), 10)
    process.stdout.close()
    process.stdout = None
    status, _, err = ended(process)
    check(status == 141, "a job whose output nobody reads ends", status, err)


# ---- the command, and real ranks --------------------------------------------------------------

def test_command():
    status, out, err = kolo("dance")
    check(status == 2 and 'no command "dance"' in err and "  run " in err and out == b"",
          "an unknown command lists the known ones", status, err)
    check(kolo()[0] == 2, "without a command the list comes with status 2")
    status, out, _ = kolo("help")
    check(status == 0 and b"  topo " in out, "kolo help prints the list", out)
    for command in ("run", "ps", "plan", "sim", "topo", "log", "doctor", "tune", "env"):
        status, out, err = kolo(command, "--no-such")
        check((status, out, err.count("\n")) == (2, b"", 1) and err.startswith(f"kolo {command}: ") and
              "--no-such" in err, f"kolo {command} refuses an unknown option in one line", status, out, err)
    status, out, _ = kolo("help", "run")
    check(status == 0 and out.startswith(b"Usage: kolo run"), "kolo help run describes it", out)
    status, _, err = kolo("help", "dance")
    check(status == 2 and 'no command "dance"' in err, "kolo help knows no other commands", err)
    status, out, _ = kolo("version")
    check(status == 0 and re.fullmatch(rb"kolo \d+\.\d+\.\d+\n", out),
          "kolo version prints it", out)
    status, out, _ = kolo("run", "--help")
    check(status == 0 and out.startswith(b"Usage: kolo run"), "kolo run --help helps", out)


def met(text, nranks, launcher):
    """Whether each rank said that it met the others."""
    said = sorted(re.findall(r"rank (\d+) of (\d+) met the others twice, started by (.*)", text))
    return said == sorted((str(i), str(nranks), launcher) for i in range(nranks))


def test_meeting():
    for nranks in (1, 2, 8, 256):
        status, out, err = kolo("run", "-n", str(nranks), MEET)
        check(status == 0 and met(out.decode(), nranks, "kolo run"),
              f"{nranks} processes meet twice", status, err)
    status, _, err = kolo("run", "-n", "4", MEET, "2")
    check(status == 137 and "rank 2 (pid " in err and "signal 9" in err,
          "the rank that died between the meetings is reported", status, err)
    status, _, err = kolo("run", "-n", "2", "env", "KOLO_RANK=0", MEET)
    check(status == 1 and "rank 0 joined twice" in err,
          "two processes that both say rank 0 are told so", status, err)
    jobs = [start(4, f"exec {MEET}", "--prefix") for _ in range(4)]
    results = [ended(job) for job in jobs]
    check(all(status == 0 and met(out.decode(), 4, "kolo run") for status, out, _ in results),
          "four jobs at once do not mix", *results)


def test_words():
    """Of variables that say what to log."""
    status, _, err = kolo("run", "-n", "1", MEET, env={"KOLO_DEBUG": "LOUD", "KOLO_DEBUG_SUBSYS": "graph,NOISE"})
    check(status == 0 and err.count("is not known") == 2 and '"LOUD"' in err and '"NOISE"' in err,
          "a word of KOLO_DEBUG or KOLO_DEBUG_SUBSYS that is none is told, and the job runs", status, err)


def test_other_launchers():
    mpirun = shutil.which("mpirun")
    told = mpirun and subprocess.run([mpirun, "--version"], capture_output=True, text=True,
                                     check=False).stdout
    if not told or "Open MPI" not in told:
        check(True, "ranks of Open MPI meet # SKIP no mpirun of Open MPI here")
        return
    ran = subprocess.run([mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "3", MEET],
                         capture_output=True, text=True, timeout=LIMIT_S, check=False)
    check(ran.returncode == 0 and met(ran.stdout, 3, "mpirun (Open MPI)"), "ranks of Open MPI meet",
          ran.returncode, ran.stdout, ran.stderr)


run_tests(globals())
