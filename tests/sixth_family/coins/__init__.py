"""Coins thrown apart: the smallest family there is, which a test adds as the sixth."""

from __future__ import annotations

from shoal.core.registry import Family

FAMILY = Family(
    name="coins",
    about="coins thrown apart from each other",
    kinds=("shoal.coins.model:Coins", "shoal.coins.model:CoinCertificate"),
    rows={"coin-noise": "shoal.coins.model:ROW"},
    models={"coins": "shoal.coins.model:finding"},
    model_sections={"coins": "shoal.coins.spec:CoinsModel"},
    stored_models={"coins": ("coins",)},
    templates={"coins": "coins thrown apart"},
)
