"""Array types, by what they hold."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.uint8]
RowNumbers = npt.NDArray[np.int64]
#: int64 [n], one label a sample; or float32 [n, outputs], several: zeros and ones; or targets, any numbers.
Labels = npt.NDArray[Any]
