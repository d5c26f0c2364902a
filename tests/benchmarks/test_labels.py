"""Suggestions by name are as often right as is said."""

from benchmarks.models.labels import by_name, names, right_of_example, written
from tuner_labels.suggestions import PROPOSED


def test_the_right_names_are_names_and_few_classes_are_missed() -> None:
    right = written()
    assert len(right) == 50
    assert {name for own in right.values() for name in own} <= set(names())
    found = by_name()
    assert PROPOSED == 3
    assert (found["first"], found["in three"]) == (39, 44)


def test_each_class_of_the_example_has_labels_of_its_own() -> None:
    right = right_of_example()
    assert len(right) == 10
    assert "Bark" in right["dog_bark"]
    assert "Animal" not in right["dog_bark"]
