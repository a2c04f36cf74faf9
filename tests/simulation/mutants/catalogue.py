"""Which mistakes in the core must the simulation notice?

By rule: guards removed, comparisons flipped, effects in another order, commands dropped. When the code moves on, the
patches have to follow: one whose text is not found any more fails its test.
"""

from __future__ import annotations

from tests.simulation.mutants.alignments import ALIGNMENTS
from tests.simulation.mutants.besides import BESIDES
from tests.simulation.mutants.checkpoints import CHECKPOINTS
from tests.simulation.mutants.drivers import DRIVERS
from tests.simulation.mutants.edges import EDGES
from tests.simulation.mutants.evolutions import EVOLUTIONS
from tests.simulation.mutants.fallbacks import FALLBACKS
from tests.simulation.mutants.holds import HOLDS
from tests.simulation.mutants.leases import LEASES
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.publishing import PUBLISHING
from tests.simulation.mutants.retentions import RETENTIONS
from tests.simulation.mutants.shells import SHELLS
from tests.simulation.mutants.sinks import SINKS
from tests.simulation.mutants.stops import STOPS

MUTANTS: tuple[Mutant, ...] = (
    *LEASES,
    *ALIGNMENTS,
    *HOLDS,
    *CHECKPOINTS,
    *EDGES,
    *SHELLS,
    *DRIVERS,
    *BESIDES,
    *PUBLISHING,
    *SINKS,
    *RETENTIONS,
    *STOPS,
    *FALLBACKS,
    *EVOLUTIONS,
)
SHORT = tuple(mutant for mutant in MUTANTS if mutant.in_short)
