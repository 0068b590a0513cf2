# SPDX-License-Identifier: Apache-2.0
"""Reads Markdown as a code host shows it: where links point, and which anchors headings get.

Code is not prose: fences, code spans and comments are blanked out, letter by letter, before links are
looked for, so that offsets stay those of the file.
"""
import html
import os
import re
from urllib.parse import unquote

FENCE = re.compile(r"^[ >]*(`{3,}|~{3,})[^\n]*\n.*?(?:^[ >]*\1[`~]*[ ]*$|\Z)", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"(?<!`)(`+)(?!`)((?:(?!\n\s*\n).)+?)(?<!`)\1(?!`)", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
TARGET = r"<?([^()\s<>]*(?:\([^()\s]*\)[^()\s<>]*)*)>?"
INLINE = re.compile(rf"\]\(\s*{TARGET}(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)")
DEFINITION = re.compile(rf"^ {{0,3}}\[([^\]^][^\]]*)\]:\s*{TARGET}[^\n]*$", re.MULTILINE)
REFERENCE = re.compile(r"\]\[([^\]]+)\]")
TAG = re.compile(r"<(?:a|img|source)\b[^>]*?\b(?:href|src)\s*=\s*[\"']([^\"']*)[\"']", re.IGNORECASE)
EXPLICIT = re.compile(r"<\w+\b[^>]*?\b(?:id|name)\s*=\s*[\"']([^\"']+)[\"']", re.IGNORECASE)
HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+([^\n]*?)[ \t]*#*[ \t]*$"
                     r"|^(?! {4}|[ ]*[-*+>|#])([^\n]*\S[^\n]*)\n {0,3}(=+|-+)[ \t]*$", re.MULTILINE)
HOST_PAGES = ("../../actions", "../../discussions", "../../issues", "../../pulls", "../../releases",
              "../../security")
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)


def blanked(pattern, text):
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)


def without_fences(text):
    return blanked(FENCE, text)


def prose(text):
    """The text with blanks in place of code and comments."""
    return blanked(COMMENT, blanked(CODE, without_fences(text)))


def links(text):
    """[(target, first, last)] of all links and pictures, in the order of the text; text[first:last] is the
    target."""
    bare = prose(text)
    found = [(match.group(1), *match.span(1)) for match in INLINE.finditer(bare)]
    found += [(match.group(2), *match.span(2)) for match in DEFINITION.finditer(bare)]
    found += [(match.group(1), *match.span(1)) for match in TAG.finditer(bare)]
    return sorted(found, key=lambda link: link[1])


def undefined(text):
    """Labels of links [text][label] that no line [label]: defines."""
    bare = prose(text)
    known = {match.group(1).lower() for match in DEFINITION.finditer(bare)}
    return [label for label in REFERENCE.findall(bare) if label.lower() not in known]


def is_web(target):
    """Has a scheme, such as https: or mailto:."""
    return bool(SCHEME.match(target))


def place(source, target):
    """(path from the root of the tree, anchor) of a relative link in the file `source`. A path that
    leaves the tree begins with ../"""
    path, _, anchor = target.partition("#")
    path = unquote(path.partition("?")[0])
    if not path:
        return source, anchor
    if not path.startswith("/"):
        path = os.path.join(os.path.dirname(source), path)
    return os.path.normpath(path.lstrip("/") or "."), anchor


def is_host_page(source, target):
    """A page of the code host beside the files, such as ../../actions from the root of the tree: there a
    file's address ends in blob/BRANCH/PATH."""
    return not is_web(target) and place(source, target)[0].startswith(HOST_PAGES)


def is_remote(source, target):
    """Needs a network."""
    return is_web(target) or is_host_page(source, target)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def headings(text):
    """[(level, text)], the text as Markdown."""
    bare = blanked(COMMENT, without_fences(text))
    return [(len(match.group(1)) if match.group(1) else 1 + match.group(4).startswith("-"),
             match.group(2) if match.group(1) else match.group(3).strip())
            for match in HEADING.finditer(bare)]


def shown(heading):
    """A heading without its marks, as a reader sees it."""
    heading = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", heading)
    heading = re.sub(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", heading)
    pieces = re.split(r"(`[^`]*`)", heading)
    for i in range(0, len(pieces), 2):
        piece = re.sub(r"<[^>]*>", "", pieces[i])
        piece = re.sub(r"(\*{1,3})(?=\S)(.+?)(?<=\S)\1", r"\2", piece)
        pieces[i] = html.unescape(re.sub(r"(?<!\w)(_{1,3})(?=\S)(.+?)(?<=\S)\1(?!\w)", r"\2", piece))
    return "".join(piece.strip("`") if i % 2 else piece for i, piece in enumerate(pieces))


def slug(heading):
    """The anchor of a heading: small letters, no punctuation, a dash for each space."""
    return re.sub(r"[^\w\- ]", "", shown(heading).strip().lower()).replace(" ", "-")


def anchors(text):
    """All anchors of a document; equal headings are numbered."""
    found, seen = set(), {}
    for _, heading in headings(text):
        name = slug(heading)
        number = seen.get(name, 0)
        seen[name] = number + 1
        found.add(f"{name}-{number}" if number else name)
    return found | set(EXPLICIT.findall(prose(text)))
