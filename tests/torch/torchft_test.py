# SPDX-License-Identifier: Apache-2.0
# covers: torch/kolo_torch torch/csrc
"""torchft's own tests, those that its wheel has and that run over gloo on CPUs, over kolo.

usage: torchft_test.py [--backend kolo|gloo]
What fails must be in KNOWN with its reason, and what is there must fail. Without KOLO_TEST_WHOLE=1 in
the environment, the groups in processes of their own are left out: they start 30 processes, which must
each have loaded PyTorch within 10 seconds.
"""
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.join(HERE, "..", "..", ".venv-frameworks", "bin", "python")
MODULES = ("process_group_test", "manager_integ_test", "local_sgd_integ_test", "lighthouse_test", "ddp_test",
           "parameter_server_test")
KNOWN = {"test_gloo_timeout": "it looks for the words of a TCPStore; kolo names the rank that has not joined"}
# Tests with races of their own: the text of the failure, the begin of the test's name, and the cause. Such a test is
# run again by itself, and must pass then. The first one fails over gloo, too.
RACES = {"Tensor-likes are not close": ("test_ddp_skip_init_sync", "its threads share a random generator, and one may "
                                        "draw from it between another's seed and weights"),
         "Timeout expired": ("test_", "torchft's own calls have limits of seconds, which a busy machine exceeds")}
TRIES = 3
LIMIT_S = 400


def run(backend, report, only=None):
    """Run them, or `only` one; exit status of pytest and its output."""
    left_out = "not nccl" if os.environ.get("KOLO_TEST_WHOLE") else "not nccl and not Baby and not baby"
    command = [PYTHON, "-m", "pytest", "-q", "--timeout", "120", "-k", only or left_out, "--junitxml", report,
               "-o", "junit_family=xunit1", "-p", "no:cacheprovider",
               *(["-p", "in_gloos_place"] if backend == "kolo" else []),
               "--pyargs", *(f"torchft.{module}" for module in MODULES)]
    path = os.environ.get("PYTHONPATH", "") + os.pathsep + HERE
    with tempfile.TemporaryDirectory() as empty:  # torchft has a module named http: not from its folder
        done = subprocess.run(command, cwd=empty, timeout=LIMIT_S, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              env={**os.environ, "PYTHONPATH": path})
    return done.returncode, done.stdout


def race(name, text):
    """Why a failed test may pass by itself, or None."""
    return next((why for said, (begin, why) in RACES.items() if said in text and name.startswith(begin)), None)


def passes_again(backend, name):
    """Whether a test passes by itself."""
    with tempfile.TemporaryDirectory() as folder:
        return any(run(backend, os.path.join(folder, "report.xml"), name)[0] == 0 for _ in range(TRIES))


def main():
    backend = sys.argv[2] if sys.argv[1:2] == ["--backend"] else "kolo"
    there = os.path.exists(PYTHON) and subprocess.run([PYTHON, "-c", "import torchft, pytest, pytest_timeout"],
                                                      check=False, capture_output=True).returncode == 0
    if not there:
        print("1..0 # SKIP there is no torchft: ./setup --frameworks")
        return 0
    known = KNOWN if backend == "kolo" else {}
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.xml")
        status, output = run(backend, report)
        cases = list(xml.etree.ElementTree.parse(report).iter("testcase")) if os.path.exists(report) else []
    bad = not cases or status > 1
    for number, case in enumerate(cases, 1):
        name = case.get("name")
        failed = case.find("failure") if case.find("failure") is not None else case.find("error")
        skipped = case.find("skipped")
        why = race(name, failed.text or "") if failed is not None and name not in known else None
        again = why is not None and passes_again(backend, name)
        right = again or (failed is not None) == (name in known)
        bad = bad or not right
        print(f"{'ok' if right else 'not ok'} {number} - {case.get('classname')}.{name}" +
              (f" # SKIP {skipped.get('message')}" if skipped is not None else
               f": passes by itself: {why}" if again else
               f": fails as it is known to: {known[name]}" if name in known else ""))
        if failed is not None and not right:
            print("".join(f"# {line}\n" for line in (failed.text or "").splitlines()), end="")
    print(f"1..{len(cases) or 1}")
    if not cases or status > 1:
        print("".join(f"# {line}\n" for line in output.splitlines()), end="")
    return int(bad)


sys.exit(main())
