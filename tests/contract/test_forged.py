"""Nothing a plan says about itself is believed: every false word of a forged one is found.

A plan of every row is stored, edited, given the fingerprint of the edited content, loaded and
re-checked. What an edit makes false is known here without the library: less noise, a smaller
amount, a wider promise or a cheaper rule of addition than the untouched plan has.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

import shoal
from shoal.core.charge import AsEntryDP
from shoal.core.codec import SCHEMA, digest, encode
from shoal.core.plan import Additive, Plan
from shoal.mechanisms.table import MECHANISMS, composition_of, confirm_plan, verify_promise
from shoal.share.place import PermanentPlace
from shoal.share.plan import Tracks
from shoal.share.roads import Roads
from tests.contract.tasks import OWN, TASKS, plan_of

ROWS = sorted(name for name, row in MECHANISMS.items() if not row.retired)
EACH = pytest.mark.parametrize(("row", "name"), [(row, OWN[row][0]) for row in ROWS])
FEW = 8  # tasks of a row that every edit is tried on
# a table of laws has no noise to edit: tests/oracle/test_optimal_table.py
# shared rides are cut without noise: test_another_rule_of_cutting_rides_is_found
WITHOUT_NOISE = ("mask-", "location-", "optimal-", "share")
NOISY = [row for row in ROWS if not row.startswith(WITHOUT_NOISE)]
Edit = Callable[[dict[str, Any]], None]


def fraction(value: Fraction) -> dict[str, str]:
    return {"$fraction": f"{value.numerator}/{value.denominator}"}


def times(data: dict[str, str], factor: Fraction) -> dict[str, str]:
    return fraction(Fraction(data["$fraction"]) * factor)


def forged(plan: Plan, *edits: Edit) -> str:
    """The document of `plan` after the edits, with a fingerprint that fits it."""
    data = copy.deepcopy(encode(plan))
    for edit in edits:
        edit(data)
    return json.dumps({"schema": SCHEMA, "fingerprint": digest(data), "value": data})


def believed(plan: Plan, *edits: Edit) -> float | None:
    """What a re-check of the edited plan measures; None when it is found out, in a sentence."""
    try:
        again = shoal.loads(forged(plan, *edits))
    except shoal.StoredError:
        return None
    loss = verify_promise(again)
    most = float(again.guarantee.amount) * (1 + 1e-12) if again.guarantee.proved else math.inf
    if loss <= most and loss < math.inf:
        return loss
    with pytest.raises((shoal.PromiseBroken, shoal.InputError)) as told:
        confirm_plan(again)
    sentence = str(told.value)
    assert sentence[0].islower(), sentence
    assert "\n" not in sentence
    return None


def put(value: Any, *path: str | int) -> Edit:
    def edit(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return edit


def scaled(factor: Fraction, *path: str | int) -> Edit:
    def edit(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = times(data[path[-1]], factor)

    return edit


def rule(kind: str, **fields: Any) -> Edit:
    return lambda data: data["composition"].insert(0, {"kind": kind, **fields})


def true_rules(plan: Plan, *edits: Edit) -> Edit:
    """The rules of addition brought in line with the edited body, as a careful forger would."""
    body = shoal.loads(forged(plan, *edits)).body
    eta = body.query.lipschitz / body.noise.scale
    return put([{"kind": "as-entry-dp", "eta": fraction(eta)}], "composition")


@EACH
def test_the_untouched_plan_is_believed(row: str, name: str) -> None:
    plan = plan_of(row, name)
    assert verify_promise(shoal.loads(forged(plan))) == verify_promise(plan)
    assert set(composition_of(plan)) == set(plan.composition)
    if plan.guarantee.proved:
        assert confirm_plan(plan) is plan


@pytest.mark.parametrize("row", NOISY)
def test_less_noise_is_found(row: str) -> None:
    for name in OWN[row][:FEW]:
        plan = plan_of(row, name)
        less = scaled(Fraction(99, 100), "body", "noise", "scale")
        assert believed(plan, less) is None, name
        much_less = scaled(Fraction(1, 64), "body", "noise", "scale")
        if plan.guarantee.proved:
            assert believed(plan, much_less, true_rules(plan, much_less)) is None, name


@pytest.mark.parametrize("row", NOISY)
def test_noise_off_the_lattice_of_the_answers_is_found(row: str) -> None:
    """Answers would then show in the remainder; a finer lattice hides them as well as before."""
    plan = plan_of(row, OWN[row][0])
    for factor in (Fraction(2), Fraction(3, 2)):
        assert believed(plan, scaled(factor, "body", "noise", "step")) is None


@pytest.mark.parametrize("row", NOISY)
def test_another_query_than_the_task_asks_is_found(row: str) -> None:
    for name in OWN[row][:FEW]:
        plan = plan_of(row, name)
        queries = (TASKS["count"].query, TASKS["sum"].query)
        other = encode(next(query for query in queries if query != plan.task.query))
        assert believed(plan, put(other, "body", "query")) is None, name
        assert believed(plan, put(other, "task", "query")) is None, name


@pytest.mark.parametrize("row", NOISY)
def test_noise_of_another_kind_is_found(row: str) -> None:
    """Zero-sum noise on numbers without a public total gives their sum away."""
    for name in OWN[row][:FEW]:
        plan = plan_of(row, name)
        body = plan.body
        assert isinstance(body, Additive)
        noise = encode(body.noise)
        zero_sum = {**noise, "kind": "zero-sum-laplace", "dimension": 3}
        if noise["kind"] == "zero-sum-laplace" or len(body.query.labels) == 3:
            continue
        assert believed(plan, put(zero_sum, "body", "noise")) is None, name


@EACH
def test_a_smaller_amount_is_found(row: str, name: str) -> None:
    plan = plan_of(row, name)
    if plan.guarantee.proved:
        assert believed(plan, scaled(Fraction(1, 16), "guarantee", "amount")) is None


@EACH
def test_a_wider_promise_is_found(row: str, name: str) -> None:
    plan = plan_of(row, name)
    for notion in ("group", "pufferfish", "entry-dp", "policy", "delta-privacy"):
        if notion != plan.guarantee.notion:
            assert believed(plan, put(notion, "guarantee", "notion")) is None, notion
    assert believed(plan, put("everybody, always", "guarantee", "over")) is None
    if not plan.guarantee.proved:
        honest = put("", "guarantee", "caveat")
        assert believed(plan, put(True, "guarantee", "proved"), honest) is None


@EACH
def test_cheaper_rules_of_addition_are_found(row: str, name: str) -> None:
    plan, little = plan_of(row, name), fraction(Fraction(1, 10**6))
    for edit in (
        rule("as-entry-dp", eta=little),
        rule("as-group-dp", epsilon=little),
        rule("same-quilts", key="None:x", eta=little),
        rule("per-step", epsilon=little, eta=little),
        rule("per-step", epsilon=little, eta=None),
        rule("alone", reason="all other days keep their epsilon"),
    ):
        assert believed(plan, edit) is None
    for place, held in enumerate(plan.composition):
        for field in ("eta", "epsilon"):
            if isinstance(getattr(held, field, None), Fraction):
                less = scaled(Fraction(999, 1000), "composition", place, field)
                assert believed(plan, less) is None, field


@pytest.mark.parametrize("row", [*NOISY, "share"])
def test_nothing_is_taken_from_the_certificate(row: str) -> None:
    """Its numbers are notes of the calibration: whatever they say, the re-check is the same."""
    plan = plan_of(row, OWN[row][0])

    def shrink(value: Any) -> Any:
        match value:
            case bool() | None | str():
                return value
            case int() | float():
                return type(value)(value / 2)
            case {"$fraction": _}:
                return times(value, Fraction(1, 2))
            case list():
                return [shrink(item) for item in value]
            case dict():
                return {key: shrink(item) for key, item in value.items()}

    def edit(data: Any) -> None:
        data["certificate"] = shrink(data["certificate"])

    assert believed(plan, edit) == verify_promise(plan)


ENTRY_ONLY = ("laplace", "knorm")  # their promise is not about the family
SLOW = [[0.999, 0.001], [0.001, 0.999]]


@pytest.mark.parametrize("row", [row for row in NOISY if "count" in OWN[row]])
def test_a_harder_task_is_found(row: str) -> None:
    """The same words about a chain that forgets more slowly, or is longer."""
    plan = plan_of(row, "count")
    assert isinstance(plan.body, Additive)
    slow = put(SLOW[0] + SLOW[1], "task", "family", 0, "transition", "values")
    start = put([0.5, 0.5], "task", "family", 0, "initial", "values")
    enough_for_all = 20 / plan.guarantee.amount  # noise for any law of 20 entries whatever
    if row not in ENTRY_ONLY and plan.body.noise.scale < enough_for_all:
        assert believed(plan, slow, start) is None
    if row == "group":
        assert believed(plan, slow, start) == verify_promise(plan)
        assert believed(plan, put(40, "task", "family", 0, "length")) is None


def test_entry_level_noise_is_no_other_promise_whoever_is_named() -> None:
    """Noise for one entry of "count" is too little for every row that speaks about correlation."""
    plan = plan_of("laplace", "count")
    for other in [*NOISY, "share"]:
        for name in OWN[other][:FEW]:
            guarantee = encode(plan_of(other, name).guarantee)
            if guarantee["proved"] and other not in ENTRY_ONLY:
                renamed = put(other, "mechanism")
                assert believed(plan, renamed, put(guarantee, "guarantee")) is None, (other, name)


def test_an_external_mechanism_is_rechecked_at_the_eta_it_is_held_to() -> None:
    chain = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]])
    plan = shoal.lift(lambda eta: lambda entries: 0.0, chain, epsilon=1)
    assert 0.99 < verify_promise(plan) <= 1
    assert believed(plan) == verify_promise(plan)
    assert believed(plan, scaled(Fraction(2), "body", "eta")) is None
    assert believed(plan, scaled(Fraction(1, 2), "composition", 0, "eta")) is None
    count = encode(shoal.count(chain.states, "1"))
    assert believed(plan, put(count, "task", "query")) is None
    assert believed(plan, put("group", "mechanism")) is None
    assert composition_of(plan) == plan.composition


@pytest.mark.parametrize("name", OWN["share"])
def test_another_rule_of_cutting_rides_is_found(name: str) -> None:
    """A plan that cuts by another map, zone or number of legs than its task names is refused."""
    plan = plan_of("share", name)
    roads = plan.task.family[0]
    assert isinstance(roads, Roads)
    weights = encode(replace(roads, weights=roads.weights / 2))
    turns = encode(replace(roads, turns=roads.turns / 2))
    for other in (weights, turns):
        assert believed(plan, put(other, "body", "rule", "roads")) is None
        assert believed(plan, put(other, "task", "family", 0)) is None
    elsewhere = encode(PermanentPlace.of((3, 4)))
    assert believed(plan, put([elsewhere], "body", "rule", "places")) is None
    assert believed(plan, put(elsewhere, "task", "secrets")) is None
    assert believed(plan, put(encode(Tracks(7)), "task", "query")) is None
    both = put(7, "body", "rule", "legs"), put(encode(Tracks(7)), "task", "query")
    assert believed(plan, *both) == verify_promise(plan)  # the plan of another number of legs


def test_rides_cut_by_a_smaller_epsilon_keep_the_promise() -> None:
    plan = plan_of("share", "rides")
    amount = plan.guarantee.amount
    less = scaled(Fraction(1, 2), "body", "rule", "epsilon")
    assert believed(plan, less) == float(amount / 2)
    assert believed(plan, scaled(1 + Fraction(1, 10**9), "body", "rule", "epsilon")) is None


def test_rules_come_from_what_is_drawn_and_not_from_what_is_said() -> None:
    plan = plan_of("exact", "count")
    body = plan.body
    assert isinstance(body, Additive)
    document = forged(plan, scaled(Fraction(1, 2), "composition", 0, "eta"))
    eta = body.query.lipschitz / body.noise.scale
    assert composition_of(shoal.loads(document)) == (AsEntryDP(eta),)


def leaves(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every single value of a document, with the way to it."""
    if isinstance(data, dict) and not {"$fraction", "$array"} & data.keys():
        for key, item in data.items():
            yield from leaves(item, (*path, key))
    elif isinstance(data, list):
        for place, item in enumerate(data):
            yield from leaves(item, (*path, place))
    else:
        yield path, data


def forgeries(value: Any) -> list[Any]:
    """Other values of the same shape: smaller and larger, another word, the opposite."""
    match value:
        case {"$fraction": _}:
            return [times(value, Fraction(1, 2)), times(value, Fraction(2))]
        case bool():
            return [not value]
        case int() | float():
            return [value - 1, value + 1, value / 2]
        case str():
            return [value + "x", ""]
        case None:
            return [1, "x"]
    return []


def harmless(path: tuple[Any, ...], value: Any, forged: Any) -> bool:
    """Whether an edit only promises less, draws more noise, or says what nobody counts on."""
    if value == forged or path[-1] in ("cost", "caveat"):
        return True
    if not isinstance(value, dict) or not isinstance(forged, dict):
        return False
    more = Fraction(forged["$fraction"]) > Fraction(value["$fraction"])
    # finer, a stricter filter, or rides cut by a smaller epsilon than is promised
    stricter = path[:2] == ("body", "amount") or path == ("body", "rule", "epsilon")
    if path[-1] == "step" or stricter:
        return not more
    return more and (path[-1] == "scale" or path[0] in ("guarantee", "composition"))


SLOW_ROWS = [row for row in ROWS if row.startswith(("mask-", "location-")) or row == "lift"]
ALL_ROWS = [pytest.param(r, marks=[pytest.mark.slow] if r in SLOW_ROWS else []) for r in ROWS]


@pytest.mark.parametrize("row", ALL_ROWS)
def test_every_field_that_is_forged_is_found_unless_it_promises_less(row: str) -> None:
    plan = plan_of(row, OWN[row][0])
    fields = {name: item for name, item in encode(plan).items() if name not in ("task", "kind")}
    del fields["certificate"]  # notes: see above
    tried, claimed = 0, not plan.guarantee.proved
    if claimed:  # a claim counts for nothing, whatever its amount
        del fields["guarantee"]
    if verify_promise(plan) == math.inf:
        return  # it is refused untouched
    for path, value in leaves(fields):
        for edited in forgeries(value):
            tried += 1
            if path == ("mechanism",):
                with pytest.raises(shoal.InputError, match="mechanism is"):
                    verify_promise(shoal.loads(forged(plan, put(edited, *path))))
            elif not harmless(path, value, edited):
                assert believed(plan, put(edited, *path)) is None, (path, value, edited)
    assert tried > 12
