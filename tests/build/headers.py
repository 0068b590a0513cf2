# SPDX-License-Identifier: Apache-2.0
# covers: include
"""Each public header compiles alone, in strict C17 and C++17, with every warning an error.

usage: headers.py ROOT CC... -- CXX...
"""
import os
import subprocess
import sys
import tempfile

import tap
import tree

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wcast-function-type", "-Wundef", "-Werror"]
LANGUAGES = (("C17", "c", "-std=c17"), ("C++17", "cpp", "-std=c++17"))


def compile_alone(compiler, suffix, standard, include, header):
    """What the compiler says to a file that includes `header` twice and nothing else; "" if nothing."""
    with tempfile.TemporaryDirectory(prefix="kolo-headers-") as folder:
        source = os.path.join(folder, "alone." + suffix)
        with open(source, "w", encoding="utf-8") as file:
            # Twice, so that a missing guard shows; the object keeps the file from being empty.
            file.write(f"#include <{header}>\n#include <{header}>\nextern int alone;\nint alone;\n")
        command = [*compiler, standard, *WARNINGS, "-I", include, "-fsyntax-only", source]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        return "" if ran.returncode == 0 else ran.stderr or "no message"


def check_that_faults_are_seen(compilers):
    """The same check on headers that must be refused."""
    faults = {
        "needs another header first": "size_t kolo_lost(void);\n",
        "has no guard": "struct kolo_twice { int x; };\n",
        "converts a number silently": "static inline signed char kolo_narrow(int x) { return x; }\n",
    }
    with tempfile.TemporaryDirectory(prefix="kolo-headers-") as include:
        for what, text in faults.items():
            with open(os.path.join(include, "faulty.h"), "w", encoding="utf-8") as file:
                file.write(text)
            for language, suffix, standard in LANGUAGES:
                said = compile_alone(compilers[suffix], suffix, standard, include, "faulty.h")
                tap.check(said, f"a header that {what} is refused as {language}")


def main():
    root, rest = sys.argv[1], sys.argv[2:]
    cut = rest.index("--")
    compilers = {"c": rest[:cut], "cpp": rest[cut + 1 :]}
    include = os.path.join(root, "include")
    headers = [path for path in tree.files(include) if path.endswith(".h")]
    tap.check("kolo/kolo.h" in headers, "kolo.h is among the public headers", headers)
    for header in headers:
        for language, suffix, standard in LANGUAGES:
            said = compile_alone(compilers[suffix], suffix, standard, include, header)
            tap.check(not said, f"{header} compiles alone as {language}", *said.splitlines())
    check_that_faults_are_seen(compilers)
    tap.done()


main()
