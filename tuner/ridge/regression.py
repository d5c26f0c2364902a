"""The head of numbers in closed form: ridge regression on the targets, pulled to the given head, not to zero.

Minimises Σ w ‖W x + b − t‖² + λ ‖W − W₀‖², where W₀ is the given head's: what no sample speaks against stays as it was.
"""

from tuner.ridge.solve import LinearHead, solve, spread
from tuner.ridge.sums import Sums


def regression_head(given: LinearHead, local: Sums, known: Sums, *, ridge: float, local_weight: float) -> LinearHead:
    """Solve for a head.

    Args:
        given: The model's head.
        local: Sums of the user's samples and their targets; of at least one sample.
        known: Sums of samples of the global data; of none where there are none.
        ridge: λ in samples: it weighs as much as so many samples do.
        local_weight: What all local samples count where those of the global data count one.
    """
    sums = local
    if known.count:
        share, total = local_weight / (1 + local_weight), local.count + known.count
        sums = local.weighted(share * total / local.count) + known.weighted((1 - share) * total / known.count)
    return solve(sums, ridge * (spread(sums) or 1.0), given).head
