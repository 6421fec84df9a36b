"""Secrets: every entry, or named pairs of facts."""

from __future__ import annotations

import pytest

from shoal.audit.exact import audit
from shoal.chains.families import MixingSummary
from shoal.chains.model import MarkovChain
from shoal.core.errors import InputError
from shoal.core.task import EachEntry, Task
from shoal.events.pairs import Event, SecretPairs
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.queries import count
from shoal.mechanisms.table import verify_promise
from shoal.networks.table import JointTable

TABLE = JointTable.of([[0.4, 0.1], [0.1, 0.4]], variables=["ann", "bob"])
ILL, WELL = Event.of("ann is ill", {"ann": "1"}), Event.of("ann is well", {"ann": ["0"]})


def test_each_entry_suits_every_model() -> None:
    chain = MarkovChain.of([[0.9, 0.1], [0.4, 0.6]])
    EachEntry().check((chain, TABLE, MixingSummary(pi_min=0.1, gap=1)))
    assert EachEntry().notion == "pufferfish"
    assert EachEntry().subject == "any single entry"
    assert EachEntry().describe() == "the value of every single entry: no time or record is exempt"
    assert EachEntry() == EachEntry()


def test_an_event_is_a_mapping_written_down() -> None:
    assert ILL.mapping() == {"ann": ("1",)}
    assert Event("ann is well", (("ann", ("0",)),)) == WELL
    assert ILL != WELL


def test_pairs_name_events_a_table_knows() -> None:
    secrets = SecretPairs.of([(ILL, WELL)])
    Task(query=count("01", "1"), secrets=secrets, family=(TABLE,))
    assert secrets.notion == "pufferfish"
    assert secrets.subject == "the named pairs of facts"
    assert secrets.describe() == "which of two facts holds: 'ann is ill' against 'ann is well'"


def test_a_long_list_of_pairs_is_counted_not_listed() -> None:
    assert SecretPairs.of([(ILL, WELL)] * 6).describe().endswith(" and 2 more pairs")


def test_pairs_cannot_be_empty() -> None:
    with pytest.raises(InputError, match="pairs is empty; name at least one pair of events"):
        SecretPairs.of([])


def test_events_need_models_with_variables() -> None:
    chain = MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], length=4)
    with pytest.raises(InputError, match="the variables of a series are its slots"):
        SecretPairs.of([(ILL, WELL)]).check((TABLE, chain))


def test_events_must_name_known_variables_and_values() -> None:
    for event, message in (
        (Event.of("x", {"carl": "1"}), r"variable 'carl' is not one of \['ann', 'bob'\]"),
        (Event.of("x", {"ann": "2"}), "variable 'ann' has no value '2'"),
    ):
        with pytest.raises(InputError, match=message):
            SecretPairs.of([(ILL, event)]).check((TABLE,))


@pytest.mark.parametrize("epsilon", [1, 300])
@pytest.mark.parametrize("row", ["exact", "wasserstein", "group"])
def test_facts_that_cannot_hold_and_huge_budgets_are_planned_for(row: str, epsilon: int) -> None:
    """No noise is needed for what nobody can learn; no range of scales is empty."""
    sure = JointTable.of([[1.0, 0.0], [0.0, 0.0]], variables=["ann", "bob"])
    pairs = SecretPairs.of([(ILL, Event.of("bob is ill", {"bob": "1"}))])
    for table in (sure, TABLE):
        plan = calibrate(count("01", "1"), pairs, table, epsilon=epsilon, mechanism=row)
        assert verify_promise(plan) <= epsilon
        assert audit(plan).holds
