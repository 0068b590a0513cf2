# SPDX-License-Identifier: Apache-2.0
"""Measures a picture: which boxes and words lie on each other."""
import xml.etree.ElementTree as ElementTree

SVG = "{http://www.w3.org/2000/svg}"
LETTER = 0.56  # width of a letter of the pictures' font, in sizes; a little less than it is


def boxes_of(root):
    for box in root.iter(SVG + "rect"):
        values = [float(box.get(key, "0").rstrip("%")) for key in ("x", "y", "width", "height")]
        if "%" not in box.get("width", "") and box.get("fill") not in ("none", "white", "#fff", "#ffffff"):
            yield values


def words_of(root):
    for text in root.iter(SVG + "text"):
        if text.get("stroke") == "white":
            continue  # the rim of a label, below it
        word = "".join(text.itertext())
        size = float(text.get("font-size", "12"))
        width = LETTER * size * len(word)
        anchor = text.get("text-anchor", "start")
        x = float(text.get("x")) - {"start": 0, "middle": width / 2, "end": width}[anchor]
        if word and text.get("transform") is None:
            yield [x, float(text.get("y")) - 0.75 * size, width, 0.8 * size], word


def meet(a, b, slack=1.0):
    return (a[0] + a[2] > b[0] + slack and b[0] + b[2] > a[0] + slack and
            a[1] + a[3] > b[1] + slack and b[1] + b[3] > a[1] + slack)


def holds(a, b):
    return (a[0] <= b[0] + 1 and a[1] <= b[1] + 1 and a[0] + a[2] >= b[0] + b[2] - 1 and
            a[1] + a[3] >= b[1] + b[3] - 1)


def overlaps(svg):
    """Pairs of boxes that cross, words that cross words, words that leave their box; the width."""
    root = ElementTree.fromstring(svg)
    boxes, words = list(boxes_of(root)), list(words_of(root))
    over = [("boxes", a, b) for i, a in enumerate(boxes) for b in boxes[:i]
            if meet(a, b) and not holds(a, b) and not holds(b, a)]
    over += [("boxes alike", a) for i, a in enumerate(boxes) for b in boxes[:i] if a == b]
    over += [("words", v, w) for i, (a, v) in enumerate(words) for b, w in words[:i] if meet(a, b, 1.5)]
    over += [("word leaves box", w, b) for a, w in words for b in boxes
             if meet(a, b, 2.5) and not holds(b, a) and not holds(a, b)]
    return over, float(root.get("width", "0").rstrip("px")), [w for _, w in words]
