"""The trials of a study in Optuna's storage: made, ended whole, and tables that several make at once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy import create_engine, text

from benchmarks.fleet.servers import Server
from tuner_fleet.address import Address, read_address
from tuner_fleet.storage.opening import opened
from tuner_fleet.storage.trials import Trials


@pytest.fixture(params=["file", "server", "maria"])
def trials(request: pytest.FixtureRequest, address: str) -> Iterator[Trials]:
    """A study of two objectives in each database."""
    url = address if request.param == "file" else request.getfixturevalue(request.param).url
    with opened(read_address(url)) as storage:
        name = optuna.create_study(storage=storage, directions=["maximize", "minimize"]).study_name
        yield Trials(storage, name)


def running(**attributes: Any) -> FrozenTrial:
    return create_trial(
        state=TrialState.RUNNING, params={"lr": 0.1}, distributions={"lr": FloatDistribution(0.0, 1.0)}, **attributes
    )


def test_a_trial_ends_with_all_that_is_known_of_it(trials: Trials) -> None:
    assert [trials.make(running()) for _ in range(2)] == [0, 1]
    trials.end(1, [0.5, float("-inf")], {"record": {"a": [1, None]}}, {"constraints:memory": -1.0})
    ended = trials.get(1)
    assert (ended.state, ended.values) == (TrialState.COMPLETE, [0.5, float("-inf")])
    assert ended.user_attrs == {"record": {"a": [1, None]}}
    assert ended.constraints == {"memory": -1.0}
    assert trials.all(TrialState.COMPLETE) == [ended]
    assert trials.take_up(0).params == {"lr": 0.1}


def test_a_trial_that_has_ended_stays_as_it_is(trials: Trials) -> None:
    number = trials.make(running())
    assert trials.set_state(number, TrialState.FAIL)
    before = trials.get(number)
    with pytest.raises(optuna.exceptions.UpdateFinishedTrialError):
        trials.end(number, [1.0, 2.0], {"record": {}}, {})
    assert trials.get(number) == before


def test_attributes_of_a_dead_worker_are_replaced(trials: Trials) -> None:
    left: dict[str, Any] = {"user_attrs": {"record": "half"}, "system_attrs": {"constraints:memory": 5.0}}
    number = trials.make(running(**left))
    trials.end(number, None, {"record": "whole"}, {"constraints:memory": -1.0})
    ended = trials.get(number)
    assert (ended.state, ended.values, ended.user_attrs) == (TrialState.PRUNED, None, {"record": "whole"})
    assert ended.constraints == {"memory": -1.0}


def test_of_several_who_begin_a_waiting_trial_one_does(trials: Trials) -> None:
    trials.study.enqueue_trial({"lr": 0.2})
    assert [trials.set_state(0, TrialState.RUNNING) for _ in range(2)] == [True, False]


def test_several_may_make_the_tables_at_once(any_server: Server) -> None:
    url = read_address(any_server.url).url
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("CREATE DATABASE at_once"))
    engine.dispose()
    address = Address(f"{url.rpartition('/')[0]}/at_once", "tuner")

    def studies(_: int) -> int:
        with opened(address) as storage:
            return len(storage.get_all_studies())

    with ThreadPoolExecutor(6) as several:
        assert list(several.map(studies, range(6))) == [0] * 6
