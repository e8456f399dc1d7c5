"""How the search's cost grows with the space, beside other ways to search the same space in the same run.

    python benchmarks/search.py [--sizes 4,5,6,7,8,9] [--trials 200]

Each space is the default request's (7B on eight cards of 80 GB, and the same on cards of 40 GB, where stage 3 wins)
with fewer or more values of its buckets and thresholds, as its size asks for. Beside it, on the first of them: a
sample of brute force, and optuna's samplers (pip install optuna) with so many trials; what each found, in which time.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import random
import resource
import sys
from collections.abc import Iterator
from itertools import count, islice
from math import inf, log
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

from zeroplan.cli.options import Options
from zeroplan.cli.recommend import read
from zeroplan.errors import ContradictionError
from zeroplan.plan import per_gpu
from zeroplan.search import Found, evaluate, fastest, space
from zeroplan.search.space import Branch, Space
from zeroplan.specs.job import Job

RESERVE = 0.05
REQUESTS = {"stage 1 wins": {"gpu_mem": "80"}, "stage 3 wins": {"gpu": "a100-40gb"}}
RANGES = {
    "reduce_bucket_size": (10**6, 10**9), "prefetch_bucket_size": (10**6, 10**9),
    "max_live_parameters": (10**8, 10**11), "max_reuse_distance": (10**8, 10**11),
}  # fmt: skip
SAMPLE = 40
"""Strategies that brute force is timed on."""


class Measured(NamedTuple):
    size: int
    seconds: float
    found: Found


def asked(name: str) -> Space:
    """As `recommend` opens it."""
    request = read(Options(params="7B", gpus="8", **REQUESTS[name]))
    job = request.job()
    return space(job, request.settled, per_gpu(job, request.settled))


def spread(least: int, most: int, values: int) -> tuple[int, ...]:
    return tuple(round(least * (most / least) ** (at / max(values - 1, 1))) for at in range(values))


def widened(branch: Branch, values: int) -> Branch:
    """More values of what is open in it; the usual ones stay."""
    more = {
        name: tuple(dict.fromkeys((*branch.numbers[name], *spread(*bounds, values))))
        for name, bounds in RANGES.items()
        if name in branch.numbers
    }
    return branch._replace(numbers={**branch.numbers, **more})


def narrowed(branch: Branch, values: int) -> Branch:
    """Fewer values of what is open in it; the usual ones stay."""
    return branch._replace(numbers={name: found[:values] for name, found in branch.numbers.items()})


def of_size(whole: Space, size: int) -> Space:
    """The first that has as many strategies."""
    if size <= whole.size:
        ones = (whole._replace(branches=tuple(narrowed(one, values) for one in whole.branches)) for values in count(1))
    else:
        ones = (whole._replace(branches=tuple(widened(one, values) for one in whole.branches)) for values in growing())
    return next(found for found in ones if found.size >= size)


def growing() -> Iterator[int]:
    values = 1
    while True:
        yield values
        values = values + 1 if values < 8 else round(values * 1.2)


def measured(found: Space) -> Measured:
    gc.collect()
    start = perf_counter()
    best = fastest(found, RESERVE)
    return Measured(found.size, perf_counter() - start, best)


def step(found: Found) -> str:
    return f"{found.best.time.total:.4g} s" if found.best else "nothing fits"


def seconds_of(job: Job) -> float:
    try:
        one = evaluate(job, RESERVE)
    except ContradictionError:
        return inf
    return one.time.total if one.fit.accepted else inf


def by_force(found: Space) -> str:
    chosen = random.Random(0).sample(found.branches, min(4, len(found.branches)))
    some = list(islice(found._replace(branches=tuple(chosen)).strategies(), SAMPLE))
    start = perf_counter()
    best = min(map(seconds_of, some))
    each = (perf_counter() - start) / len(some)
    whole = f"{each * found.size:,.0f} s for all"
    return f"brute force: {each * 1e3:.1f} ms a strategy, {whole} (best of {SAMPLE}: {best:.4g} s)"


def by_optuna(found: Space, sampler: str, trials: int) -> str:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial: optuna.Trial) -> float:
        branch = found.branches[trial.suggest_int("branch", 0, len(found.branches) - 1)]
        size = trial.suggest_categorical("micro_batch", found.sizes)
        chosen = {
            name: values[trial.suggest_int(f"{name} of {len(values)}", 0, len(values) - 1)]
            for name, values in branch.numbers.items()
        }
        found_in = seconds_of(found.sized(branch, size).at(**chosen))
        return min(found_in, 1e6)

    study = optuna.create_study(sampler=getattr(optuna.samplers, sampler)(seed=0))
    start = perf_counter()
    study.optimize(objective, n_trials=trials)
    spent, best = perf_counter() - start, study.best_value
    return f"optuna {optuna.__version__} {sampler}, {trials} trials: {spent:.1f} s, best {best:.4g} s a step"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="4,5,6,7,8,9", help="powers of ten")
    parser.add_argument("--trials", type=int, default=200)
    given = parser.parse_args()
    gc.set_threshold(100_000)  # as the command line does
    for name in REQUESTS:
        whole = asked(name)
        print(f"{name}: {whole.job.model.name} on {whole.job.ranks} GPUs")
        print(f"{'strategies':>16} {'seconds':>9} {'timed':>7} {'counted':>8}  a step")
        runs = [measured(of_size(whole, 10 ** int(power))) for power in given.sizes.split(",")]
        for run in runs:
            timed = f"{run.found.timed:>7,} {run.found.counted:>8,}"
            print(f"{run.size:>16,} {run.seconds:>9.2f} {timed}  {step(run.found)}", flush=True)
        if runs[-1].size > runs[0].size:
            power = log(runs[-1].seconds / runs[0].seconds) / log(runs[-1].size / runs[0].size)
            print(f"seconds grow as the space to the power of {power:.2f}")
        first = of_size(whole, 10 ** int(given.sizes.split(",")[0]))
        print(by_force(first))
        if importlib.util.find_spec("optuna"):
            for sampler in ("RandomSampler", "TPESampler"):
                print(by_optuna(first, sampler, given.trials))
        else:
            print("optuna is not installed: pip install optuna")
    print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB at most")


if __name__ == "__main__":
    main()
