# SPDX-License-Identifier: Apache-2.0
"""The documentation site builds without a warning, every link in it leads somewhere, no page loads anything
from a network, and every public call has a page.

usage: site.py ROOT BUILD
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from urllib.parse import unquote

import tap
import tree

ROOT = sys.argv[1]
sys.path.insert(0, os.path.join(ROOT, "include"))
import declared  # noqa: E402

WEB = re.compile(r"(https?:)?//", re.IGNORECASE)
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
CSS_LOADS = re.compile(r"""@import\s+["']([^"']+)|url\(\s*["']?([^"')]+)""", re.IGNORECASE)
# What a page follows only when its reader does.
LINKS = ("a", "area", "form")
LOADS = ("src", "href", "xlink:href", "data", "poster", "srcset", "action")


class Html(HTMLParser):
    """A page: its anchors, what it links to and what it loads."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loads, self.style = set(), [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.style = tag == "style"
        for name, value in attributes:
            value = value or ""
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif name == "style":
                self.loads += css_loads(value)
            elif name in LOADS and tag in LINKS:
                self.links.append(value)
            elif name == "srcset":
                self.loads += [one.split()[0] for one in value.split(",") if one.strip()]
            elif name in LOADS:
                self.loads.append(value)

    def handle_endtag(self, tag):
        self.style = False

    def handle_data(self, data):
        if self.style:
            self.loads += css_loads(data)


def css_loads(text):
    return [first or second for first, second in CSS_LOADS.findall(text)]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def worded(page, said):
    return [f"{page}: {target}: {text}" for target, text in said.items() if text]


class Site:
    def __init__(self, folder):
        self.folder = folder
        self.pages = {os.path.relpath(path, folder): Html(read(path))
                      for path in glob.glob(os.path.join(folder, "**/*.html"), recursive=True)}

    def place(self, page, target):
        """(file, anchor) of a link that is not into the web."""
        path, _, anchor = target.partition("#")
        path = unquote(path.partition("?")[0])
        return os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page, unquote(anchor)

    def complaint(self, page, target, loads):
        path, anchor = self.place(page, target)
        if WEB.match(target):
            return "is loaded from a network" if loads else ""
        if SCHEME.match(target):
            return ""
        if not os.path.isfile(os.path.join(self.folder, path)):
            return f"{path} is not there"
        if anchor and path in self.pages and anchor not in self.pages[path].anchors:
            return f"{path} has no #{anchor}"
        return ""

    def complaints(self):
        """Of links, and of what pages load."""
        of_links, of_loads = [], []
        for page, html in sorted(self.pages.items()):
            for found, targets, loads in ((of_links, html.links, False), (of_loads, html.loads, True)):
                said = {target: self.complaint(page, target, loads) for target in targets}
                found += worded(page, said)
        for pattern in ("**/*.css", "**/*.svg"):
            for path in glob.glob(os.path.join(self.folder, pattern), recursive=True):
                text, page = read(path), os.path.relpath(path, self.folder)
                loads = css_loads(text) + (Html(text).loads if path.endswith(".svg") else [])
                said = {target: self.complaint(page, target, True) for target in loads}
                of_loads += worded(page, said)
        return of_links, of_loads


GOOD = """<html><head><link rel="stylesheet" href="a.css"></head><body id="top">
<a href="https://example.org">web</a> <a href="#top">up</a> <a href="sub/b.html#x?">b</a>
<img src="data:image/png;base64,AA"></body></html>"""
BAD_LINKS = ['<a href="gone.html">', '<a href="#gone">', '<a href="sub/b.html#gone">']
BAD_LOADS = [
    '<script src="https://example.org/a.js"></script>',
    '<img src="//example.org/a.png">',
    '<img src="gone.png">',
    '<link rel="preconnect" href="https://example.org">',
    "<style>@import 'https://example.org/a.css'</style>",
    '<p style="background: url(https://example.org/a.png)">',
    '<img srcset="https://example.org/a.png 2x">',
    '<object data="https://example.org/a.svg"></object>',
    '<iframe src="http://example.org"></iframe>',
]


def check_that_faults_are_seen():
    def complaints(text, style=""):
        with tempfile.TemporaryDirectory(prefix="kolo-site-") as folder:
            os.mkdir(os.path.join(folder, "sub"))
            for name, body in {"a.html": text, "sub/b.html": '<p id="x?">', "a.css": style}.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(body)
            return Site(folder).complaints()
    said = complaints(GOOD)
    tap.check(said == ([], []), "a page that is right is taken", *said)
    for text in BAD_LINKS:
        tap.check(len(complaints(text)[0]) == 1, f"{text} is refused")
    for text in BAD_LOADS:
        tap.check(len(complaints(text)[1]) == 1, f"{text} is refused")
    style = "p { background: url(https://example.org/a) }"
    tap.check(len(complaints(GOOD, style)[1]) == 1, "a style that loads from a network is refused")


def check_site(site):
    tap.check(len(site.pages) > 50 and "index.html" in site.pages, f"the site has {len(site.pages)} pages")
    links, loads = site.complaints()
    tap.check(not links, "every link and every anchor leads somewhere", *links[:40])
    tap.check(not loads, "no page loads anything from a network, or what is not there", *loads[:40])
    index = site.pages.get("man/index.html", Html(""))
    calls = [one.name for one in declared.functions("".join(read(os.path.join(ROOT, "include/kolo", name))
                                                     for name in ("kolo.h", "codec.h", "members.h")))]
    lost = [name for name in calls
            if f"{name}.3.html" not in index.links or f"man/{name}.3.html" not in site.pages]
    tap.check(calls and not lost, f"the index has a page for each of the {len(calls)} public calls", *lost)
    documents = [path for path in tree.files(ROOT) if path.endswith(".md") and path != "README.md"]
    lost = [path for path in documents if path.removesuffix(".md") + ".html" not in site.pages]
    tap.check(not lost, "every document has a page", *lost)
    check_search(site, calls)


def check_search(site, calls):
    """The index is a script, which a page opened from disk can load."""
    path = os.path.join(site.folder, "searchindex.js")
    text = read(path) if os.path.exists(path) else ""
    table = read(os.path.join(ROOT, "src/util/variables.def"))
    variables = re.findall(r'^KOLO_VARIABLE\(\w+, "(KOLO_\w+)"', table, re.MULTILINE)
    lost = [name for name in [f"{name}(3)" for name in calls] + variables if f'"{name}"' not in text]
    tap.check(variables and not lost, "the search finds every public call and every variable", *lost)


def python_with_sphinx():
    python = os.path.join(ROOT, ".venv-docs/bin/python3")
    if os.path.exists(python):
        command = [python, "-c", "import furo, myst_parser, sphinx"]
        ran = subprocess.run(command, capture_output=True, check=False)
        return python if ran.returncode == 0 else None
    return None


def main():
    python = python_with_sphinx()
    if python is None or shutil.which("mandoc") is None:
        print("1..0 # SKIP no Sphinx in .venv-docs, or no mandoc: ./setup --docs installs them")
        return
    check_that_faults_are_seen()
    with tempfile.TemporaryDirectory(prefix="kolo-site-") as folder:
        script = os.path.join(ROOT, "docs/site/make.py")
        ran = subprocess.run([python, "-B", script, ROOT, sys.argv[2], folder], text=True, check=False,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=tap.machine_env())
        said = ran.stdout.splitlines()[-40:]
        tap.check(ran.returncode == 0, "the site builds without a warning", *said)
        check_site(Site(folder))
    tap.done()


main()
