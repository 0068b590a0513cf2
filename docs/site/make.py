# SPDX-License-Identifier: Apache-2.0
"""Makes the site of what is built already: lays out the pages, then runs Sphinx over them, strictly.

usage: make.py ROOT BUILD FOLDER     in the environment that has Sphinx
"""
import os
import shutil
import subprocess
import sys
import tempfile

import stage


def main():
    root, build, folder = (os.path.abspath(path) for path in sys.argv[1:])
    here = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory(prefix="kolo-site-") as pages:
        stage.Stage(root, build, pages).write_all()
        shutil.rmtree(folder, ignore_errors=True)
        strict = ["-n", "-W", "--keep-going", "-q"]
        ran = subprocess.run([sys.executable, "-B", "-m", "sphinx", *strict, "-b", "html", "-c", here,
                              "-d", os.path.join(pages, ".doctrees"), pages, folder], check=False)
    sys.exit(ran.returncode)


if __name__ == "__main__":
    main()
