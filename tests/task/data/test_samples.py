"""Samples: arrays, ids, subsets and holdouts."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tuner.errors import TaskError
from tuner.task import ArraySamples, FileSamples, InputSpec, Samples, Subset, stratified_holdout

ARRAYS = InputSpec("arrays")
IMAGES = InputSpec("images", 4, 4)


def of(array: np.ndarray, spec: InputSpec = ARRAYS) -> Samples:
    return ArraySamples(array, np.zeros(len(array), np.int64), spec, "x_train")


@pytest.mark.parametrize(
    ("shape", "kind", "sample"),
    [
        ((2, 5, 7), np.float32, (1, 5, 7)),
        ((2, 8, 20), np.int8, (1, 8, 20)),
        ((2, 6, 5, 3), np.uint8, (3, 6, 5)),
        ((2, 6, 5, 1), np.uint8, (1, 6, 5)),
        ((2, 3, 6, 5), np.uint8, (3, 6, 5)),
        ((2, 6, 5, 3), np.float32, (6, 5, 3)),
        ((2, 9), np.float32, (9,)),
    ],
)
def test_arrays_become_channel_first(shape: tuple[int, ...], kind: type, sample: tuple[int, ...]) -> None:
    loaded = of(np.ones(shape, kind)).load(1)
    assert (loaded.shape, loaded.dtype) == (sample, np.dtype(kind))
    assert loaded.flags.c_contiguous


def test_a_loaded_sample_may_be_written_to_without_harm() -> None:
    samples = of(np.zeros((1, 1, 2, 2)))
    samples.load(0)[:] = 9
    assert samples.load(0).max() == 0


@pytest.mark.parametrize("shape", [(2, 8, 8), (2, 8, 8, 1), (2, 8, 8, 3)])
def test_image_arrays_go_the_way_of_image_files(shape: tuple[int, ...]) -> None:
    assert of(np.full(shape, 5, np.uint8), IMAGES).load(0).tolist() == np.full((3, 4, 4), 5).tolist()


@pytest.mark.parametrize(
    ("array", "spec", "message"),
    [
        (np.zeros((2, 8, 8), np.float32), IMAGES, r'x_train of kind "images" must be uint8 \[n, H, W\]'),
        (np.zeros((2, 3, 8, 8), np.uint8), IMAGES, r'x_train of kind "images" must be uint8 \[n, H, W\]'),
        (np.zeros(3), ARRAYS, r"must be numbers \[n, C, \.\.\.\]"),
        (np.array([["a"], ["b"]]), ARRAYS, r"must be numbers \[n, C, \.\.\.\]"),
        (np.zeros((2, 8)), InputSpec("arrays", 4), "leave size out"),
    ],
)
def test_arrays_of_another_form_are_refused(array: np.ndarray, spec: InputSpec, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        of(array, spec)


def test_arrays_are_resized_where_a_size_is_given() -> None:
    assert of(np.zeros((2, 8, 8), np.float32), InputSpec("arrays", 4)).load(0).shape == (1, 4, 4)


def test_an_id_follows_from_content_shape_and_type_alone() -> None:
    samples = of(np.array([[[1, 2]], [[1, 2]], [[2, 1]]], np.int16))
    first, same, other = (samples.sample_id(index) for index in range(3))
    assert first == same != other
    assert len(first) == 32
    assert set(first) <= set("0123456789abcdef")
    assert of(np.array([[[1], [2]]], np.int16)).sample_id(0) != first
    assert of(np.array([[[1, 2]]], np.int32)).sample_id(0) != first


def test_a_file_s_id_is_of_its_bytes_and_is_read_once(tmp_path: Path) -> None:
    files = [tmp_path / "a.png", tmp_path / "b.png"]
    for file in files:
        Image.new("RGB", (4, 4), (1, 2, 3)).save(file)
    samples = FileSamples(files, np.zeros(2, np.int64), IMAGES)
    first = samples.sample_id(0)
    assert first == samples.sample_id(1)
    assert samples.name(1) == str(files[1])
    assert samples.stamp(0) == str(files[0].stat().st_size)
    files[0].unlink()
    assert samples.sample_id(0) == first
    with pytest.raises(TaskError, match=r"a\.png"):
        samples.stamp(0)


def test_a_subset_is_a_view_with_the_names_and_ids_of_the_whole() -> None:
    whole = ArraySamples(np.arange(5.0).reshape(5, 1), np.arange(5), ARRAYS, "x_train")
    part = Subset(Subset(whole, [4, 2, 0]), np.array([0, 2]))
    assert len(part) == 2
    assert part.labels.tolist() == [4, 0]
    assert [part.name(index) for index in range(2)] == ["x_train[4]", "x_train[0]"]
    assert part.sample_id(0) == whole.sample_id(4)
    assert part.load(0).tolist() == [4.0]
    assert part.stamp(0) == "8"
    assert len(Subset(whole, [])) == 0


def test_a_holdout_is_seeded_and_keeps_every_class_on_both_sides() -> None:
    labels = np.array([0] * 10 + [1] * 2 + [2] + [3] * 100)
    rest, held_out = stratified_holdout(labels)
    assert sorted([*rest, *held_out]) == list(range(len(labels)))
    assert np.bincount(labels[held_out], minlength=4).tolist() == [2, 1, 0, 20]
    assert [part.tolist() for part in stratified_holdout(labels)] == [rest.tolist(), held_out.tolist()]
    assert stratified_holdout(labels, seed=1)[1].tolist() != held_out.tolist()


def test_a_multi_label_holdout_holds_out_no_label_that_the_rest_lacks() -> None:
    labels = (np.random.default_rng(0).random((60, 12)) < 0.06).astype(np.float32)
    rest, held_out = stratified_holdout(labels)
    assert len(held_out) > 5
    assert not (labels[held_out].any(axis=0) & ~labels[rest].any(axis=0)).any()
