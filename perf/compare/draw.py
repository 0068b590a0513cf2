# SPDX-License-Identifier: Apache-2.0
"""Pictures of what compare measured: a chart of times for each collective, and one of all ratios.

Lines are labelled where they end, the best setting of a library is its line, and the floor is grey.
"""
import math
import sys

COLOURS = {"kolo": "#d1495b", "Open MPI": "#2e6f95", "MPICH": "#8a5fa8", "Gloo": "#3a8f5c", "floor": "#8c8c8c"}
OTHERS = ("#b8860b", "#444444", "#c06c2b")
WHAT = ("ranks", "link", "type", "buffers", "inputs", "cores")


def load():
    """matplotlib without a screen, or None with a line that says where to get it."""
    try:
        import matplotlib  # pylint: disable=import-outside-toplevel
    except ImportError:
        print("compare: no pictures without matplotlib: ./setup --compare, or apt-get install python3-matplotlib",
              file=sys.stderr)
        return None
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False,
                                "svg.fonttype": "none", "svg.hashsalt": "kolo", "figure.dpi": 110})
    import matplotlib.pyplot as plt  # pylint: disable=import-outside-toplevel
    return plt


def bytes_text(size):
    """ "64 K"."""
    for unit, factor in (("M", 1 << 20), ("K", 1 << 10)):
        if size >= factor:
            return f"{size / factor:g} {unit}"
    return f"{size:g}"


def time_text(us):
    """ "64 us" where it is short, "3 ms" where it is long."""
    return f"{us * 1000:g} ns" if us < 1 else f"{us:g} µs" if us < 1000 else f"{us / 1000:g} ms"


def best(rows):
    """{family: {bytes: (median, q1, q3)}}, of the method with the least median."""
    found = {}
    for row in rows:
        times = (row["median_us"], row["q1_us"], row["q3_us"])
        sizes = found.setdefault(row["family"], {})
        sizes[row["bytes"]] = min(sizes.get(row["bytes"], times), times)
    return found


def colour(family, families):
    """The same for a library in every picture."""
    others = [name for name in families if name not in COLOURS]
    return COLOURS.get(family) or OTHERS[others.index(family) % len(OTHERS)]


def ticks_of(axis, text):
    """Ticks at powers, written as people say them."""
    from matplotlib.ticker import FuncFormatter, NullLocator  # pylint: disable=import-outside-toplevel
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axis.set_minor_locator(NullLocator())


def spread(wanted, gap):
    """Heights (logarithms) near the wanted ones, `gap` apart, in the same order."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = dict(zip(order, sorted(wanted)))
    for _ in range(200):
        for low, high in zip(order, order[1:]):
            missing = gap - (placed[high] - placed[low])
            if missing > 1e-9:
                placed[low] -= missing / 2
                placed[high] += missing / 2
    return [placed[i] for i in range(len(wanted))]


def label_ends(axes, ends, inches):
    """ends: (x, y, text, colour); texts to the right of the axes, none on another."""
    low, high = (math.log10(value) for value in axes.get_ylim())
    gap = 0.21 / inches * (high - low)
    heights = spread([math.log10(y) for _, y, _, _ in ends], gap)
    right = max(x for x, _, _, _ in ends)
    for (x, y, text, shade), height in zip(ends, heights):
        axes.annotate(text, (x, y), xytext=(right * 1.7, 10 ** height), color=shade, va="center", fontweight="bold",
                      annotation_clip=False, arrowprops={"arrowstyle": "-", "color": shade, "lw": 0.7, "alpha": 0.6})


def title_of(what):
    """ "2 ranks on near cores, float32, private buffers, hot inputs"."""
    ranks, link, kind, buffers, inputs, cores = what
    return f"{ranks} ranks{f' on {cores} cores' if cores else ''}{f', {link}' if link else ''}, {kind}, {buffers} buffers, {inputs} inputs"


def curves(plt, collective, what, rows):
    """Times over sizes of one collective."""
    found = best(rows)
    figure, axes = plt.subplots(figsize=(8.6, 5.4))
    ends = []
    for family in sorted(found, key=lambda name: name == "kolo"):
        points = sorted(found[family].items())
        xs, shade = [x for x, _ in points], colour(family, found)
        middle = [times[0] for _, times in points]
        axes.fill_between(xs, [t[1] for _, t in points], [t[2] for _, t in points], color=shade, alpha=0.15, lw=0)
        axes.plot(xs, middle, color=shade, marker="o", markersize=3.5, lw=2.4 if family == "kolo" else 1.6,
                  linestyle="--" if family == "floor" else "-", label=family)
        ends.append((xs[-1], middle[-1], family, shade))
    axes.set_xscale("log", base=4)
    axes.set_yscale("log")
    sizes = sorted({row["bytes"] for row in rows})
    axes.set_xticks(sizes[::2] if len(sizes) > 8 else sizes)
    ticks_of(axes.xaxis, bytes_text)
    ticks_of(axes.yaxis, time_text)
    axes.grid(True, color="#e4e4e4", lw=0.8)
    axes.set_axisbelow(True)
    label_ends(axes, ends, 4.3)
    axes.set_xlabel("bytes: the larger of what a rank sends and receives")
    axes.set_title(f"{collective}: time of a call", loc="left", fontweight="bold", pad=24)
    axes.text(0, 1.03, f"{title_of(what)}; lower is faster, bands are quartiles", transform=axes.transAxes, fontsize=9.5,
              color="#555555")
    figure.subplots_adjust(left=0.11, right=0.84, top=0.87, bottom=0.12)
    return figure


def ratios_of(rows, wanted):
    """{collective: [(bytes, best wanted / kolo)]}."""
    ratios = {}
    for name in dict.fromkeys(row["collective"] for row in rows):
        mine = [row for row in rows if row["collective"] == name]
        ours = best(row for row in mine if row["family"] == "kolo").get("kolo", {})
        theirs = {}
        for sizes in best(row for row in mine if wanted(row["family"])).values():
            for size, times in sizes.items():
                theirs[size] = min(theirs.get(size, times[0]), times[0])
        points = [(size, theirs[size] / times[0]) for size, times in sorted(ours.items()) if size in theirs]
        if points:
            ratios[name] = points
    return ratios


def ratio_panel(plt, axes, ratios, names, title):
    """Lines of one kind of ratio; a barrier, which has no size, is a mark at the left."""
    ends, shades = [], plt.get_cmap("tab10")
    for name, points in ratios.items():
        shade = shades(names.index(name) % 10)
        if points[0][0] == 0:
            axes.plot([1], [points[0][1]], marker="D", color=shade, linestyle="")
            axes.annotate(name, (1, points[0][1]), xytext=(6, 5), textcoords="offset points", color=shade, fontsize=10)
            continue
        axes.plot(*zip(*points), color=shade, marker="o", markersize=3.5, lw=1.7)
        ends.append((points[-1][0], points[-1][1], name, shade))
    axes.set_xscale("log", base=4)
    axes.set_yscale("log")
    axes.axhline(1, color="#333333", lw=1.2)
    sizes = sorted({size for points in ratios.values() for size, _ in points if size})
    if sizes:
        axes.set_xticks(sizes[::2] if len(sizes) > 8 else sizes)
    ticks_of(axes.xaxis, bytes_text)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.8), max(high, 1.25))
    low, high = axes.get_ylim()
    steps = (1, 1.5, 2, 3, 5, 7) if high / low < 20 else (1, 2, 5)
    axes.set_yticks([t for power in range(-3, 5) for t in (step * 10.0 ** power for step in steps) if low <= t <= high])
    ticks_of(axes.yaxis, lambda value: f"{value:g}")
    axes.grid(True, color="#e4e4e4", lw=0.8)
    if ends:
        label_ends(axes, ends, 3.6)
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel("bytes")


def overview(plt, what, rows):
    """How kolo stands, in one picture."""
    names = list(dict.fromkeys(row["collective"] for row in rows))
    kinds = [("time of the fastest peer over kolo's: above 1, kolo is faster",
              ratios_of(rows, lambda family: family not in ("kolo", "floor"))),
             ("time of the floor over kolo's: at 1, kolo is at the floor",
              ratios_of(rows, lambda family: family == "floor"))]
    kinds = [(title, ratios) for title, ratios in kinds if ratios]
    if not kinds:
        return None
    figure, panels = plt.subplots(len(kinds), 1, figsize=(8.6, 4.6 * len(kinds)), squeeze=False)
    for axes, (title, ratios) in zip(panels[:, 0], kinds):
        ratio_panel(plt, axes, ratios, names, title)
    figure.suptitle(f"kolo beside the others: {title_of(what)}", x=0.02, ha="left", fontweight="bold")
    figure.subplots_adjust(left=0.08, right=0.8, top=1 - 0.42 / len(kinds) * 0.5, bottom=0.07, hspace=0.28)
    return figure


def save(plt, figure, path):
    """Both forms."""
    for suffix in ("png", "svg"):
        figure.savefig(f"{path}.{suffix}", metadata={"Date": None} if suffix == "svg" else None)
    plt.close(figure)
    print(f"{path}.png {path}.svg")


def draw(rows, prefix):
    """All pictures of rows as results.read_csv() gives them. Returns an exit status."""
    plt = load()
    if plt is None:
        return 1
    whats = list(dict.fromkeys(tuple(row[key] for key in WHAT) for row in rows))
    for what in whats:
        mine = [row for row in rows if tuple(row[key] for key in WHAT) == what]
        start = prefix if len(whats) == 1 else f"{prefix}-{'-'.join(str(one).replace(', ', '-').replace(' ', '') for one in what if one)}"
        for collective in dict.fromkeys(row["collective"] for row in mine):
            picked = [row for row in mine if row["collective"] == collective and row["bytes"] > 0]
            if picked:
                save(plt, curves(plt, collective, what, picked), f"{start}-{collective}")
        figure = overview(plt, what, mine)
        if figure is not None:
            save(plt, figure, f"{start}-overview")
    return 0
