"""Options that several commands share."""

from typing import Annotated

from cyclopts import Parameter

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON object and nothing else.")]
Flag = Parameter(negative="")
