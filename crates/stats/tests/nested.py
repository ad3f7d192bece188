"""The judge's rule 2, written again from its definition, for tests/nested.rs. Standard library only.

    python3 crates/stats/tests/nested.py > crates/stats/tests/fixtures/nested.json

Nothing here is translated from the library:

* the full flip is a sum over all 2^N assignments of signs, in exact fractions, not a set of subset means;
* its interval is found from p by bisection, not from a sorted list;
* several primaries are judged cell by cell: every combination of true states of the lines is tested by itself, and a claim is made if
  every combination that contradicts it is rejected. The library uses a step-down procedure instead;
* adjusted p are found by trying levels, not from a formula;
* Fisher's test counts tables.
"""

import itertools
import json
import random
from fractions import Fraction
from math import comb


# ---------------------------------------------------------------- one line

def one_sided(d, theta, greater):
    """Share of sign assignments whose sum of d - theta is at least as far from 0 on that side as the observed one."""
    shifted = [Fraction(x) - Fraction(theta) for x in d]
    if not greater:
        shifted = [-x for x in shifted]
    observed = sum(shifted)
    sums = [Fraction(0)]
    for x in shifted:
        sums = [s + x for s in sums] + [s - x for s in sums]
    return Fraction(sum(1 for s in sums if s >= observed), len(sums))


def two_sided(d, theta):
    return min(Fraction(1), 2 * min(one_sided(d, theta, True), one_sided(d, theta, False)))


def interval(d, alpha):
    """All theta that a two-sided test at alpha does not reject, by bisection on each side; None if it rejects nothing."""
    if Fraction(2, 2 ** len(d)) > alpha:
        return None
    middle = sum(map(Fraction, d)) / len(d)
    spread = max(abs(Fraction(x)) for x in d) * 4 + 1

    def end(sign):
        inside, outside = middle, middle + sign * spread
        for _ in range(60):
            half = (inside + outside) / 2
            if two_sided(d, half) > alpha:
                inside = half
            else:
                outside = half
            # Binary fractions of this size keep the arithmetic fast.
            inside, outside = (Fraction(round(x * 2 ** 70), 2 ** 70) for x in (inside, outside))
        return inside

    return [float(end(-1)), float(end(1))]


def word(d, margin):
    """Verdict of a line alone, from the definitions of the verdicts."""
    def beyond(theta):  # the 95 % interval lies wholly above theta
        return 2 * one_sided(d, theta, True) <= Fraction(5, 100)

    def below(theta):
        return 2 * one_sided(d, theta, False) <= Fraction(5, 100)

    same = one_sided(d, -margin, True) <= Fraction(5, 100) and one_sided(d, margin, False) <= Fraction(5, 100)
    if beyond(margin):
        return "better"
    if below(-margin):
        return "worse"
    if same:
        return "same"
    if beyond(0):
        return "slightly-better"
    if below(0):
        return "slightly-worse"
    return "inconclusive"


def p_of_line(d, margin):
    """p of "no change" and of "within the margin"."""
    within = min(Fraction(1), 2 * min(one_sided(d, margin, True), one_sided(d, -margin, False)))
    return two_sided(d, 0), within


# ---------------------------------------------------------------- several lines

UNCHANGED, WITHIN, BEYOND = range(3)


def rejected(cell, p, alpha):
    """Bonferroni in one cell: its lines that are not beyond the margin share alpha."""
    active = [i for i, state in enumerate(cell) if state != BEYOND]
    if not active:
        return False
    share = alpha / len(active)
    return any(p[i][0] <= share if cell[i] == UNCHANGED else p[i][1] <= share for i in active)


def claims(p, alpha):
    """For each line, whether it is shown to be changed, and to be beyond the margin: all cells that contradict it are rejected."""
    cells = list(itertools.product(range(3), repeat=len(p)))
    kept = [cell for cell in cells if not rejected(cell, p, alpha)]
    return [(all(cell[i] != UNCHANGED for cell in kept), all(cell[i] == BEYOND for cell in kept)) for i in range(len(p))]


def adjusted(p):
    """The smallest alpha at which each claim is made, among all levels at which anything can change."""
    n = len(p)
    levels = sorted({min(Fraction(1), x * k) for line in p for x in line for k in range(1, n + 1)} | {Fraction(1)})
    found = [[Fraction(1), Fraction(1)] for _ in p]
    for alpha in reversed(levels):
        for i, made in enumerate(claims(p, alpha)):
            for which in range(2):
                if made[which]:
                    found[i][which] = alpha
    return found


def judged(p, words, alpha=Fraction(5, 100)):
    verdicts = []
    for made, alone in zip(claims(p, alpha), words):
        if alone in ("same", "inconclusive"):
            verdicts.append(alone)
        elif alone in ("better", "worse") and made[1]:
            verdicts.append(alone)
        elif made[0]:
            verdicts.append(alone if alone.startswith("slightly") else f"slightly-{alone}")
        else:
            verdicts.append("inconclusive")
    return verdicts


# ---------------------------------------------------------------- failed boots

def fisher(k, n, other, of):
    tables = [comb(n, x) * comb(of, k + other - x) for x in range(0, k + other + 1)]
    return Fraction(sum(tables[k:]), comb(n + of, k + other))


# ---------------------------------------------------------------- the cases

def line(rng, pairs, effect, noise):
    kinds = {
        "normal": lambda: rng.gauss(0, 1),
        "lognormal": lambda: rng.lognormvariate(0, 1) - rng.lognormvariate(0, 1),
        "ties": lambda: rng.choice([-1, 0, 0, 1]),
        "bimodal": lambda: rng.gauss(0, 1) + rng.choice([0, 0, 4]),
    }
    # Binary fractions, so that JSON holds exactly the numbers judged here.
    return [round((effect + kinds[noise]()) * 0.01 * 2 ** 20) / 2 ** 20 for _ in range(pairs)]


def main():
    rng = random.Random(23)
    cases = {"lines": [], "families": [], "fisher": []}
    for pairs in (5, 6, 7, 8, 9, 10, 11):
        for noise in ("normal", "lognormal", "ties", "bimodal"):
            d = line(rng, pairs, rng.choice([0, 1, 2, -3]), noise)
            margin = 0.015625
            no_change, within = p_of_line(d, margin)
            cases["lines"].append({
                "d": d, "margin": margin, "no_change": float(no_change), "within": float(within),
                "greater": float(one_sided(d, 0.0078125, True)), "less": float(one_sided(d, 0.0078125, False)),
                "ci95": interval(d, Fraction(5, 100)), "ci90": interval(d, Fraction(10, 100)), "verdict": word(d, margin),
            })
    for count in (1, 2, 3, 4, 5):
        for _ in range(8):
            pairs = rng.choice([8, 10])
            noise = rng.choice(["normal", "ties", "bimodal"])
            lines = [line(rng, pairs, rng.choice([0, 0, 1, 2, 3, -2, -3, 5]), noise) for _ in range(count)]
            margin = 0.015625
            p = [p_of_line(d, margin) for d in lines]
            words = [word(d, margin) for d in lines]
            cases["families"].append({
                "lines": lines, "margin": margin, "alone": words, "verdicts": judged(p, words),
                "adjusted": [[float(x) for x in line] for line in adjusted(p)],
            })
    for k, n, other, of in [(1, 12, 0, 12), (1, 12, 1, 12), (5, 12, 0, 12), (12, 12, 1, 12), (3, 7, 2, 9), (0, 10, 4, 10), (40, 90, 21, 88)]:
        cases["fisher"].append({"k": k, "n": n, "other": other, "of": of, "p": float(fisher(k, n, other, of))})
    print(json.dumps(cases, indent=None, separators=(",", ":")).replace('},{', '},\n{'))


main()
