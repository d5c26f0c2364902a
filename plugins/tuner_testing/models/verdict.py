"""What a rule comes to."""

from typing import Literal

Verdict = Literal["held", "broken", "not applicable", "not checked"]
