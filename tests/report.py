# SPDX-License-Identifier: Apache-2.0
"""Counts the test cases of one suite from the log that `meson test` leaves, for ./test.

A GoogleTest program counts its cases, a TAP script its lines; anything else is one case. A program
that fails without saying where (a crash, a time limit) counts one failure more. What a failed
program printed goes to stderr, its end at least.

usage: report.py LOG.json      prints "passed failed skipped"
"""
import json
import os
import re
import sys

GOOGLETEST = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] \S.* \(\d+ ms\)$", re.MULTILINE)
TAP = re.compile(r"^(ok|not ok)\b([^#\n]*)(# *skip)?", re.MULTILINE | re.IGNORECASE)
SHOWN_LINES = 60


def count(test):
    """[passed, failed, skipped] of one line of meson's log."""
    output = test.get("stdout") or ""
    if "[==========] Running " in output:
        words = GOOGLETEST.findall(output)
        counts = [words.count(word) for word in ("OK", "FAILED", "SKIPPED")]
    elif re.search(r"^1\.\.[1-9]", output, re.MULTILINE):  # 1..0: skipped
        lines = TAP.findall(output)
        skipped = sum(bool(skip) for _, _, skip in lines)
        failed = sum(word == "not ok" and not skip for word, _, skip in lines)
        counts = [len(lines) - failed - skipped, failed, skipped]
    else:
        counts = [int(test["result"] == "OK"), 0, int(test["result"] == "SKIP")]
    if test["result"] not in ("OK", "SKIP", "EXPECTEDFAIL") and counts[1] == 0:
        counts[1] = 1
    return counts


def tells_success(line, good):
    """Whether a line only says that a check passed, or that a case in `good` began."""
    began = re.match(r"\[ RUN +\] (\S+)", line)
    return (began and began.group(1) in good) or re.match(r"ok \d|\[ +OK +\]", line)


def show(test):
    """What a failed test printed: without what passed, and of what is long the end."""
    print(f"\n---- {test['name']}: {test['result']}", file=sys.stderr)
    for stream in ("stdout", "stderr"):
        text = test.get(stream) or ""
        good = set(re.findall(r"\[ +OK +\] (\S+)", text))
        lines = [line for line in text.splitlines() if not tells_success(line, good)]
        if len(lines) > SHOWN_LINES:
            lines = ["[...]", *lines[-SHOWN_LINES:]]
        print("\n".join(lines), file=sys.stderr)


def main():
    totals = [0, 0, 0]
    if not os.path.exists(sys.argv[1]):  # a suite without tests leaves no log
        print(*totals)
        return
    with open(sys.argv[1], encoding="utf-8") as log:
        for line in log:
            test = json.loads(line)
            counts = count(test)
            totals = [total + more for total, more in zip(totals, counts)]
            if counts[1]:
                show(test)
    print(*totals)


if __name__ == "__main__":
    main()
