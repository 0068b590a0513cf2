# SPDX-License-Identifier: Apache-2.0
"""Tables for a page: one for each kind of run (ranks, type, buffers, inputs), a row for each size, a
cell for each collective with kolo's microseconds, the time of the fastest peer over kolo's, and that
of the floor over kolo's. These are ratios of medians."""
import results

WHAT = ("ranks", "link", "type", "buffers", "inputs", "cores")


def least(rows, wanted):
    """Median microseconds of the fastest method of the wanted families, or None."""
    return min((row["median_us"] for row in rows if wanted(row["family"])), default=None)


def cell(rows):
    """(text, peer over kolo or None, floor over kolo or None) of one collective at one size."""
    ours = least(rows, lambda family: family == "kolo")
    if ours is None:
        return "-", None, None
    peer = least(rows, lambda family: family not in ("kolo", "floor"))
    floor = least(rows, lambda family: family == "floor")
    ratios = [theirs / ours if theirs else None for theirs in (peer, floor)]
    return f"{results.number(ours)} · {ratio_text(ratios[0])} · {ratio_text(ratios[1], False)}", *ratios


def ratio_text(ratio, marked=True):
    """Two digits; strong where kolo is the slower one."""
    if ratio is None:
        return "-"
    text = f"{ratio:.0f}" if ratio >= 9.95 else f"{ratio:.1f}" if ratio >= 1.95 else f"{ratio:.2f}"
    return f"**{text}**" if marked and ratio < 1 else text


def bytes_text(size):
    """ "64 K"; a barrier has none."""
    for unit, factor in (("M", 1 << 20), ("K", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return str(size) if size else "-"


def table(rows):
    """Lines of one table."""
    names = list(dict.fromkeys(row["collective"] for row in rows))
    lines = ["| bytes | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    ratios = {name: ([], []) for name in names}
    for size in sorted({row["bytes"] for row in rows}):
        texts = []
        for name in names:
            text, *found = cell([row for row in rows if row["bytes"] == size and row["collective"] == name])
            texts.append(text)
            for kept, ratio in zip(ratios[name], found):
                kept += [ratio] if ratio else []
        lines.append(f"| {bytes_text(size)} | " + " | ".join(texts) + " |")
    means = []
    for name in names:
        peer, floor = (results.geometric(kept) if kept else None for kept in ratios[name])
        means.append(f"mean · {ratio_text(peer)} · {ratio_text(floor, False)}")
    return lines + ["| | " + " | ".join(means) + " |"]


def page(rows):
    """All tables of rows as results.read_csv() gives them."""
    lines = []
    for what in dict.fromkeys(tuple(row[key] for key in WHAT) for row in rows):
        ranks, link, kind, buffers, inputs, cores = what
        mine = [row for row in rows if tuple(row[key] for key in WHAT) == what]
        flags = sorted(float(row["flag_ns"]) for row in mine if row["flag_ns"])
        head = f"{ranks} ranks{f' on {cores} cores' if cores else ''}{f', {link}' if link else ''}, {kind}, " \
               f"{buffers} buffers, {inputs} inputs"
        if flags:
            head += f"; flag {flags[0]:.0f} / {flags[len(flags) // 2]:.0f} / {flags[-1]:.0f} ns (least, median and " \
                    "most of the rows)"
        lines += [head] if flags or link else []
        lines += ["", *table(mine), ""]
    return "\n".join(lines)
