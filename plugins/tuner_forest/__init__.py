"""A random forest on vectors and windows, as a row next to the search's: what often does best on few numbers.

It needs scikit-learn: ``pip install "device-tuner[forest]"``. Source: Breiman, Random Forests, 2001.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from tuner.distribution import install_command
from tuner.errors import PluginError
from tuner.machine.awake import CLOCK

if TYPE_CHECKING:  # it must not be imported before the process that has PyTorch
    from tuner.backends.torch.trial.baselines import Learning, Predict

#: Trees in all, and grown at a time.
TREES, AT_A_TIME = 300, 25


def fit(learning: "Learning") -> "tuple[Predict, str]":
    """Grow a forest, as large as the time allows; each split looks at the square root of the number of inputs.

    Trees average labels as probabilities, or numbers: what the variance of these is split by is Gini's impurity.

    Args:
        learning: Inputs, float32 [n, d], their labels, and the clock by which it is to be over.

    Returns:
        What gives float64 [n, outputs], and how many trees it has.

    Raises:
        PluginError: scikit-learn is not installed; how to get it.
    """
    try:
        from sklearn.ensemble import RandomForestRegressor
    except ImportError:
        raise PluginError(f"not fitted: it needs scikit-learn: {install_command('forest')}") from None
    forest = RandomForestRegressor(0, max_features="sqrt", warm_start=True, random_state=0, n_jobs=1)
    wanted = learning.targets.one_hot(learning.labels, learning.outputs)
    while forest.n_estimators < TREES:
        forest.n_estimators += AT_A_TIME
        forest.fit(learning.inputs, wanted[:, 0] if wanted.shape[1] == 1 else wanted)
        if CLOCK.now() >= learning.until:
            break

    def predict(inputs: Any) -> Any:
        return np.asarray(forest.predict(inputs)).reshape(len(inputs), -1)

    fewer = "" if forest.n_estimators >= TREES else f" of {TREES}, as many as the time allowed"
    return predict, f"{forest.n_estimators} trees{fewer}"
