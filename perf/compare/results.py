# SPDX-License-Identifier: Apache-2.0
"""Samples, what is made of them, the table, and the CSV file.

A sample is the time of a batch of calls, from when the first rank begins until the last one ends,
over the number of calls. Every round takes a sample of every method, so that what the machine does
meanwhile falls on all of them; ratios are made inside rounds.
"""
import csv
import math
import statistics

FIELDS = ("collective", "bytes", "type", "ranks", "link", "buffers", "inputs", "method", "family", "median_us", "q1_us",
          "q3_us", "calls", "rounds", "wrong", "flag_ns", "cores")
FAR_NS = 120


def cores_of(flag_ns):
    """Where two cores are, by the time of a flag between them: "near", within one L3 (25 to 75 ns on all machines
    that were measured), or "far" (180 and more). "": not known."""
    if flag_ns is None:
        return ""
    return "near" if flag_ns < FAR_NS else "far"


class Row:
    """One collective at one size, on cores that are near or far: the samples of every method, a list in the order
    of rounds, and the flag of each round."""

    def __init__(self, collective, size, cores):
        self.collective, self.size, self.cores = collective, size, cores
        self.flags, self.samples, self.family, self.calls, self.wrong = [], {}, {}, {}, {}

    @property
    def flag_ns(self):
        """The median flag, or None."""
        known = [ns for ns in self.flags if ns is not None]
        return statistics.median(known) if known else None

    def add(self, flag_ns, sample_us):
        """A round: {method: microseconds}."""
        self.flags.append(flag_ns)
        for name, us in sample_us.items():
            self.samples[name].append(us)

    def median(self, name):
        """Median microseconds of a method."""
        return statistics.median(self.samples[name])

    def best(self, wanted):
        """The fastest method of those whose family is wanted, or None."""
        names = [name for name in self.samples if wanted(self.family[name]) and self.samples[name]]
        return min(names, key=self.median, default=None)

    def peer(self):
        """The fastest that is neither kolo nor a floor."""
        return self.best(lambda family: family not in ("kolo", "floor"))

    def ratio(self, other):
        """(median, first quartile, third quartile) of other / kolo within rounds."""
        ratios = [a / b for a, b in zip(self.samples[other], self.samples["kolo"])]
        return (statistics.median(ratios), *quartiles(ratios))


def quartiles(values):
    """First and third."""
    if len(values) < 2:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def geometric(values):
    """The mean for ratios; nan if there are none."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def number(value):
    """Three digits that matter."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}" if value >= 0.9995 else f"{value:.3f}"


HEAD = (f"{'#     bytes':>11} {'kolo us':>9}  {'best peer':<14}{'us':>9} {'peer/kolo':>10}{'(quartiles)':>15}"
        f"  {'floor us':>9} {'floor/kolo':>10}  {'which floor':<16}{'flag ns':>8}")


def line(row):
    """A line of the table. `<`: the peer is faster than kolo."""
    peer = row.peer()
    floor = row.best(lambda family: family == "floor")
    text = f"{row.size:>11} {number(row.median('kolo')) if 'kolo' in row.samples else '-':>9}  "
    if peer and "kolo" in row.samples:
        middle, first, third = row.ratio(peer)
        spread = f"({first:.2f} - {third:.2f})"
        text += f"{peer:<14}{number(row.median(peer)):>9} {middle:>9.2f}{'<' if middle < 1 else ' '}{spread:>15}"
    else:
        text += f"{'-':<14}{'-':>9} {'-':>9} {'':>15}"
    if floor and "kolo" in row.samples:
        text += (f"  {number(row.median(floor)):>9} {row.ratio(floor)[0]:>10.2f}  "
                 f"{floor.removeprefix('floor-'):<16}")
    else:
        text += f"  {'-':>9} {'-':>10}  {'-':<16}"
    wrong = {name: count for name, count in row.wrong.items() if count}
    told = "  WRONG: " + ", ".join(f"{name} {count}" for name, count in wrong.items()) if wrong else ""
    return f"{text}{row.flag_ns:>8.0f} {row.cores}{told}" if row.flag_ns else f"{text}{'-':>8}{told}"


def summary(rows, cores=""):
    """Geometric means over the rows of one collective on such cores: of each family's best method, and the floor."""
    rows = [row for row in rows if "kolo" in row.samples]
    peers = [row.ratio(row.peer())[0] for row in rows if row.peer()]
    parts = [f"best peer {geometric(peers):.2f}"] if peers else []
    for family in dict.fromkeys(f for row in rows for f in row.family.values() if f not in ("kolo", "floor")):
        best = [(row, row.best(lambda f, family=family: f == family)) for row in rows]
        ratios = [row.ratio(name)[0] for row, name in best if name]
        parts.append(f"{family} {geometric(ratios):.2f}")
    floors = [(row, row.best(lambda f: f == "floor")) for row in rows]
    ratios = [row.ratio(name)[0] for row, name in floors if name]
    if ratios:
        parts.append(f"floor {geometric(ratios):.2f}")
    where = f", {cores} cores" if cores else ""
    return f"# geometric mean of time over kolo's{where}: " + ", ".join(parts) if parts else "# nothing to compare with"


def records(rows, what):
    """A dictionary for every method at every size; `what` has what is the same in all of them."""
    found = []
    for row in rows:
        for name, samples in row.samples.items():
            first, third = quartiles(samples)
            found.append({**what, "collective": row.collective, "bytes": row.size, "method": name,
                          "family": row.family[name], "median_us": row.median(name), "q1_us": first, "q3_us": third,
                          "calls": row.calls[name], "rounds": len(samples), "wrong": row.wrong[name],
                          "flag_ns": row.flag_ns or "", "cores": row.cores})
    return found


def write_csv(path, found):
    """A line for each of records()."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, FIELDS)
        out.writeheader()
        for record in found:
            out.writerow({key: f"{value:.5g}" if isinstance(value, float) else value for key, value in record.items()})


def read_csv(paths):
    """What write_csv() wrote to files, with numbers."""
    rows = []
    for path in paths:
        with open(path, encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                rows.append({"cores": "", "link": "", **row, **{key: float(row[key]) for key in ("median_us", "q1_us", "q3_us")},
                             "bytes": int(row["bytes"]), "ranks": int(row["ranks"])})
    return rows
