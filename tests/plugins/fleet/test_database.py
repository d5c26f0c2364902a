"""A trial in a few statements is the same trial: Optuna's storage reads what ours writes, and the other way round."""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy import create_engine, event, text

from benchmarks import mariadb
from benchmarks.postgres import Server
from tuner.errors import RunError
from tuner_fleet.address import Address, read_address
from tuner_fleet.storage.database import Database
from tuner_fleet.storage.finish import Ending
from tuner_fleet.storage.patient import Patience, close, open_storage, patient

KNOBS: dict[str, Any] = {"lr": 0.01, "blocks": 3, "kind": "b", "flag": True}
RANGES: dict[str, Any] = {
    "lr": FloatDistribution(1e-4, 1.0, log=True),
    "blocks": IntDistribution(1, 8),
    "kind": CategoricalDistribution(("a", "b", 1, None)),
    "flag": CategoricalDistribution((False, True)),
}
DIRECTIONS = [StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE]


@pytest.fixture(scope="module", params=["file", "server", "maria"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Database, RDBStorage]]:
    """Our storage and Optuna's, of one database."""
    url = f"sqlite:///{tmp_path_factory.mktemp('study') / 'study.db'}"
    if request.param != "file":
        url = read_address(request.getfixturevalue(request.param).url).url
    ours = Database(url)
    theirs = RDBStorage(url)
    yield ours, theirs
    for storage in (ours, theirs):
        storage.remove_session()
        storage.engine.dispose()


@pytest.fixture
def study(both: tuple[Database, RDBStorage]) -> int:
    return both[0].create_new_study(DIRECTIONS)


def waiting(state: TrialState = TrialState.WAITING, **changed: Any) -> FrozenTrial:
    attributes = {"key": "a plan", "rung": 1, "nested": {"of": [1, None, "two"]}}
    given = {"params": KNOBS, "distributions": RANGES, "user_attrs": attributes, "system_attrs": {"failed_trial": 3}}
    made = create_trial(state=state, **(given | changed))
    made.datetime_start = datetime(2024, 7, 1, 12, 30)  # noqa: DTZ001 - as Optuna's own
    return made


def test_each_storage_reads_what_the_other_one_makes(both: tuple[Database, RDBStorage], study: int) -> None:
    ours, theirs = both
    ended = waiting(TrialState.COMPLETE, values=[math.inf, 2.5], intermediate_values={1: -math.inf, 2: 0.5})
    for storage in both:
        storage.create_new_trial(study)
        storage.create_new_trial(study, waiting())
        storage.create_new_trial(study, ended)
    mine, other = ours.get_all_trials(study), theirs.get_all_trials(study)
    assert mine == other
    assert [trial.number for trial in mine] == list(range(6))
    assert (mine[1].params, mine[1].distributions, mine[1].user_attrs) == (
        mine[4].params,
        mine[4].distributions,
        mine[4].user_attrs,
    )
    assert list(mine[1].params.items()) == list(KNOBS.items())
    assert mine[2].values == [math.inf, 2.5]
    assert [ours.get_trial(one._trial_id) for one in other] == other
    theirs.set_trial_intermediate_value(mine[0]._trial_id, 7, math.nan)
    assert math.isnan(ours.get_trial(mine[0]._trial_id).intermediate_values[7])
    some = ours.get_all_trials(study, states=(TrialState.WAITING,))
    assert [trial.number for trial in some] == [1, 4]


def test_a_trial_ends_with_all_that_is_known_of_it(both: tuple[Database, RDBStorage], study: int) -> None:
    ours, theirs = both
    identity = ours.create_new_trial(study, waiting(TrialState.RUNNING))
    ours.end_trial(
        identity, Ending(TrialState.COMPLETE, [0.5, -math.inf], {"record": {"a": 1}}, {"constraints:memory": -1.0})
    )
    ended = theirs.get_trial(identity)
    assert (ended.state, ended.values) == (TrialState.COMPLETE, [0.5, -math.inf])
    assert ended.user_attrs["record"] == {"a": 1}
    assert ended.constraints == {"memory": -1.0}
    assert ended.datetime_complete is not None
    assert abs((datetime.now() - ended.datetime_complete).total_seconds()) < 60  # noqa: DTZ005 - as Optuna's own


def test_a_trial_that_has_ended_stays_as_it_is(both: tuple[Database, RDBStorage], study: int) -> None:
    ours, theirs = both
    identity = ours.create_new_trial(study, waiting(TrialState.RUNNING))
    theirs.set_trial_state_values(identity, TrialState.FAIL)
    before = theirs.get_trial(identity)
    with pytest.raises(optuna.exceptions.UpdateFinishedTrialError):
        ours.end_trial(identity, Ending(TrialState.COMPLETE, [1.0, 2.0], {"record": {}}, {}))
    assert theirs.get_trial(identity) == before


def test_attributes_of_a_dead_worker_are_replaced(both: tuple[Database, RDBStorage], study: int) -> None:
    ours, theirs = both
    left: dict[str, Any] = {"user_attrs": {"record": "half"}, "system_attrs": {"constraints:memory": 5.0}}
    identity = ours.create_new_trial(study, waiting(TrialState.RUNNING, **left))
    ours.end_trial(identity, Ending(TrialState.PRUNED, None, {"record": "whole"}, {"constraints:memory": -1.0}))
    ended = theirs.get_trial(identity)
    assert (ended.state, ended.values, ended.user_attrs) == (TrialState.PRUNED, None, {"record": "whole"})
    assert ended.constraints == {"memory": -1.0}


def test_a_knob_keeps_its_range(both: tuple[Database, RDBStorage], study: int) -> None:
    ours, _ = both
    ours.create_new_trial(study, waiting())
    other: dict[str, Any] = {"params": {"kind": "c"}, "distributions": {"kind": CategoricalDistribution(("a", "c"))}}
    with pytest.raises(ValueError, match="dynamic value space"):
        ours.create_new_trial(study, waiting(**other))
    assert len(ours.get_all_trials(study)) == 1


def test_what_is_not_there_is_not_found(both: tuple[Database, RDBStorage]) -> None:
    ours, _ = both
    for ask in (ours.get_all_trials, ours.get_trial, lambda number: ours.create_new_trial(number, waiting())):
        with pytest.raises(KeyError):
            ask(10**6)


def test_trials_that_are_made_at_once_have_numbers_of_their_own(any_server: Server | mariadb.Server) -> None:
    ours = Database(read_address(any_server.url).url)
    study = ours.create_new_study(DIRECTIONS)
    with ThreadPoolExecutor(4) as several:
        made = list(several.map(lambda _: ours.create_new_trial(study, waiting()), range(24)))
    assert sorted(ours.get_trial(one).number for one in made) == list(range(24))
    ours.engine.dispose()


def test_a_trial_that_runs_is_read_again_in_state_and_attributes(both: tuple[Database, RDBStorage], study: int) -> None:
    ours, theirs = both
    identities = [ours.create_new_trial(study, waiting(TrialState.RUNNING)) for _ in range(3)]
    before = ours.get_all_trials(study)
    theirs.set_trial_user_attr(identities[0], "mark", 1.5)
    theirs.set_trial_system_attr(identities[1], "constraints:memory", 2.0)
    theirs.set_trial_state_values(identities[1], TrialState.COMPLETE, [1.0, 2.0])
    for _ in range(2):
        assert ours.get_all_trials(study) == theirs.get_all_trials(study)
    assert before[0].user_attrs == waiting().user_attrs
    theirs.set_trial_state_values(identities[2], TrialState.FAIL)
    assert ours.get_all_trials(study) == theirs.get_all_trials(study)


def test_a_record_may_be_long(both: tuple[Database, RDBStorage], study: int) -> None:
    ours, theirs = both
    record = {"epochs": [{"loss": 0.123456789, "seconds": 0.1}] * 3000}
    identity = ours.create_new_trial(study, waiting(TrialState.RUNNING))
    ours.end_trial(identity, Ending(TrialState.PRUNED, None, {"record": record}, {}))
    theirs.set_study_user_attr(study, "run", record)
    assert len(str(record)) > 2**16
    assert theirs.get_trial(identity).user_attrs["record"] == record
    assert ours.get_study_user_attrs(study) == {"run": record}


def test_tables_that_hold_no_long_record_are_named(maria: mariadb.Server) -> None:
    ours = Database(database_of(maria, "short"))
    with ours.engine.begin() as connection:  # as Optuna makes them
        connection.execute(text("ALTER TABLE trial_user_attributes MODIFY value_json TEXT"))
    storage = patient(ours, Patience(lambda _: pytest.fail("it waits"), print))
    identity = storage.create_new_trial(storage.create_new_study(DIRECTIONS), waiting(TrialState.RUNNING))
    with pytest.raises(
        RunError, match=r"does not take a record \(.*too long.*\): give one whose tables tuner has made"
    ):
        storage.end_trial(identity, Ending(TrialState.PRUNED, None, {"record": "x" * 2**16}, {}))
    assert storage.get_trial(identity).state is TrialState.RUNNING
    ours.engine.dispose()


def test_several_may_make_the_tables_at_once(any_server: Server | mariadb.Server) -> None:
    address = Address(database_of(any_server, "at_once"), "tuner")

    def studies(_: int) -> int:
        storage = open_storage(address)
        try:
            return len(storage.get_all_studies())
        finally:
            close(storage)

    with ThreadPoolExecutor(6) as several:
        assert list(several.map(studies, range(6))) == [0] * 6


def database_of(server: Server | mariadb.Server, name: str) -> str:
    """Make a database, and return its address for SQLAlchemy."""
    url = read_address(server.url).url
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return f"{url.rpartition('/')[0]}/{name}"


def test_a_trial_takes_a_few_statements(both: tuple[Database, RDBStorage], study: int) -> None:
    ours, _ = both
    ours.create_new_trial(study, waiting())
    ours.create_new_trial(study, waiting())  # the ranges are known now
    asked: list[str] = []

    def note(*about: Any) -> None:
        asked.append(about[2])

    event.listen(ours.engine, "before_cursor_execute", note)
    identity = ours.create_new_trial(study, waiting(TrialState.RUNNING))
    assert len(asked) == 7
    ours.get_all_trials(study)
    assert len(asked) == 9
    ours.end_trial(identity, Ending(TrialState.COMPLETE, [1.0, 2.0], {"record": {}}, {"constraints:memory": -1.0}))
    assert len(asked) == 13
    event.remove(ours.engine, "before_cursor_execute", note)
