#!/usr/bin/env python3
"""Writes fixtures/golden.json: what numpy and scipy say, for tests/golden.rs.

The flip p is counted here as the experiment would be repeated: every set of pairs that could have run A-then-B, every pair that changes
places with its sign turned. No subset means, no sorted sums. Needs numpy and scipy; the tests read the file only.

    python3 tests/golden.py > tests/fixtures/golden.json
"""
import itertools
import json
import math

import numpy as np
from scipy import stats

rng = np.random.default_rng(20240229)


def flip_p(ab, ba, theta):
    """(two-sided, greater, less), by turning signs under every assignment of the orders."""
    d = np.array(ab + ba) - theta
    first = set(range(len(ab)))
    # Y2 - Y1 of each pair: fixed, whatever the order's coin says.
    second_minus_first = np.array([x if i in first else -x for i, x in enumerate(d)])
    ge = le = total = 0
    for chosen in itertools.combinations(range(len(d)), len(ab)):
        chosen = set(chosen)
        # The statistic: mean difference of the arms among the pairs that kept or changed their place.
        again = np.array([second_minus_first[i] if i in chosen else -second_minus_first[i] for i in range(len(d))])
        difference = again.sum() - d.sum()
        total += 1
        ge += difference >= -1e-12
        le += difference <= 1e-12
    greater, less = ge / total, le / total
    return min(1.0, 2 * min(greater, less)), greater, less


def flip_interval(ab, ba, alpha):
    t = []
    for k in range(1, min(len(ab), len(ba)) + 1):
        for x in itertools.combinations(ab, k):
            for y in itertools.combinations(ba, k):
                t.append((math.fsum(x) + math.fsum(y)) / (2 * k))
    t.sort()
    k = math.floor(round(alpha / 2 * (len(t) + 1), 9))
    return None if k < 1 else [t[k - 1], t[-k]]


def flips():
    cases = []
    for sizes in [(3, 3), (4, 4), (4, 5), (5, 5), (6, 4), (6, 6)]:
        for draw in (lambda n: rng.normal(0.02, 0.03, n), lambda n: rng.standard_t(3, n) * 0.01):
            ab, ba = (list(draw(n)) for n in sizes)
            tests = [dict(zip(("theta", "p", "greater", "less"), (t, *flip_p(ab, ba, t)))) for t in (-0.02, 0.0, 0.01, 0.05)]
            cases.append({"ab": ab, "ba": ba, "tests": tests, "ci95": flip_interval(ab, ba, 0.05),
                          "ci90": flip_interval(ab, ba, 0.10)})
    # Ties: what an exact clock gives when nothing changed, or changed alike in all pairs.
    for ab, ba in ([[0.0] * 4] * 2, [[0.1] * 5] * 2, [[0.1, -0.1, 0.2, -0.2]] * 2):
        tests = [dict(zip(("theta", "p", "greater", "less"), (t, *flip_p(ab, ba, t)))) for t in (0.0, 0.1)]
        cases.append({"ab": ab, "ba": ba, "tests": tests, "ci95": flip_interval(ab, ba, 0.05),
                      "ci90": flip_interval(ab, ba, 0.10)})
    return cases


def holm(p):
    m = len(p)
    return [min(1.0, max((m - sum(q < r for q in p)) * r for r in p if r <= x)) for x in p]


def benjamini_hochberg(p):
    m = len(p)
    return [min(1.0, min(m * r / sum(q <= r for q in p) for r in p if r >= x)) for x in p]


def mser5(x):
    b = np.asarray(x)[: len(x) // 5 * 5].reshape(-1, 5).mean(axis=1)
    cuts = range(len(b) // 2 + 1)
    cut = min(cuts, key=lambda c: b[c:].var() / len(b[c:]))
    return None if cut == len(b) // 2 else cut * 5


def main():
    samples = [list(rng.normal(1, 0.1, n)) for n in (2, 5, 8, 13)]
    warm_up = [list(10 - 8 * np.exp(-np.arange(200) / tau) + rng.normal(0, 0.5, 200)) for tau in (5, 20)] + [list(np.arange(100.0))]
    ps = [list(rng.uniform(0, 1, n) ** 3) for n in (1, 5, 12)] + [[0.01, 0.01, 0.04, 1.0]]
    stein = []
    for n, w in ((8, 0.01), (12, 0.02)):
        d = rng.normal(0, 0.03, n)
        ab, ba = d[: n // 2], d[n // 2:]
        s2 = (ab.var(ddof=1) + ba.var(ddof=1)) / 2
        t = stats.t.ppf(0.975, n - 2)
        total = max(n, math.ceil(s2 * t * t / (w * w)))
        total += total % 2
        half = t * math.sqrt(s2 / n)
        stein.append({"ab": list(ab), "ba": list(ba), "half_width": w, "pairs": total,
                      "interval": [d.mean() - half, d.mean() + half]})
    counts = [(0, 10), (10, 10), (1, 20), (7, 100), (52, 1000), (480, 10000)]
    print(json.dumps({
        "flip": flips(),
        "location": [{
            "x": x,
            "median": float(np.median(x)),
            "hodges_lehmann": float(np.median([(x[i] + x[j]) / 2 for i in range(len(x)) for j in range(i, len(x))])),
            "theil_sen": float(stats.theilslopes(x)[0]),
            "t95": list(stats.t.interval(0.95, len(x) - 1, np.mean(x), stats.sem(x))),
            "sd": float(np.std(x, ddof=1)),
        } for x in samples],
        "mser5": [{"x": x, "cut": mser5(x)} for x in warm_up],
        "multiplicity": [{"p": p, "holm": holm(p), "bh": benjamini_hochberg(p)} for p in ps],
        "clopper_pearson": [{"k": k, "n": n, "interval": list(stats.binomtest(k, n).proportion_ci(0.95, "exact"))}
                            for k, n in counts],
        "sign_test": [{"positive": k, "negative": n - k, "p": stats.binomtest(k, n).pvalue} for k, n in counts],
        "stein": stein,
    }, indent=1))


main()
