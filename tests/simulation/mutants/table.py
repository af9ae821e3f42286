"""All mutations of the product, in the order of the rules that they break; those that break none come last."""

from __future__ import annotations

from tests.simulation.mutants.asked import ASKED
from tests.simulation.mutants.holder import HOLDER
from tests.simulation.mutants.locks import LOCK_MUTATIONS
from tests.simulation.mutants.needless import NEEDLESS
from tests.simulation.mutants.observer import BESIDE, OBSERVER

__all__ = ["MUTATIONS"]

MUTATIONS = (*HOLDER, *ASKED, *OBSERVER, *BESIDE, *LOCK_MUTATIONS, *NEEDLESS)
