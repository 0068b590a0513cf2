# SPDX-License-Identifier: Apache-2.0
"""Every relative link and every anchor in the Markdown files leads somewhere, read on a code host.

A link is relative to its file, or with a slash to the root of the tree; an anchor is that of a heading.

usage: links.py ROOT
"""
import os
import sys
import tempfile

import tap
import tree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/site"))
import markdown  # noqa: E402


class Tree:
    """The files that a code host has, and the anchors of those that are Markdown."""

    def __init__(self, root):
        self.root = root
        self.files = set(tree.files(root) + tree.files(root, ".ci"))
        self.folders = {"."}
        for path in self.files:
            while os.path.dirname(path):
                path = os.path.dirname(path)
                self.folders.add(path)
        self.known = {}

    def text(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as file:
            return file.read()

    def anchors(self, path):
        if path not in self.known:
            self.known[path] = markdown.anchors(self.text(path))
        return self.known[path]

    def complaint(self, source, target):
        """What is wrong with a link of `source`, "" if nothing."""
        path, anchor = markdown.place(source, target)
        if path in self.folders and anchor:
            path = os.path.normpath(os.path.join(path, "README.md"))
        if path not in self.files | self.folders:
            return f"{path} is not there"
        if not anchor:
            return ""
        if not path.endswith(".md"):
            return self.line_complaint(path, anchor)
        return "" if anchor in self.anchors(path) else f"{path} has no heading for #{anchor}"

    def line_complaint(self, path, anchor):
        """#L12 and #L12-L20 are lines of a file."""
        lines = [part.removeprefix("L") for part in anchor.split("-")]
        if not all(part.isdigit() for part in lines):
            return f"#{anchor} is no line of {path}"
        most = self.text(path).count("\n")
        return "" if all(int(part) <= most for part in lines) else f"{path} has {most} lines"

    def complaints(self, source):
        text = self.text(source)
        found = [f"{source}: the link [{label}] has no target" for label in markdown.undefined(text)]
        for target, first, _ in markdown.links(text):
            said = "" if markdown.is_remote(source, target) else self.complaint(source, target)
            if said:
                found.append(f"{source}:{markdown.line_of(text, first)}: {target}: {said}")
        return found


RIGHT = """# A `code_word` & more: (twice)
[one](#a-code_word--more-twice), [two](docs/b.md#b), [three](docs/b.md#b-1), [four](/docs)
![five](docs/x.svg)
[six][label], <a href="docs/b.md">seven</a>, [eight](https://example.org/none#here), [nine](docs/b.md#by-hand)
`[code](gone.md)` [ten](docs/x.svg#L1) [![eleven](../../actions/x.svg)](../../actions/x)

```text
[fence](gone.md)
# no heading
```

[label]: docs/b.md
"""
WRONG = {
    "a file that is not there": "[x](gone.md)",
    "an anchor that no heading has": "# A\n[x](#b)",
    "an anchor of a heading in a fence": "```text\n# a\n```\n[x](#a)",
    "an anchor in another file": "[x](docs/b.md#c)",
    "a picture that is not there": "![x](docs/y.svg)",
    "a link in HTML": '<img src="docs/y.svg">',
    "a label without a target": "[x][y]",
    "a target of a label": "[x][y]\n\n[y]: docs/y.md",
    "a path out of the tree": "[x](../a.md)",
    "a page that no code host has": "[x](../../gone)",
    "a line that a file does not have": "[x](docs/x.svg#L7)",
    "an anchor in capitals": "# Ab\n[x](#Ab)",
}


def check_that_faults_are_seen():
    with tempfile.TemporaryDirectory(prefix="kolo-links-") as root:
        os.mkdir(os.path.join(root, "docs"))
        beside = '# B\n## B\n<a id="by-hand"></a>\n'
        files = {"docs/b.md": beside, "docs/x.svg": "<svg/>\n", "right.md": RIGHT}
        names = {f"wrong{i}.md": text for i, text in enumerate(WRONG.values())}
        for name, text in {**files, **names}.items():
            with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                file.write(text)
        found = Tree(root)
        said = found.complaints("right.md")
        tap.check(not said, "links that lead somewhere are taken", *said)
        for name, what in zip(names, WRONG):
            tap.check(len(found.complaints(name)) == 1, f"{what} is refused", *found.complaints(name))


def main():
    found = Tree(sys.argv[1])
    documents = sorted(path for path in found.files if path.endswith(".md"))
    tap.check(len(documents) > 5, "documents are found", *documents)
    for source in documents:
        said = found.complaints(source)
        tap.check(not said, f"{source}: every link leads somewhere", *said)
    check_that_faults_are_seen()
    tap.done()


main()
