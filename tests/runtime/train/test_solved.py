"""A bundle whose head is solved for: a round is one solution, and what is forgotten leaves no byte."""

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from safetensors.numpy import load_file, save_file

from tests.runtime.bundles import solved_bundle, trainable_bundle
from tuner.arrays import Array
from tuner.bundle.format import FILE, UNKNOWN, WEIGHTS, Bundle, seal
from tuner.bundle.rounds import WATCHING, device_folder, rounds_in_use
from tuner.cli.app import call
from tuner.commands.bundles.held import note_bundle
from tuner.errors import BundleError
from tuner.plan.parts import EditTraits, TailEdit
from tuner.ridge.sums import coded
from tuner.ridge.union import Domain, union_head
from tuner.runtime import Personaliser, SolvingTrainer, Trainer
from tuner.runtime.train.files import REPLAY, SOLVED, replay_of
from tuner.runtime.train.gate import Rules
from tuner.runtime.train.solved import SolvedFile
from tuner.task import Domain as TaskDomain
from tuner.task import InputSpec, Samples
from tuner.task.builtin import digits
from tuner.task.data.samples import ArraySamples
from tuner_c import write
from tuner_c.program import Action, compiler, program
from tuner_conformance.files import write_set
from tuner_store import held as held_module
from tuner_store.held import noted_bundles
from tuner_store.store import forget
from tuner_watch.ring import RingSample
from tuner_watch.round import local_training, run_round, trainer_of
from tuner_watch.serving import install_round
from tuner_watch.watch import ring_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]
EDIT = TailEdit.of("closed-form", EditTraits(solves=True))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    return solved_bundle(tmp_path_factory.mktemp("solved"))


def photos(count: int) -> tuple[list[Array], list[str]]:
    """Return digits that the user writes a pixel further down than those of the run."""
    samples = digits().local.test
    assert samples is not None
    rows = range(count)
    return [np.roll(samples.load(row), 1, axis=1) for row in rows], [str(samples.labels[row]) for row in rows]


def content(bundle: Path) -> bytes:
    return (bundle / SOLVED).read_bytes()


@pytest.mark.skipif(compiler() is None, reason="compiles C")
def test_its_head_in_c_answers_as_a_round_does(bundle: Path, tmp_path: Path) -> None:
    opened, folder = Bundle.open(bundle), tmp_path / "c"
    assert write(opened, folder).lines[0].endswith("compiled and checked")
    write_set(opened, tmp_path / "set")
    solved = load_file(tmp_path / "set" / "conformance.safetensors")["expected.solved"]
    rows = replay_of(opened, REPLAY).read(np.arange(len(solved)))
    with program(folder, rows.shape[1], solved.shape[1]) as run:
        answers = run([Action.answer(row) for row in rows])
    assert np.abs(np.stack([one.logits for one in answers]) - solved).max() < 1e-4 * np.abs(solved).max()


def test_a_round_is_the_solution_of_all_samples(bundle: Path, tmp_path: Path) -> None:
    samples, labels = photos(90)
    trainer = trainer_of(Bundle.open(bundle), threads=1)
    assert isinstance(trainer, SolvingTrainer)
    own = trainer.samples
    trainer.add(samples[:60], labels[:60])
    assert (len(trainer), trainer.samples) == (60, own + 60)
    before, known = trainer.accuracy(samples[60:], labels[60:]), trainer.before
    trainer.train()
    right = trainer.earlier_right()
    assert right is not None
    assert [len(flags) for flags in right] == [own, own, own]
    assert min(flags.mean() for flags in right[:2]) > 0.85
    assert trainer.accuracy(samples[60:], labels[60:]) > before
    assert known is not None
    assert (trainer.global_accuracy() or 0) > known - 0.05

    made = trainer.save(tmp_path / "made")
    train = Bundle.open(made).info.train
    assert train is not None
    assert (train.own_samples, train.own_bytes) == (own + 60, None)
    kept, file, replay = (
        load_file(made / SOLVED),
        SolvedFile.load(Bundle.open(bundle)),
        replay_of(Bundle.open(bundle), REPLAY),
    )
    empty = Domain.empty(kept["codes"].shape[1], 10, file.step)
    local = empty.added(kept["codes"].astype(float), kept["labels"])
    others = empty.added(coded(replay.read(np.arange(len(replay))), file.step), replay.labels)
    direct = union_head(file.given, local, others, file.settings).head
    (weight,) = (value for name, value in load_file(made / WEIGHTS).items() if value.shape == direct.weight.shape)
    np.testing.assert_allclose(weight, direct.weight, rtol=1e-5, atol=1e-5 * np.abs(direct.weight).max())
    answers = Personaliser(made, threads=1).predict_batch(np.stack(samples[60:]))
    share = np.mean([one.label == label for one, label in zip(answers, labels[60:], strict=True)])
    assert share == pytest.approx(trainer.accuracy(samples[60:], labels[60:]))


def test_a_forgotten_sample_leaves_the_bundle_as_if_it_had_never_been_there(bundle: Path, tmp_path: Path) -> None:
    samples, labels = photos(12)
    never, forgetting = SolvingTrainer(bundle, threads=1), SolvingTrainer(bundle, threads=1)
    never.add(samples[:9], labels[:9])
    forgetting.add(samples, labels)
    own = forgetting.samples
    forgetting.add(samples[3:], labels[3:])  # the same samples count once
    assert forgetting.samples == own
    assert forgetting.forget(samples[9:]) == 3
    assert forgetting.forget(samples[9:]) == 0
    never.train()
    forgetting.train()
    one, other = never.save(tmp_path / "never"), forgetting.save(tmp_path / "forgot")
    assert content(one) == content(other)
    assert (one / WEIGHTS).read_bytes() == (other / WEIGHTS).read_bytes()
    assert (one / "model.onnx").read_bytes() == (other / "model.onnx").read_bytes()


def test_what_is_unknown_is_measured_again_without_what_is_forgotten(bundle: Path, tmp_path: Path) -> None:
    samples, labels = photos(12)
    never, forgetting = SolvingTrainer(bundle, threads=1), SolvingTrainer(bundle, threads=1)
    forgetting.add(samples, labels)
    forgetting.forget(samples)
    for trainer in (never, forgetting):
        trainer.train()
    one, other = never.save(tmp_path / "never"), forgetting.save(tmp_path / "forgot")
    assert (one / UNKNOWN).read_bytes() == (other / UNKNOWN).read_bytes()
    assert Bundle.open(one).info.unknown == Bundle.open(other).info.unknown
    own, test = digits().local, Personaliser(one, threads=1, unknown=True)
    assert own.test is not None
    answers = test.predict_batch(np.stack([own.test.load(row) for row in range(len(own.test))]))
    assert np.mean([answer.answer != "unknown" for answer in answers]) > 0.88


def test_samples_of_the_run_can_be_forgotten_and_a_newer_label_takes_the_place_of_the_one_before(
    bundle: Path, tmp_path: Path
) -> None:
    train = digits().local.train
    trainer = SolvingTrainer(bundle, threads=1)
    own = trainer.samples
    assert trainer.forget([train.load(0), train.load(5)]) == 2
    assert trainer.samples == own - 2
    (sample,), _ = photos(1)
    trainer.add([sample], ["7"])
    trainer.add([sample], ["9"])
    assert trainer.samples == own - 1
    trainer.train()
    assert load_file(trainer.save(tmp_path / "made") / SOLVED)["labels"][-1] == 9


def test_forgetting_a_bundle_removes_every_byte_of_the_samples_that_rounds_learned(
    bundle: Path, tmp_path: Path
) -> None:
    samples, labels = photos(60)
    exported = {path.relative_to(bundle): path.read_bytes() for path in bundle.rglob("*") if path.is_file()}
    ring = ring_of(bundle)
    for sample, label in zip(samples, labels, strict=True):
        ring.add(sample, label)
    trainer = SolvingTrainer(bundle, threads=1)
    trainer.add(samples, labels)
    trainer.train()
    made = trainer.save(tmp_path / "made")
    codes = load_file(made / SOLVED)["codes"][-1].tobytes()
    install_round(bundle, made)
    assert codes in content(bundle / "device" / "rounds" / "0001")
    assert forget(str(bundle)).samples == 60
    assert rounds_in_use(bundle) == ("0000",)
    left = [path for path in bundle.rglob("*") if path.is_file()]
    assert not [path for path in left if codes in path.read_bytes()]
    assert {path: (bundle / path).read_bytes() for path in exported} == exported


def test_what_an_export_holds_is_named_and_removed(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy, ignore=shutil.ignore_patterns("device"))
    held = load_file(copy / SOLVED)["codes"]
    note_bundle(copy)
    assert call(["forget", "digits"]) == 0
    assert f"{copy} holds features of {len(held)} of your samples: --bundle" in capsys.readouterr().out
    with FileLock(device_folder(copy) / WATCHING), pytest.raises(BundleError, match="is being watched"):
        forget("digits", bundles=[copy])
    (copy / SOLVED).chmod(0o644)  # as a bundle with a page has it
    assert forget("digits", bundles=[copy]).held == ()
    assert (copy / SOLVED).stat().st_mode & 0o777 == 0o644
    left = b"".join(path.read_bytes() for path in copy.rglob("*") if path.is_file())
    assert not [row for row in held if row.tobytes() in left]
    samples, labels = photos(60)
    trainer = SolvingTrainer(copy, threads=1)
    assert (trainer.samples, Bundle.open(copy).info.unknown) == (0, None)
    trainer.add(samples, labels)
    trainer.train()
    assert Bundle.open(trainer.save(tmp_path / "made")).info.train.own_samples == 60  # type: ignore[union-attr]


def test_a_call_that_was_killed_as_it_removed_what_an_export_holds_is_completed(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = load_file(bundle / SOLVED)["codes"]
    ended = list[int]()
    for calls in range(20):
        copy = shutil.copytree(bundle, tmp_path / str(calls), ignore=shutil.ignore_patterns("device"))
        with monkeypatch.context() as patch:
            left = iter(range(calls))
            for name in ("write_private", "_replace", "overwrite"):
                whole = getattr(held_module, name)
                patch.setattr(held_module, name, lambda *given, do=whole, left=left: (next(left), do(*given)))
            with suppress(StopIteration, RuntimeError):
                held_module.strip(copy)
                ended.append(calls)
        forget(str(copy), bundles=[copy])
        assert held_module.held_by(Bundle.open(copy).folder).samples == 0
        files = [path.read_bytes() for path in copy.rglob("*") if path.is_file()]
        assert not [row for row in held if any(row.tobytes() in file for file in files)]
        assert not list(copy.rglob("*.stripped"))
    assert ended[0] > 3, "it was killed in between"


def test_a_task_of_the_same_name_keeps_its_bundles(bundle: Path, tmp_path: Path) -> None:
    copy, tasks = (
        shutil.copytree(bundle, tmp_path / "copy"),
        [tmp_path / name / "task.toml" for name in ("mine", "other")],
    )
    for task in tasks:
        task.parent.mkdir()
        task.touch()
    note_bundle(copy, str(tasks[0]))
    note_bundle(copy)  # as when it is watched
    name = Bundle.read(copy).name
    found = [copy in noted_bundles(name, str(task)) for task in (tasks[0], tasks[0].parent, tasks[1], "digits")]
    assert found == [True, True, False, True]


def test_a_round_of_the_service_solves(bundle: Path) -> None:
    samples, labels = photos(90)
    ring = [
        RingSample(f"{row * 7919:032x}"[::-1], label, one)
        for row, (one, label) in enumerate(zip(samples, labels, strict=True))
    ]
    training = local_training(bundle, threads=1)
    assert training is not None
    trainer = SolvingTrainer(bundle, threads=1)
    trainer.add(samples, labels)
    without = [answer.label for answer in trainer.answers_without(range(30), samples[:30])]
    assert np.mean([one == label for one, label in zip(without, labels[:30], strict=True)]) > 0.5
    result = run_round(Personaliser(bundle, threads=1), ring, training, Rules())
    assert result.made is not None, result.verdict.reason
    assert SolvingTrainer(result.made, threads=1).samples > SolvingTrainer(bundle, threads=1).samples


def test_a_damaged_file_is_refused_in_one_line(bundle: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy, ignore=shutil.ignore_patterns("device"))
    about = json.loads((copy / FILE).read_text())
    with (copy / SOLVED).open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        metadata = json.loads(file.read(length))["__metadata__"]
    tensors = load_file(copy / SOLVED)
    for broken, message in (
        ({**tensors, "labels": tensors["labels"] + 100}, "codes with labels of it"),
        ({name: value for name, value in tensors.items() if name != "given.bias"}, "cannot be read"),
    ):
        save_file(broken, copy / SOLVED, metadata)
        (copy / FILE).unlink(missing_ok=True)
        seal(copy, {name: value for name, value in about.items() if name != "files"})
        with pytest.raises(BundleError, match=message):
            SolvingTrainer(copy, threads=1)
    with pytest.raises(BundleError, match=r"of kind 'closed-form', not Trainer's: use tuner\.runtime\.SolvingTrainer"):
        Trainer(bundle)


def test_samples_with_several_labels_are_learned_and_forgotten(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    task = digits()

    def with_the_next(samples: Samples) -> ArraySamples:
        """Label a digit as itself and as the next one."""
        arrays = np.stack([samples.load(row) for row in range(len(samples))])
        rows = np.eye(10, dtype=np.float32)
        return ArraySamples(arrays, rows[samples.labels] + rows[(samples.labels + 1) % 10], InputSpec(kind="arrays"))

    local = TaskDomain(with_the_next(task.local.train), with_the_next(task.local.val))
    model = replace(task.model, pretrain=None)
    several = replace(task, loss="multi-label", local=local, global_=None, model=model, head_rows=(0, 1))
    made = trainable_bundle(several, tmp_path / "bundle", 3, shape=(EDIT,))
    trainer = trainer_of(Bundle.open(made), threads=1)
    assert isinstance(trainer, SolvingTrainer)
    samples, labels = photos(60)
    pairs = [(label, str((int(label) + 1) % 10)) for label in labels]
    own = trainer.samples
    trainer.add(samples, pairs)
    trainer.add(samples[:5], pairs[:5])  # again
    assert trainer.samples == own + 60
    (loss,) = trainer.train()
    assert loss < np.log(2)
    assert trainer.accuracy(samples, pairs) > 0.9  # AUC; of a guess 0.5
    changed = trainer.save(tmp_path / "changed")
    assert trainer.forget(samples) == 60
    trainer.train()
    assert content(trainer.save(tmp_path / "without")) == content(made)
    reopened = trainer_of(Bundle.open(changed), threads=1)
    assert isinstance(reopened, SolvingTrainer)
    assert reopened.samples == own + 60
