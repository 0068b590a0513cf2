# SPDX-License-Identifier: Apache-2.0
"""Settings of Sphinx for the documentation site, and links that documents do not spell out: a code span
that names a document, a call, a variable or a command, and name(3), lead to the page of that name.
"""
import json
import os
import re

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.highlighting import lexers

project = "kolo"
author = "the authors of kolo"
html_title = "kolo"
extensions = ["myst_parser"]
root_doc = "index"
exclude_patterns = ["targets.json"]
source_suffix = {".md": "markdown"}

myst_heading_anchors = 6
myst_enable_extensions = ["colon_fence", "html_image", "strikethrough", "tasklist"]
# What a code host does not know must not mean anything here.
myst_disable_syntax = ["myst_block_break", "myst_line_comment", "myst_target", "myst_role"]
lexers["log"] = TextLexer(stripnl=False)

html_theme = "furo"
html_static_path = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "style.css")]
html_css_files = ["style.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_search_summary = False  # pages opened from disk may not read each other
pygments_style = "friendly"
pygments_dark_style = "monokai"

VERBATIM = (nodes.literal, nodes.literal_block, nodes.raw)
SHORT = 26  # letters of a cell
REFERENCE = re.compile(r"\b(kolo[\w-]*\(\d\))")


def known_targets(app):
    with open(os.path.join(app.srcdir, "targets.json"), encoding="utf-8") as file:
        return json.load(file)


def link_to(app, here, target, *children):
    page, _, anchor = target.partition("#")
    uri = app.builder.get_relative_uri(here, page) + (f"#{anchor}" if anchor else "")
    return nodes.reference("", "", *children, refuri=uri, internal=True)


def is_linked(node):
    """Stands in a link or a heading."""
    while node is not None:
        if isinstance(node, (nodes.reference, nodes.title)):
            return True
        node = node.parent
    return False


def target_of(text, here, targets):
    """A document is named from the root of the tree or, as README.md beside it, from its own folder."""
    beside = os.path.normpath(os.path.join(os.path.dirname(here), text)) if text.endswith(".md") else ""
    return targets.get(beside) or targets.get(text)


def mark_short_cells(tree):
    """So that the style keeps them on one line."""
    for cell in tree.findall(nodes.entry):
        if len(cell.astext()) <= SHORT:
            cell["classes"].append("short")


def finish(app, tree, here):
    mark_short_cells(tree)
    link_names(app, tree, here)


def link_names(app, tree, here):
    targets = known_targets(app)
    for node in list(tree.findall(nodes.literal)):
        target = target_of(node.astext(), here, targets)
        if target and target.partition("#")[0] != here and not is_linked(node):
            node.replace_self(link_to(app, here, target, node.deepcopy()))
    for node in list(tree.findall(nodes.Text)):
        pieces = [nodes.Text(piece) for piece in REFERENCE.split(node.astext()) if piece]
        if is_linked(node) or isinstance(node.parent, VERBATIM):
            continue
        node.parent.replace(node, [link_to(app, here, targets[piece], piece) if piece in targets else piece
                                   for piece in pieces])


def note_variables(app, _):
    """The search finds a variable at its entry, not only the page."""
    for name, target in known_targets(app).items():
        page, _, anchor = target.partition("#")
        if anchor and page == app.env.docname:
            app.env.domains["std"].note_object("envvar", name, anchor)


def setup(app):
    app.connect("doctree-read", note_variables)
    app.connect("doctree-resolved", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
