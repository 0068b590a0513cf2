# SPDX-License-Identifier: Apache-2.0
"""The manual as pages of the site: mandoc makes HTML of each page, this module cuts it into headings,
code and the rest, links pages to each other, and groups them by topic.

The topics of section 3 are the parts of the public headers, between their lines `---- topic ----`.
"""
import html
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../include"))
import declared  # noqa: E402

PAGE = re.compile(r"[\w-]+\.[1-9]")
SECTION = re.compile(r'<section class="Sh">\s*<h1 class="Sh"[^>]*>(.*?)</h1>(.*?)</section>\s*'
                     r'(?=<section class="Sh">|</div>\s*<table class="foot">)', re.DOTALL)
BANNER = re.compile(r"/\* -{4} (.*?) -{4}\s*\*/")
REFERENCE = re.compile(r"<(b|i)>([\w-]+)</\1>\((\d)\)")
VARIABLE = re.compile(r"<b>(KOLO_[A-Z0-9_]+)</b>(?!</dt>)")
ENTRY = re.compile(r'<dt id="([^"]*)">')
PRE = re.compile(r"<pre>.*?</pre>", re.DOTALL)
TAG = re.compile(r"<(/?)(\w+)[^>]*?(/?)>")
HEADERS = {"kolo/kolo.h": "", "kolo/codec.h": "", "kolo/members.h": "", "kolo/plugin.h": "Plug-ins: "}


def text_of(markup):
    """What a reader sees of HTML."""
    return html.unescape(re.sub(r"<[^>]*>", "", markup))


@dataclass
class Page:
    name: str  # as that of its file, kolo_recv.3
    sections: list = field(default_factory=list)  # [(heading, HTML)]

    @property
    def title(self):
        return re.sub(r"\.(\d)$", r"(\1)", self.name)

    @property
    def section(self):
        return self.name[-1]

    def in_short(self):
        """What stands behind the dash in NAME."""
        return " ".join(text_of(dict(self.sections)["NAME"]).partition(" - ")[2].split())


@dataclass
class Topic:
    title: str
    pages: list

    @property
    def name(self):
        return re.sub(r"\W+", "-", self.title.lower())


class Manual:
    def __init__(self, root, folder):
        names = sorted(name for name in os.listdir(folder) if PAGE.fullmatch(name))
        self.pages = {name: Page(name, sections_of(os.path.join(folder, name))) for name in names}
        self.variables = set()
        if "kolo-env.7" in self.pages:
            for _, markup in self.pages["kolo-env.7"].sections:
                self.variables.update(re.findall(r'<dt id="(KOLO_[A-Z0-9_]+)">', markup))
        self.topics = self.by_topic(root)

    def by_topic(self, root):
        commands = [page for page in self.pages.values() if page.section == "1"]
        others = [page for page in self.pages.values() if page.section not in "13"]
        topics = [Topic("Commands", sorted(commands, key=lambda page: (page.name != "kolo.1", page.name))),
                  Topic("Concepts, environment and formats", others)]
        for header, before in HEADERS.items():
            with open(os.path.join(root, "include", header), encoding="utf-8") as file:
                parts = BANNER.split(file.read())
            for title, text in zip(parts[1::2], parts[2::2]):
                pages = [self.pages[f"{one.name}.3"] for one in declared.functions(text)]
                topics.append(Topic(before + title if before else title.capitalize(), pages))
        placed = {page.name for topic in topics for page in topic.pages}
        types = [page for page in self.pages.values() if page.name not in placed]
        topics.insert(2, Topic("Types and constants", types))
        return [topic for topic in topics if topic.pages]

    def linked(self, markup):
        """References name(3) and variables become links."""
        def reference(match):
            name = f"{match.group(2)}.{match.group(3)}"
            link = f'<a class="reference internal" href="{name}.html">{match.group(0)}</a>'
            return link if name in self.pages else match.group(0)

        def variable(match):
            shown, name = match.group(0, 1)
            link = f'<a class="reference internal" href="kolo-env.7.html#{name}">{shown}</a>'
            return link if name in self.variables else shown
        return VARIABLE.sub(variable, REFERENCE.sub(reference, markup))

    def markdown(self, page):
        """A page as Markdown with HTML in it."""
        out = [f"# {page.title}"]
        for heading, markup in page.sections:
            out.append(f"## {heading}")
            if heading == "SYNOPSIS" and "<pre>" not in markup:
                out.append(synopsis(markup))
                continue
            for is_code, piece in pieces_of(self.linked(markup)):
                out.append(code_block(piece) if is_code else f"````{{raw}} html\n{piece}\n````")
        return "\n\n".join(out) + "\n"

    @staticmethod
    def table(topic):
        rows = [f"| [{page.title}]({page.name}.md) | {cell(page.in_short())} |" for page in topic.pages]
        return "\n".join(["| page | in short |", "| --- | --- |", *rows])

    def topic_page(self, topic):
        entries = "\n".join(page.name for page in topic.pages)
        return f"# {topic.title}\n\n{self.table(topic)}\n\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"

    def index(self):
        out = ["# Manual, by topic", "`man` shows the same pages where kolo is installed."]
        for topic in self.topics:
            out += [f"## {topic.title}", self.table(topic)]
        entries = "\n".join(topic.name for topic in self.topics)
        return "\n\n".join([*out, f"```{{toctree}}\n:hidden:\n\n{entries}\n```"]) + "\n"


def cell(text):
    return re.sub(r"([|\\<>`*_\[\]])", r"\\\1", text)


def sections_of(path):
    """[(heading, HTML)] of a page, as mandoc makes it."""
    ran = subprocess.run(["mandoc", "-Thtml", "-Ofragment", "-Werror", path], capture_output=True, text=True,
                         check=False)
    if ran.returncode != 0:
        sys.exit(f"mandoc refuses {path}:\n{ran.stderr}{ran.stdout}")
    found = SECTION.findall(ran.stdout)
    return [(" ".join(text_of(heading).split()), tidied(markup)) for heading, markup in found]


def tidied(markup):
    """Without what mandoc writes for its own style: links of an entry to itself, breaks between lines that
    keep their breaks anyhow, anchors with a comma in them."""
    markup = re.sub(r'<a class="permalink"[^>]*>(.*?)</a>', r"\1", markup, flags=re.DOTALL)
    markup = PRE.sub(lambda match: re.sub(r"<br/>\n?", "", match.group(0)), markup)
    markup = ENTRY.sub(lambda match: f'<dt id="{re.sub(r"[^A-Za-z0-9_.-]", "", match.group(1))}">', markup)
    return re.sub(r'<p class="Pp">\s*</p>', "", markup).strip()


def pieces_of(markup):
    """[(is code, HTML)]: a <pre> that stands in nothing else is code."""
    found, depth, at, start = [], 0, 0, 0
    for match in TAG.finditer(markup):
        closes, name, alone = match.groups()
        if alone or name in ("br", "hr"):
            continue
        if not closes and depth == 0 and name == "pre":
            found.append((False, markup[at:match.start()]))
            start = match.end()
        depth += -1 if closes else 1
        if closes and depth == 0 and name == "pre":
            found.append((True, markup[start:match.start()]))
            at = match.end()
    found.append((False, markup[at:]))
    return [(is_code, piece.strip("\n")) for is_code, piece in joined(found) if piece.strip()]


def joined(pieces):
    """Code that follows code is one block."""
    out = []
    for is_code, piece in pieces:
        if not is_code and not piece.strip():
            continue
        if is_code and out and out[-1][0]:
            out[-1] = (True, out[-1][1].rstrip("\n") + "\n\n" + piece.lstrip("\n"))
        else:
            out.append((is_code, piece))
    return out


def synopsis(markup):
    """Lines in bold, as code. A long line breaks between brackets, never inside."""
    out = []
    for line in markup.split("<br/>"):
        line = " ".join(text_of(line).split())
        line = re.sub(r"\[[^]]*\]", lambda match: match.group(0).replace(" ", "\xa0"), line)
        out += textwrap.wrap(line, 88, subsequent_indent=" " * 8, break_on_hyphens=False)
    return code_block(html.escape("\n".join(out)).replace("\xa0", " "))


def code_block(markup):
    text = text_of(markup).rstrip("\n")
    is_c = re.search(r"^#include|;$|^enum |^struct |^/\*", text, re.MULTILINE)
    kind = "c" if is_c else "text"
    return f"````{kind}\n{text}\n````"
