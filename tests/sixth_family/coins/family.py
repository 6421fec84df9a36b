"""What common code knows of coins; the distribution's entry point names FAMILY."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core.family import Family, LazyModules

if TYPE_CHECKING:
    import tests.sixth_family.coins.model
    import tests.sixth_family.coins.spec

    coins = tests.sixth_family.coins
else:
    coins = LazyModules("coins")

FAMILY = Family(
    package="coins",
    about="coins thrown apart from each other",
    kinds={
        "coins": lambda: coins.model.Coins,
        "coin-certificate": lambda: coins.model.CoinCertificate,
    },
    mechanisms={"coin-noise": lambda: coins.model.MECHANISM},
    model_audits={"coins": lambda: coins.model.finding},
    model_sections={"coins": lambda: coins.spec.CoinsModel},
    stored_models={"coins": ("coins",)},
    templates={"coins": "coins thrown apart"},
)
