# SPDX-License-Identifier: Apache-2.0
# covers: perf tools src/sim
"""perf/sim_tables.py: which points it fits, and that it finds the values of a machine that is known.

usage: sim_tables_test.py KOLO
"""
import os
import sys
import tempfile

import tap

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../perf"))
import sim_tables  # noqa: E402

BUILD = os.path.join(os.path.dirname(sys.argv[1]), "..")
TRUE = ["ranks_per_host 1", "tile_bytes 1G", "call_us 5  # fit", "net_latency_us 2  # fit", "net_gbs 12  # fit"]
WRONG = [*TRUE[:2], "call_us 9  # fit", "net_latency_us 0.7  # fit", "net_gbs 40  # fit"]
PLANS = {"allreduce": ("ring", "doubling"), "broadcast": ("chain@64K",)}


def table():
    """A table of the true machine."""
    points = [(collective, plan, (plan,), ranks, size, 0) for collective, plans in PLANS.items() for plan in plans
              for ranks in (2, 4, 8, 16) for size in (64, 4096, 1 << 16, 1 << 20, 1 << 24)]
    times = sim_tables.Simulator(BUILD).times(TRUE, points)
    return [(*point[:5], us) for point, us in zip(points, times)]


def test_choice_of_points():
    points = table()
    fitted = sim_tables.choose(points)
    tap.check(4 * len(fitted) <= len(points) and max(point[3] for point in fitted) < 16,
              "at most a quarter of the points is fitted, and none of the most ranks", fitted)
    tap.check({point[4] for point in fitted if point[3] == 2} == {64, 1 << 16, 1 << 24},
              "of the least ranks it is every second size", fitted)
    one = sim_tables.choose([point for point in points if point[3] == 16])
    tap.check(one and 4 * len(one) <= 15 and all(point[4] < 1 << 24 for point in one),
              "with one number of ranks the greatest size is not fitted", one)


def test_fit():
    points = table()
    fitted = sim_tables.choose(points)
    simulator = sim_tables.Simulator(BUILD)
    found = sim_tables.fit(simulator, WRONG, fitted)
    values = [float(value) for _, _, value in sim_tables.fit_lines(found)]
    tap.check(all(abs(value / true - 1) < 0.01 for value, true in zip(values, (5, 2, 12))),
              "the fit finds the values of the machine that made the table", found)
    held = [point for point in points if point not in fitted]
    mean, most = sim_tables.errors(list(zip(held, simulator.times(found, held))))
    tap.check(mean < 1 and most < 1, "the points that are held out are predicted", mean, most)


def test_measures():
    def point(plans, size, us):
        return "allreduce", "x", plans, 4, size, us
    pairs = [(point(("a",), 8, 10), 20), (point(("b",), 8, 12), 18), (point(("a", "b"), 8, 9), 9),
             (point(("a",), 64, 30), 10), (point(("b",), 64, 20), 40)]
    tap.check(abs(sim_tables.errors(pairs[:1])[0] - 100) < 1e-9, "twice as long is an error of 100 %")
    count, mean, most = sim_tables.regrets(pairs)
    tap.check((count, round(mean), round(most)) == (2, 35, 50), "the loss is that of the wrong choices",
              count, mean, most)


def test_files():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "table.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.write("# of somebody\ncollective,measured,plans,ranks,bytes,us\n"
                       "allreduce,NCCL,ring|chain@1M,8,64,3.5\n")
        tap.check(sim_tables.read_table(path) == [("allreduce", "NCCL", ("ring", "chain@1M"), 8, 64, 3.5)],
                  "a table has comments, and several plans for a point")


tap.run_tests(globals())
