# SPDX-License-Identifier: Apache-2.0
"""Every source file opens with the SPDX line of the licence, scripts right after their first line.

usage: spdx.py ROOT
"""
import os
import sys
import tempfile

import tap
import tree

LICENCE = "SPDX-License-Identifier: Apache-2.0"
COMMENT_SIGNS = {
    **dict.fromkeys((".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".cuh"), "//"),
    **dict.fromkeys((".py", ".sh"), "#"),
}


def complaint(root, path):
    """What is wrong with the opening of a file, "" if nothing, None if it is no source."""
    first, second = (tree.first_lines(os.path.join(root, path), 2) + ["", ""])[:2]
    name, suffix = os.path.basename(path), os.path.splitext(path)[1]
    if first.startswith("#!"):
        first, sign = second, "#"
    elif name == "meson.build":
        sign = "#"
    elif suffix in COMMENT_SIGNS:
        sign = COMMENT_SIGNS[suffix]
    else:
        return None
    return "" if first == f"{sign} {LICENCE}" else f"{path}: opens with {first!r}"


def check_that_faults_are_seen():
    cases = {
        "without.c": "int x;\n",
        "other.h": "// SPDX-License-Identifier: MIT\n",
        "late.py": "import os\n# " + LICENCE + "\n",
        "script": "#!/bin/sh\necho\n",
    }
    with tempfile.TemporaryDirectory(prefix="kolo-spdx-") as root:
        for name, text in cases.items():
            with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                file.write(text)
            tap.check(complaint(root, name), f"a {name} that does not open with the line is refused")


def main():
    root = sys.argv[1]
    found = [complaint(root, path) for path in tree.files(root)]
    sources = [text for text in found if text is not None]
    tap.check(len(sources) > 10, "source files are found", len(sources))
    wrong = [text for text in sources if text]
    tap.check(not wrong, f"all {len(sources)} source files open with the SPDX line", *wrong)
    check_that_faults_are_seen()
    tap.done()


main()
