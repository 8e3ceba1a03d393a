"""Whether ``path`` with ``within`` keeps its word: passes, models, and how far they are from the optimum at drawn C.

    python jobs/few_models.py 'TRAIN/*.parquet' [--memory 1GB] [--loss logistic] [--within 0.01] [--draws 20]

It trains models that serve every C from 0.01 to 10, draws values of C, equally likely on a logarithmic scale, solves
each to a relative gap of 1e-6, all rows in memory, and prints by how much the model that serves it is above the best
dual objective, which is at most the optimum.
"""

import argparse

import numpy as np

import bigclf

LOW, HIGH = 0.01, 10.0


def objective(model, own, C):
    """P(w; C) = 1/2 ||w||^2 + C L, L by the model's own certificate at C = ``own``."""
    half = 0.5 * (np.sum(model.coef_**2) + np.sum(model.intercept_**2))
    return half + C * (model.certificate["primal"] - half) / own


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows")
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--loss", default="logistic")
    parser.add_argument("--within", type=float, default=0.01)
    parser.add_argument("--draws", type=int, default=20)
    asked = parser.parse_args()
    found = bigclf.path(asked.rows, C=[LOW, HIGH], within=asked.within, loss=asked.loss, memory=asked.memory)
    kept = "in memory" if found.plan["resident"] else "streamed"
    print(f"{len(found.models)} models, {found.reads} passes, {found.seconds:.0f} s, rows {kept}", flush=True)
    worst = 0.0
    for C in np.exp(np.random.default_rng(0).uniform(np.log(LOW), np.log(HIGH), asked.draws)):
        best = bigclf.fit(asked.rows, algo="dcd", loss=asked.loss, C=float(C), tol=1e-6, epochs=5000)
        row = next(row for row in found.table if row["low"] <= C <= row["high"])
        share = objective(found.model_at(C), row["C"], C) / best.certificate["dual"] - 1
        worst = max(worst, share)
        print(f"C {C:8.4f}  above the optimum by at most {share:.2e}", flush=True)
    print(f"worst {worst:.2e}, asked {asked.within:g}")
    raise SystemExit(worst > asked.within)


if __name__ == "__main__":
    main()
