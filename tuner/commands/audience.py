"""Who hears of a run's progress."""

from collections.abc import Callable

from tuner.events import Event, Events, log
from tuner.search.listener import Listener, together


def audience(
    listener: Listener | None, on_event: Callable[[Event], object] | None, *, progress: bool | None
) -> Listener:
    """Return all that progress is reported to: the log, what the caller gave, and stderr where somebody looks."""
    receivers = (log,) if on_event is None else (log, on_event)
    own = [] if listener is None else [listener]
    if progress or (progress is None and listener is None and on_event is None):
        from tuner.commands.progress import progress_shown

        own += progress_shown(anywhere=bool(progress))
    return together([Events(*receivers), *own])
