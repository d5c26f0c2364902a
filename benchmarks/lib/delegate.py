"""A session that passes every call on to another: what backends of benchmarks and tests change a method of.

Like a backend's own module, it loads no tensor library.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from tuner.backends.base import Session
from tuner.plan.info import ModelInfo

Method = TypeVar("Method", bound=Callable[..., Any])


def _passed(method: Method) -> Method:
    """Return a method that passes its call on."""

    def call(self: "Delegate", *args: object, **kwargs: object) -> object:
        return getattr(self.session, method.__name__)(*args, **kwargs)

    return cast("Method", call)


class Delegate(Session):
    """Passes every call on.

    Args:
        session: To pass on to.
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def model(self) -> ModelInfo:
        """The model's chain of blocks."""
        return self.session.model

    measure, first_steps, plan_step = _passed(Session.measure), _passed(Session.first_steps), _passed(Session.plan_step)
    untouched, missing, fill = _passed(Session.untouched), _passed(Session.missing), _passed(Session.fill)
    train, export = _passed(Session.train), _passed(Session.export)
