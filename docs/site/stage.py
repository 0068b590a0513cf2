# SPDX-License-Identifier: Apache-2.0
"""Lays out the pages of the documentation site for Sphinx: every Markdown file of the tree at its own
path, README.md as the front page, the manual, pictures that the kolo command draws, and listings of
the files that documents link to.

usage: stage.py ROOT BUILD FOLDER     BUILD has the manual and the kolo command
"""
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field

import man_pages
import markdown

# The order of a newcomer. A pattern takes what no exact name and no earlier pattern has taken.
SECTIONS = {
    "Start": ["README.md", "docs/install.md", "docs/README.md"],
    "Guides": ["docs/hosts.md", "docs/pytorch.md", "docs/frameworks.md", "torch/README.md", "python/README.md", "docs/nccl.md", "docs/mpi.md",
               "docs/gpu.md", "docs/failures.md", "docs/log.md", "docs/tuning.md", "train/README.md",
               "docs/*.md", "examples/README.md", "examples/*/README.md"],
    "Reference": ["docs/tools.md", "docs/environment.md", "@manual", "@headers"],
    "How it works": ["docs/architecture.md", "docs/decisions", "@pictures", "docs/glossary.md"],
    "Results": ["perf/README.md", "perf/RESULTS.md", "perf/RESULTS*.md", "perf/*.md"],
    "Contributing": ["CONTRIBUTING.md", "docs/algorithm.md", "docs/transport.md", "tests/README.md",
                     "SECURITY.md", "CHANGELOG.md", "*.md"],
}
HEADERS = ["include/kolo/kolo.h", "include/kolo/codec.h", "include/kolo/members.h", "include/kolo/plugin.h",
           "include/kolo/nccl/nccl.h"]
LANGUAGES = {".c": "c", ".h": "c", ".def": "c", ".cpp": "cpp", ".cc": "cpp", ".cu": "cpp", ".py": "python",
             ".sh": "sh", ".build": "meson"}
PICTURES = (".svg", ".png", ".jpg", ".jpeg", ".gif")
# File, what is seen on it, and the command that draws it.
DRAWN = [
    ("ring.svg", "All-reduce round a ring of four ranks: chunks travel on, first added, then copied.",
     "kolo plan allreduce_ring -n 4"),
    ("tree.svg", "All-reduce of eight ranks over two trees.", "kolo plan allreduce_tree -n 8"),
    ("doubling.svg", "All-reduce of eight ranks by recursive doubling.", "kolo plan allreduce_doubling -n 8"),
    ("hier.svg", "All-reduce of eight ranks in two groups that share a cache each.",
     "kolo plan allreduce_hier -n 8 --groups 0,0,0,0,1,1,1,1"),
    ("caches.svg", "A machine of two packages, each with four caches of four cores.",
     "kolo topo tests/data/hwloc-2pack-4l3-4core.xml"),
    ("nics.svg", "A machine of eight GPUs and four NICs, from a topology file of NCCL.",
     "kolo topo tests/data/nccl-8gpu-4nic.xml"),
    ("nvswitch.svg", "Four GPUs behind NVSwitch.", "kolo topo tests/data/hwloc-4gpu-nvswitch.xml"),
]
ALERT = re.compile(r"^> \[!(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\]\n((?:>.*\n)+)", re.MULTILINE)
BADGE = re.compile(r"\[!\[[^\]]*\]\(([^)\s]+)\)\]\([^)\s]+\)|!\[[^\]]*\]\(([^)\s]+)\)")
LINK = re.compile(r"\[([^\[\]]+)\]\(([^)\s]+)\)")
NOT_DOCUMENTS = ("build", "__pycache__", "dist")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def documents(root):
    """Paths of the Markdown files of the tree, sorted."""
    found = []
    for here, below, names in os.walk(root):
        below[:] = [name for name in below if not name.startswith((".", *NOT_DOCUMENTS))]
        found += [os.path.relpath(os.path.join(here, name), root) for name in names if name.endswith(".md")]
    return sorted(found)


def header_page(path):
    return "headers/" + os.path.basename(path)


def without_remote(source, text):
    """A document without pictures from a network, and without links to pages of a code host."""
    for match in reversed(list(BADGE.finditer(markdown.prose(text)))):
        if markdown.is_remote(source, match.group(1) or match.group(2)):
            text = text[:match.start()] + text[match.end():]
    for match in reversed(list(LINK.finditer(markdown.prose(text)))):
        if markdown.is_host_page(source, match.group(2)):
            text = text[:match.start()] + text[slice(*match.span(1))] + text[match.end():]
    return text


def admonition(match):
    """What a code host shows as a box is a box here."""
    lines = re.sub(r"^> ?", "", match.group(2), flags=re.MULTILINE)
    return f":::{{{match.group(1).lower()}}}\n{lines}:::\n"


@dataclass
class Node:
    """A document's place: the pages below it in the navigation."""
    name: str
    below: list = field(default_factory=list)


class Stage:
    def __init__(self, root, build, folder):
        self.root, self.folder = root, folder
        self.kolo = os.path.join(build, "tools/kolo")
        self.sources = documents(root)
        self.manual = man_pages.Manual(root, os.path.join(build, "docs/man"))
        self.listings = []

    # ---- where things lie ----

    @staticmethod
    def page_of(source):
        """The page of a Markdown file, without its ending."""
        return "index" if source == "README.md" else source.removesuffix(".md")

    def write(self, page, text):
        path = os.path.join(self.folder, page + ".md")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def copy(self, source):
        path = os.path.join(self.folder, source)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copyfile(os.path.join(self.root, source), path)

    # ---- Markdown files ----

    def document(self, source, node):
        text = without_remote(source, read(os.path.join(self.root, source)))
        for target, first, last in reversed(markdown.links(text)):
            text = text[:first] + self.target(source, target) + text[last:]
        text = ALERT.sub(admonition, text)
        if node is None:
            text = "---\norphan: true\n---\n\n" + text
        elif node.below:
            text += toctree("", node.below, source)
        if source == "README.md":
            text += self.navigation
        self.write(self.page_of(source), text)

    def target(self, source, target):
        """Where a link of a document leads on the site."""
        if markdown.is_web(target) or target.startswith("#"):
            return target
        here = os.path.dirname(source)
        path, anchor = markdown.place(source, target)
        if os.path.isdir(os.path.join(self.root, path)):
            readme = os.path.normpath(os.path.join(path, "README.md"))
            path = readme if readme in self.sources else path
        if path in self.sources:
            path = self.page_of(path) + ".md"
        elif path.endswith(PICTURES):
            self.copy(path)
        elif os.path.exists(os.path.join(self.root, path)):
            path, anchor = self.listing(path) + ".md", ""
        return os.path.relpath(path, here or ".") + (f"#{anchor}" if anchor else "")

    # ---- listings of files and folders ----

    def listing(self, path):
        if path in HEADERS:
            return header_page(path)
        page = "source/" + path
        if path not in self.listings:
            self.listings.append(path)
            full, title = os.path.join(self.root, path), f"---\norphan: true\n---\n\n# {path}\n\n"
            if os.path.isdir(full):
                names = [f"- `{name}`" for name in sorted(os.listdir(full)) if name[0] not in "._"]
                self.write(page, title + "\n".join(names) + "\n")
            else:
                self.write(page, title + self.fence(path))
        return page

    def fence(self, path):
        kind = LANGUAGES.get(os.path.splitext(path)[1], "text")
        text = read(os.path.join(self.root, path))
        kind = "sh" if re.match(r"#!.*\b(ba)?sh\b", text) else kind
        return f"``````{kind}\n{text.rstrip()}\n``````\n"

    # ---- what is made ----

    def write_manual(self):
        for page in self.manual.pages.values():
            self.write("man/" + page.name, self.manual.markdown(page))
        for topic in self.manual.topics:
            self.write("man/" + topic.name, self.manual.topic_page(topic))
        self.write("man/index", self.manual.index())
        return "man/index"

    def write_headers(self):
        names = [header_page(path) for path in HEADERS]
        for path, name in zip(HEADERS, names):
            self.write(name, f"# {os.path.relpath(path, 'include')}\n\n" + self.fence(path))
        links = [f"- [{os.path.relpath(path, 'include')}]({os.path.basename(path)}.md)" for path in HEADERS]
        text = "\n".join(["# Public headers", "", *links, toctree("", names, "headers/index.md")])
        self.write("headers/index", text)
        return "headers/index"

    def write_pictures(self):
        out = ["# Pictures", "`kolo topo --svg` and `kolo plan --svg` drew these pictures. The command stands"
               " below each picture."]
        os.makedirs(os.path.join(self.folder, "pictures"), exist_ok=True)
        for name, what, command in DRAWN:
            words = [*command.split()[1:], "--svg", os.path.join(self.folder, "pictures", name)]
            subprocess.run([self.kolo, *words], cwd=self.root, stdout=subprocess.DEVNULL, check=True)
            out += [f"## {what.split(':')[0].rstrip('.')}", f"![{what}](pictures/{name})",
                    f"```sh\n{command} --svg {name}\n```"]
        self.write("pictures", "\n\n".join(out) + "\n")
        return "pictures"

    # ---- navigation ----

    def sections(self):
        """{section: [Node]}."""
        exact = {pattern for patterns in SECTIONS.values() for pattern in patterns}
        free = [source for source in self.sources if source not in exact]
        found = {}
        for title, patterns in SECTIONS.items():
            found[title] = []
            for pattern in patterns:
                found[title] += self.nodes(pattern, free)
        return found

    def nodes(self, pattern, free):
        made = {"@manual": self.write_manual, "@headers": self.write_headers,
                "@pictures": self.write_pictures}
        if pattern in made:
            return [Node(made[pattern]())]
        if pattern in self.sources:
            return [Node(self.page_of(pattern))]
        if os.path.isdir(os.path.join(self.root, pattern)):
            return self.folder_nodes(pattern)
        taken = [source for source in free if same_depth(source, pattern)]
        free[:] = [source for source in free if source not in taken]
        return [Node(self.page_of(source)) for source in taken]

    def folder_nodes(self, folder):
        """A folder of documents is one entry: its README.md, or a page made for it."""
        names = [self.page_of(source) for source in self.sources if source.startswith(folder + "/")]
        top = folder + "/README"
        if top not in names:
            top = folder + "/index"
            title = os.path.basename(folder).capitalize()
            entries = "\n".join(os.path.relpath(name, folder) for name in names)
            self.write(top, f"# {title}\n\n```{{toctree}}\n:maxdepth: 1\n\n{entries}\n```\n")
            return [Node(top)]
        return [Node(top, [name for name in names if name != top])]

    def targets(self):
        """{text of a code span: page#anchor} of what documents name without a link."""
        found = {source: self.page_of(source) for source in self.sources}
        found |= {path: header_page(path) for path in HEADERS}
        for page in self.manual.pages.values():
            name, place = page.name[:-2], "man/" + page.name
            found[page.title] = place
            if page.section == "3":
                found |= {f"{name}()": place, name: place}
            elif page.section == "1":
                found[name.replace("-", " ")] = place
        found |= {name: f"man/kolo-env.7#{name}" for name in self.manual.variables}
        found.pop("kolo", None)
        return found

    def write_all(self):
        sections = self.sections()
        nodes = {node.name: node for section in sections.values() for node in section}
        below = {name for node in nodes.values() for name in node.below}
        below |= {self.page_of(source) for source in self.sources if source.startswith("docs/decisions/")}
        self.navigation = "".join(toctree(title, [node.name for node in section], "README.md")
                                  for title, section in sections.items() if section)
        for source in self.sources:
            name = self.page_of(source)
            self.document(source, nodes.get(name) or (Node(name) if name in below else None))
        with open(os.path.join(self.folder, "targets.json"), "w", encoding="utf-8") as file:
            json.dump(self.targets(), file, indent=1)


def same_depth(source, pattern):
    """Matches, and * is no /."""
    return source.count("/") == pattern.count("/") and fnmatch.fnmatchcase(source, pattern)


def toctree(caption, names, source):
    here = os.path.dirname(source) or "."
    entries = ["Overview <self>" if name == "index" else os.path.relpath(name, here) for name in names]
    head = [f":caption: {caption}"] if caption else []
    return "\n".join(["", "", "```{toctree}", ":hidden:", *head, "", *entries, "```", ""])


def main():
    root, build, folder = (os.path.abspath(path) for path in sys.argv[1:])
    Stage(root, build, folder).write_all()


if __name__ == "__main__":
    main()
