"""The cost model that cuts contractions into tiles, against measurements: its choice, and the fastest of its best.

    python benchmarks/schedules.py                        # all workloads that are quick to compile
    python benchmarks/schedules.py --work w6_gpt_full     # by the start of their names, such as w3,w6

Three numbers are printed for each contraction of a workload, on the best instruction set of this machine. They are the
microseconds of the schedule that the model chooses, those of the fastest of the eight that it ranks first, and the
ratio. Last come, over all contractions, the median and the largest ratio, and how well the model orders schedules: the
mean rank correlation (Spearman).
"""

import argparse
import statistics

from common import one_core, out, table
from workloads import chosen, declare

from mlaot.build.toolchain import find_compiler
from mlaot.generate import compile_model
from mlaot.schedule.machine import MACHINES
from mlaot.settings.options import Options
from mlaot.tune import Measurement, contractions, machines_here, measure

WORK = "w2_mnist_b64,w3_mlp_b64,w4,w6_gpt_full,w8,t1_mlp_b64"


def correlation(found: Measurement) -> float:
    """Spearman's, of the model's order of schedules with that of their times."""
    count, order = len(found.seconds), sorted(found.seconds.values())
    distances = [(i - order.index(time)) ** 2 for i, time in enumerate(found.seconds.values())]
    return 1 - 6 * sum(distances) / (count * (count**2 - 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", default=WORK, help=f"workloads by the start of their names (default: {WORK})")
    options = parser.parse_args()
    one_core()
    command = find_compiler()
    isa = machines_here(tuple(MACHINES), command)[-1]
    rows, all_found = [], []
    for name in chosen(options.work):
        for kernel in contractions([compile_model(declare(name), "m.nn", Options(isas=(isa.name,)))]):
            found = measure(kernel, isa, command)
            best = min(found.seconds, key=found.seconds.__getitem__)
            times = [1e6 * found.seconds[s] for s in (found.chosen, best)]
            shape = found.description.partition(" |")[0]
            rows.append(
                [name, shape, found.chosen, f"{times[0]:.1f}", best, f"{times[1]:.1f}", f"{times[0] / times[1]:.2f}"]
            )
            all_found.append(found)
    table(["workload", "contraction", "chosen", "us", "fastest", "us", "ratio"], rows)
    ratios = [float(row[-1]) for row in rows]
    ranks = statistics.mean(correlation(found) for found in all_found if len(found.seconds) > 1)
    out(f"{isa.name}: {len(rows)} contractions, chosen / fastest {statistics.median(ratios):.2f} in the median,")
    out(f"{max(ratios):.2f} at most; rank correlation {ranks:.2f}")


if __name__ == "__main__":
    main()
