"""Every broken rule of a spec: the key, the value, the rule, in one sentence."""

from __future__ import annotations

import copy
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from shoal.core.errors import SpecError
from shoal.spec.request import parse_request, request_of

GOOD: dict[str, Any] = {
    "data": {"state": "activity", "time": "minute", "gap": "10min"},
    "model": [
        {
            "kind": "markov-chain",
            "states": ["sit", "walk"],
            "transition": [[Decimal("0.9"), Decimal("0.1")], [Decimal("0.4"), Decimal("0.6")]],
            "length": 10,
        }
    ],
    "secrets": {"kind": "each-entry"},
    "query": {"kind": "count", "states": ["walk"]},
    "privacy": {"epsilon": 1},
}

TABLE = {
    "kind": "table",
    "variables": ["a", "b"],
    "domains": [["0", "1"], ["0", "1"]],
    "probability": [[Decimal("0.25")] * 2] * 2,
}
PAIRS: dict[str, Any] = {
    "kind": "pairs",
    "events": {"yes": {"a": "1"}, "no": {"a": "0"}},
    "pairs": [["yes", "no"]],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """GOOD with the key at `path` set to `value`; "" as the last step removes nothing."""
    document = copy.deepcopy(GOOD)
    *steps, last = path.split(".")
    place: Any = document
    for step in steps:
        place = place[int(step)] if step.isdigit() else place[step]
    if value is REMOVED:
        del place[last]
    else:
        place[int(last) if last.isdigit() else last] = value
    return document


class _Removed:
    """A key taken out; its name is the same in every process, as parallel runs need."""

    def __repr__(self) -> str:
        return "removed"


REMOVED = _Removed()

CASES = [
    # the five sections
    ("privacy", REMOVED, "privacy is missing; a spec needs it (the budget)"),
    ("model", [], "model is an empty list; it must not be empty"),
    ("model", {"kind": "mixing"}, "model is a single table; write [[model]]"),
    ("polcy", 1, "polcy is not a key of a spec; its keys are data, model, secrets"),
    ("privacy", 3, "privacy is 3; it must be a table"),
    # amounts
    ("privacy.epsilon", -1, "privacy.epsilon is -1; it must be greater than 0"),
    ("privacy.epsilon", 0, "privacy.epsilon is 0; it must be greater than 0"),
    ("privacy.epsilon", Decimal("nan"), "privacy.epsilon is NaN; it must be a finite number"),
    ("privacy.epsilon", Decimal("inf"), "privacy.epsilon is Infinity; it must be a finite"),
    ("privacy.epsilon", "1", "privacy.epsilon is '1'; it must be a number"),
    ("privacy.epsilon", True, "privacy.epsilon is true; it must be a number"),
    ("privacy.epsilon", REMOVED, "privacy has neither of epsilon and error; give exactly one"),
    ("privacy.error", 3, "privacy has both of epsilon and error; give exactly one amount"),
    ("privacy.confidence", Decimal("0.9"), "privacy has confidence without error"),
    ("privacy.confidence", 1, "privacy.confidence is 1; it must be between 0 and 1"),
    ("privacy.epsilonn", 1, "did you mean 'epsilon'?"),
    ("privacy.mechanism", "magic", "privacy.mechanism is 'magic'; it must be 'best' or one of"),
    # models
    ("model.0.kind", "plague", "model.kind is 'plague'; it must be one of 'markov-chain'"),
    ("model.0.kind", "hidden", "'bayes-net', 'contagion', 'dependence'"),
    ("model.0.kind", REMOVED, "model.kind is missing; choose one of"),
    ("model.0", 3, "model is 3; it must be a section with a kind"),
    ("model.0.transition.0.1", Decimal("-0.1"), "model.transition[0][1] is -0.1; a probability"),
    ("model.0.transition.1.0", Decimal("nan"), "model.transition[1][0] is NaN; a probability"),
    ("model.0.transition.1.0", Decimal("inf"), "model.transition[1][0] is Infinity; a prob"),
    ("model.0.transition.1.0", "x", "model.transition[1][0] is 'x'; it must be a number"),
    ("model.0.transition.0.0", Decimal("0.8"), "model.transition row 0 sums to 0.9; each row"),
    ("model.0.transition", [[1]], "model.transition has shape (1, 1); 2 states need (2, 2)"),
    ("model.0.transition", [[1, 0], [1]], "model.transition has rows of different lengths"),
    ("model.0.transition", "x", "model.transition is 'x'; it must be a list of probabilities"),
    ("model.0.transition", REMOVED, "model.transition is missing; a [[model]] of kind"),
    ("model.0.transitions", [], "did you mean 'transition'?"),
    ("model.0.initial", "somehow", 'model.initial is \'somehow\'; it must be "stationary", "any"'),
    ("model.0.initial", [1, 1], "model.initial sums to 2; each row must be"),
    ("model.0.length", 0, "model.length is 0; it must be a whole number of at least 1"),
    ("model.0.length", Decimal("2.5"), "model.length is 2.5; it must be a whole number"),
    ("model.0.states", ["a", "a"], "model.states names 'a' twice"),
    ("model.0.states.0", Decimal("1.5"), "model.states[0] is 1.5; it must be text"),
    ("model.0", {"file": "none.json"}, "none.json' does not exist; check the path"),
    ("model.0", {"file": "m.json", "states": []}, "model.states is not a key of a [[model]] with"),
    # secrets
    ("secrets.kind", "policy", "secrets.kind is 'policy'; it must be one of"),
    ("secrets.pairs", [], "secrets.pairs is not a key of [secrets] of kind 'each-entry'"),
    ("secrets", PAIRS, "the event 'yes' names 'a'; the variables of a series are its slots"),
    ("secrets", {**PAIRS, "pairs": [["yes"]]}, "secrets.pairs[0] is a list of 1; it must be a"),
    ("secrets", {**PAIRS, "pairs": [["yes", "maybe"]]}, "secrets.pairs[0] names 'maybe'"),
    ("secrets", {**PAIRS, "events": {"yes": {"a": []}}}, "secrets.events.yes.a is an empty list"),
    # queries
    ("query.kind", "median", "query.kind is 'median'; it must be one of 'count', 'sum'"),
    ("query.states", ["fly"], "query.states names 'fly', which is not a state of the model"),
    ("query.states", [], "query.states is an empty list; it must name at least one value"),
    ("query", {"kind": "sum", "weights": {"fly": 1}}, "query.weights names 'fly'"),
    ("query", {"kind": "sum", "weights": {"sit": "x"}}, "query.weights.sit is 'x'; it must be a"),
    ("query", {"kind": "sum", "weights": {"sit": 0}}, "query: all states have the same weight"),
    ("query", {"kind": "histogram", "length": 5}, "query has length without relative = true"),
    ("query", {"kind": "histogram", "relative": "yes"}, "query.relative is 'yes'; it must be true"),
    # data
    ("data.release", "all", "data.release is 'all'; it must be 'each' or 'together'"),
    ("data.time", REMOVED, "data has gap without time; name the time column, or drop gap"),
    ("data.state", "", "data.state is ''; it must be text in quotes, and not empty"),
]


@pytest.mark.parametrize(("path", "value", "words"), CASES, ids=lambda case: str(case)[:40])
def test_the_sentence_names_key_value_and_rule(path: str, value: Any, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        request_of(changed(path, value), folder=Path())
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_unchanged_spec_is_accepted() -> None:
    assert request_of(GOOD, folder=Path()).task.query.labels == ("walk",)


def test_models_of_a_family_are_counted_from_zero() -> None:
    second = {**GOOD["model"][0], "transition": [[1, 1], [0, 1]]}
    document = {**GOOD, "model": [GOOD["model"][0], second]}
    with pytest.raises(SpecError, match=r"^model\[1\]\.transition row 0 sums to 2;"):
        request_of(document, folder=Path())


def test_models_must_share_their_states() -> None:
    second = {**GOOD["model"][0], "states": ["walk", "sit"]}
    document = {**GOOD, "model": [GOOD["model"][0], second]}
    with pytest.raises(SpecError, match=r"model\[1\] has states \['walk', 'sit'\] and model\[0\]"):
        request_of(document, folder=Path())


def test_a_share_of_a_family_needs_its_own_length() -> None:
    query = {"kind": "histogram", "relative": True}
    document = {**GOOD, "model": GOOD["model"] * 2, "query": query}
    with pytest.raises(SpecError, match=r"query\.length is missing; give the public number"):
        request_of(document, folder=Path())
    given = {**document, "query": {**query, "length": 7}}
    assert request_of(given, folder=Path()).task.query.lipschitz * 7 == 2


def test_variables_with_different_values_cannot_be_counted() -> None:
    table = {**TABLE, "domains": [["0", "1"], ["no", "yes"]]}
    document = {**GOOD, "model": [table], "query": {"kind": "count", "states": ["1"]}}
    with pytest.raises(SpecError, match="model: does not say which values an entry can take"):
        request_of(document, folder=Path())


def test_events_are_checked_against_the_table() -> None:
    secrets = {**PAIRS, "events": {"yes": {"a": "2"}, "no": {"a": "0"}}}
    document = {
        **GOOD,
        "model": [TABLE],
        "secrets": secrets,
        "query": {"kind": "count", "states": ["1"]},
    }
    with pytest.raises(SpecError, match="variable 'a' has no value '2'"):
        request_of(document, folder=Path())


def test_text_that_is_not_toml_is_one_sentence() -> None:
    with pytest.raises(SpecError, match=r"^day.toml is not valid TOML: .*line 1.*correct that"):
        parse_request("epsilon = = 1", folder=Path(), name="day.toml")
