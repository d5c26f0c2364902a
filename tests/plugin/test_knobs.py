"""Knobs: what is drawn, fixed, narrowed, replayed and walked through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import KnobError
from tuner.plan.parts import Scalar
from tuner.plugin.knobs import Choice, Draw, Knob, Numeric, ValueSource, Wanted, narrow
from tuner.plugin.sources import corners, fixed_values, preferred_values, recording

ALPHA = Numeric("gdm.alpha", 0.0, 0.1, whole=False)
BLOCKS = Numeric("freeze.blocks", 1, 20, whole=True)
BITS = Choice("cache.bits", (8, 4, 2))


def drawn(value: Scalar, wanted: dict[str, Wanted] | None = None) -> Draw:
    return Draw(lambda _: value, "s", wanted)


def test_a_drawn_value_has_the_knobs_type() -> None:
    assert repr(drawn(3.0).integer("n", 1, 5)) == "3"
    assert repr(drawn(3).number("x", 1, 5)) == "3.0"
    assert repr(drawn(1).choice("flag", (True, False))) == "True"


@pytest.mark.parametrize("value", [0, 6, "3"])
def test_a_value_outside_the_range_is_refused(value: Scalar) -> None:
    with pytest.raises(KnobError, match=rf"s\.n in \[1, 5\], but {value!r} was given: give an allowed value"):
        drawn(value).integer("n", 1, 5)


def test_a_value_that_is_no_option_is_refused() -> None:
    with pytest.raises(KnobError, match=r"s\.bits in \{8, 4\}, but 2 was given"):
        drawn(2).choice("bits", (8, 4))


def test_a_strategy_that_offers_nothing_legal_is_an_error() -> None:
    with pytest.raises(KnobError, match=r"s\.n must have low ≤ high, but its range is \[1, 0\]"):
        drawn(1).integer("n", 1, 0)
    with pytest.raises(KnobError, match=r"s\.n in \[1, 5\] must start inside its range, but start is 9"):
        drawn(1).integer("n", 1, 5, start=9, usual=(1, 2))
    with pytest.raises(KnobError, match=r"s\.x is logarithmic and must have low > 0, but low is 0"):
        drawn(1).number("x", 0, 1, log=True)
    with pytest.raises(KnobError, match=r"s\.c must have at least one option"):
        drawn(1).choice("c", ())


@pytest.mark.parametrize(
    ("legal", "wanted", "left"),
    [
        (BLOCKS, Numeric("", 3, 1000, whole=False), Numeric("freeze.blocks", 3, 20, whole=True)),
        (BLOCKS, Numeric("", 1.5, 3.5, whole=False), Numeric("freeze.blocks", 2, 3, whole=True)),
        (
            BLOCKS,
            Numeric("", -1e300, 1e300, whole=False, log=True),
            Numeric("freeze.blocks", 1, 20, whole=True, log=True),
        ),
        (ALPHA, Numeric("", 0.01, 1.0, whole=False), Numeric("gdm.alpha", 0.01, 0.1, whole=False)),
        (BLOCKS, (1, 3, 30), Choice("freeze.blocks", (1, 3))),
        (BLOCKS, (3, 3.0), Choice("freeze.blocks", (3,))),
        (BLOCKS, 3, Choice("freeze.blocks", (3,))),
        (BITS, (4, 16), Choice("cache.bits", (4,))),
        (BITS, 4, Choice("cache.bits", (4,))),
    ],
)
def test_what_is_searched_is_what_is_both_wanted_and_legal(legal: Knob, wanted: Wanted, left: Knob) -> None:
    assert narrow(legal, wanted) == left


@pytest.mark.parametrize(
    ("legal", "wanted", "message"),
    [
        (BLOCKS, Numeric("", 21, 30, whole=False), r"asks for \[21, 30\], but this model allows \[1, 20\]"),
        (BLOCKS, Numeric("", 2.2, 2.8, whole=False), r"asks for \[2.2, 2.8\], but this model allows \[1, 20\]"),
        (BLOCKS, (30, 40), r"freeze.blocks: the search space asks for 30, 40, but this model allows \[1, 20\]"),
        (BLOCKS, 2.5, r"asks for 2.5, but this model allows \[1, 20\]"),
        (BLOCKS, True, r"asks for True, but this model allows \[1, 20\]"),
        (BLOCKS, "all", r"asks for all, but this model allows \[1, 20\]"),
        (BITS, 16, "cache.bits: the search space asks for 16, but this model allows 8, 4, 2"),
        (BITS, Numeric("", 1, 4, whole=False), "cache.bits takes one of 8, 4, 2, not a range: give a value or"),
        (
            ALPHA,
            Numeric("", 0, 1, whole=False, log=True),
            "gdm.alpha is logarithmic and must have low > 0, but low is 0",
        ),
    ],
)
def test_asking_for_nothing_legal_is_an_error_with_both_sides(legal: Knob, wanted: Wanted, message: str) -> None:
    with pytest.raises(KnobError, match=message):
        narrow(legal, wanted)


@given(st.integers(1, 50), st.integers(1, 50), st.floats(-10, 60), st.floats(-10, 60))
def test_a_narrowed_range_is_inside_both(low: int, high: int, least: float, most: float) -> None:
    legal = Numeric("n", min(low, high), max(low, high), whole=True)
    wanted = Numeric("n", min(least, most), max(least, most), whole=False)
    both = [value for value in range(51) if legal.low <= value <= legal.high and wanted.low <= value <= wanted.high]
    if not both:
        with pytest.raises(KnobError):
            narrow(legal, wanted)
        return
    left = narrow(legal, wanted)
    assert isinstance(left, Numeric)
    assert (left.low, left.high) == (both[0], both[-1])


def test_a_record_is_replayed() -> None:
    source = fixed_values({"freeze.blocks": 7})
    assert source(BLOCKS) == 7
    assert source(Choice("recipe.clip", (0.0,))) == 0.0  # a knob that came later
    with pytest.raises(KnobError, match=r"gdm\.alpha has no recorded value: the record has freeze\.blocks"):
        source(ALPHA)


@pytest.mark.parametrize(
    ("knob", "preference", "value"),
    [
        (BLOCKS, None, 10),
        (BLOCKS, 3, 3),
        (BLOCKS, 10**6, 20),
        (BLOCKS, "all", 10),
        (ALPHA, None, 0.05),
        (ALPHA, 0.3, 0.1),
        (Numeric("lr", 1e-4, 1e-2, whole=False, log=True), None, 1e-3),
        (BITS, None, 8),
        (BITS, 4, 4),
        (BITS, 16, 8),
    ],
)
def test_a_preference_is_met_as_far_as_the_knob_allows(knob: Knob, preference: Scalar | None, value: Scalar) -> None:
    preferences = {} if preference is None else {knob.name: preference}
    assert preferred_values(preferences)(knob) == pytest.approx(value)


def test_recording_keeps_values_and_knobs() -> None:
    values: dict[str, Scalar] = {}
    knobs: dict[str, Knob] = {}
    source = recording(preferred_values({}), values, knobs)
    source(BITS)
    Draw(source, "one").integer("n", 1, 5)
    Draw(source, "two").integer("n", 1, 9)
    assert values == {"cache.bits": 8, "one.n": 3, "two.n": 5}  # a knob is named after its strategy
    assert list(knobs) == list(values)
    assert knobs["cache.bits"] == BITS


def test_knobs_say_what_they_allow() -> None:
    said = [str(knob) for knob in (ALPHA, BLOCKS, BITS, Numeric("lr", 1e-6, 1, whole=False, log=True))]
    assert said == [
        "gdm.alpha in [0, 0.1]",
        "freeze.blocks in [1, 20]",
        "cache.bits in {8, 4, 2}",
        "lr in [1e-06, 1] (log)",
    ]


def test_a_knob_with_one_value_left_is_fixed() -> None:
    assert [Choice("a", (1,)).fixed, Numeric("n", 3, 3, whole=True).fixed] == [True, True]
    assert [BITS.fixed, ALPHA.fixed] == [False, False]


def branching(source: ValueSource) -> None:
    draw = Draw(source, "s")
    if draw.choice("by", ("a", "b", "none")) != "none":
        draw.integer("n", 1, 5)
    draw.choice("flag", (True, False))


def test_corners_are_every_combination_of_choices_and_ends() -> None:
    seen: list[dict[str, Scalar]] = []

    def run(source: ValueSource) -> None:
        seen.append({})
        branching(recording(source, seen[-1]))

    knobs = list(corners(run))
    assert len(knobs) == len(seen) == 2 * 2 * 2 + 2
    assert len({tuple(sorted(values.items())) for values in seen}) == 10
    assert {values.get("s.n") for values in seen} == {1, 5, None}


def test_a_walk_cut_short_has_been_down_every_branch() -> None:
    def run(source: ValueSource) -> None:
        draw = Draw(source, "s")
        draw.integer("early", 0, 1) or draw.number("only_at_the_low_end", 0, 1)
        if draw.choice("by", ("a", "b")) == "b":
            draw.integer("only_of_b", 0, 1)
        for number in range(10):
            draw.integer(f"late{number}", 0, 9)

    found: set[str] = set()
    for knobs in corners(run, most=64):
        found |= knobs.keys()
    assert {"s.only_of_b", "s.only_at_the_low_end", "s.late9"} <= found


def test_corners_stop_at_the_number_asked_for_and_a_fixed_knob_has_one() -> None:
    assert len(list(corners(branching, most=3))) == 3
    assert len(list(corners(lambda source: Draw(source, "s").integer("n", 3, 3)))) == 1


def test_a_start_value_is_tried_first_and_clipped_into_what_is_wanted() -> None:
    drawn = Draw(preferred_values({}), "s")
    assert drawn.integer("n", 1, 9, start=3) == 3
    assert drawn.number("x", 0.0, 1.0, start=0.25) == 0.25
    assert drawn.choice("c", ("p", "q"), start="q") == "q"
    assert (drawn.integer("m", 1, 9), drawn.choice("d", ("p", "q"))) == (5, "p")
    wanted = Draw(preferred_values({}), "s", {"s.n": Numeric("", 5, 9, whole=False), "s.c": ("p", "r"), "s.k": (1, 2)})
    assert wanted.integer("n", 1, 9, start=3) == 5
    assert wanted.choice("c", ("p", "q", "r"), start="q") == "p"
    wanted = Draw(preferred_values({}), "s", {"s.c": ("p", "r")})
    assert wanted.choice("c", ("p", "q", "r"), start="r") == "r"
    assert Draw(preferred_values({"s.n": 7}), "s").integer("n", 1, 9, start=3) == 7
    # it is no part of the knob's text
    assert repr(Numeric("a", 0, 1, whole=True, start=1)) == repr(Numeric("a", 0, 1, whole=True))
