"""The papers' tables and figures, made again: one file each, run by `shoal reproduce`."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from shoal.core.errors import InputError
from studies.report import Report


class Experiment(NamedTuple):
    """Where an experiment lives (a module with a function `run() -> Report`) and what it shows."""

    module: str
    summary: str


EXPERIMENTS: dict[str, Experiment] = {
    "chain-synthetic": Experiment(
        "studies.chain_synthetic",
        "Pufferfish paper, Section 5.2: error against the width of the family of chains.",
    ),
    "chain-activity": Experiment(
        "studies.chain_activity",
        "Pufferfish paper, Table 1: activity histograms of persons and of groups.",
    ),
    "chain-electricity": Experiment(
        "studies.chain_electricity",
        "Pufferfish paper, Table 3: histogram of a household's electric power.",
    ),
    "chain-speed": Experiment(
        "studies.chain_speed",
        "Pufferfish paper, Table 2: how long it takes to find the scale of the noise.",
    ),
    "mask-checks": Experiment(
        "studies.mask_checks",
        "MaskIt paper, Figures 4 and 5: what each check shows, and what naive masking gives away.",
    ),
    "mask-tradeoff": Experiment(
        "studies.mask_tradeoff",
        "MaskIt paper, Figures 6 to 8: contexts shown against delta and weaker adversaries.",
    ),
    "mask-speed": Experiment(
        "studies.mask_speed",
        "MaskIt paper, Table 1: how long a calibration and a decision take.",
    ),
    "mask-outside": Experiment(
        "studies.mask_outside",
        "Beyond the MaskIt paper: days that leave a raw chain, and the smoothing they ask for.",
    ),
    "mask-events": Experiment(
        "studies.mask_events",
        "Beyond the papers: hiding that one was somewhere at all, against hiding each slot.",
    ),
    "location-time": Experiment(
        "studies.location_time",
        "Location papers, Figures 3.4, 10 and 11: sets, drift, errors and runtime step by step.",
    ),
    "location-parameters": Experiment(
        "studies.location_parameters",
        "Location papers, Figures 3.5 to 3.7, 12 and 13: against ε, δ, r, k and the model.",
    ),
    "location-knn": Experiment(
        "studies.location_knn",
        "Location thesis, Figure 3.8: nearest points of interest asked from what is released.",
    ),
    "location-optimum": Experiment(
        "studies.location_optimum",
        "Beside the location papers: the best possible mechanism on small maps.",
    ),
    "location-held-out": Experiment(
        "studies.location_held_out",
        "Beside the location papers: how close places come on days the model has not seen.",
    ),
    "share-rides": Experiment(
        "studies.share_mechanisms",
        "Beside Hassan et al. 2018: circles, gates, cuts and ledgers that hide home in rides.",
    ),
    "dependent-attack": Experiment(
        "studies.dependent_attack",
        "Dependent-DP paper, Figures 3, 5 and 10: locating people by their friends.",
    ),
    "dependent-kmeans": Experiment(
        "studies.dependent_kmeans",
        "Dependent-DP paper, Figures 8 and 9(a): K-means over tied people.",
    ),
    "dependent-svm": Experiment(
        "studies.dependent_svm",
        "Dependent-DP paper, Figure 9(b): a support vector machine on similar profiles.",
    ),
    "dependent-degrees": Experiment(
        "studies.dependent_degrees",
        "Dependent-DP paper, Figure 9(c): degree distributions of similar people.",
    ),
    "dependent-separation": Experiment(
        "studies.dependent_separation",
        "Dependent-DP paper, Figure 6: how far dependence pushes the answers of three queries.",
    ),
    "dependent-underestimate": Experiment(
        "studies.dependent_underestimate",
        "Dependent-DP paper, Figure 7: what leaks when coefficients are underestimated.",
    ),
}


def row_named(name: str) -> Experiment:
    """The experiment called `name`."""
    row = EXPERIMENTS.get(name)
    if row is None:
        raise InputError(f"experiment is {name!r}; it must be one of {', '.join(EXPERIMENTS)}")
    return row


def run(name: str) -> Report:
    """The report of one experiment."""
    report: Report = import_module(row_named(name).module).run()
    return report
