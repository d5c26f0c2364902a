"""The report of a run: one file, complete, that a browser reads without a network."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tuner.plan.trial import TrialPlan
from tuner.planner.memory.placement import Tensor
from tuner.planner.memory.step import StepPlan
from tuner.results.folder import ExportInfo, append_export
from tuner.results.records.classes import Classes
from tuner.results.records.counts import ClassCounts
from tuner.results.run import Run
from tuner_report.charts.drawing import drawing, to_svg
from tuner_report.page import page
from tuner_report.sections import Findings, Photo

OLD = Path(__file__).parents[2] / "fixtures"
DIGITS = Classes(tuple("0123456789"), (7, 8, 9), 7)
STEP = StepPlan((Tensor("kept", 4_000, 0, 1, "saved"), Tensor("gradient", 1_000, 1, 1, "gradient")), ("a", "b"), 100)
VOID = frozenset({"meta", "link", "img", "br"})


class Elements(HTMLParser):
    """Collects what a browser would see of a page; fails where tags are not closed in their order."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(content)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data.replace("\u00a0", " ").replace("\u2060", "")  # which hold numbers and units together


def run_of(name: str) -> Run:
    return Run.open(OLD / name / "run")


def counted(run: Run) -> Run:
    """Return a run whose trials counted their predictions by class, with these counts."""
    local = ClassCounts(((7, 34, 36), (8, 33, 36), (9, 35, 35)), ((8, 1, 2), (7, 9, 1), (7, 8, 1), (8, 9, 1)))
    after = ClassCounts(((0, 35, 36), (1, 20, 36)), ((1, 8, 10), (1, 7, 6), (0, 9, 1)))
    before = {"global": ClassCounts(((0, 36, 36), (1, 36, 36)))}
    records = tuple(replace(record, classes={"local": local, "global": after}) for record in run.records)
    return replace(
        run,
        records=records,
        info=replace(run.info, classes=DIGITS, baselines=(replace(run.info.untouched, classes=before),)),
    )


def page_of(run: Run, findings: Findings = Findings()) -> Elements:  # noqa: B008 - frozen
    winner = run.record(run.front[0] if run.best is None else run.best) if run.front else None
    return Elements(page(run, findings, winner))


@pytest.fixture(scope="module")
def whole() -> str:
    """The page of a run with everything in it."""
    run = counted(run_of("digits"))
    assert run.best is not None
    importance = {"local_accuracy": {"freeze.trainable_blocks": 0.7, "recipe.epochs": 0.3}}
    photo = Photo("7", "<9>", 0.93, b"\xff\xd8\xff\xe0 no photo of anybody", "7/a.jpg", 4, 4)
    other = replace(photo, truth="8", file="8/b.jpg", wrong_in=2)
    limits = replace(run.info.config.limits, memory_bytes=2**30, storage_bytes=10**9)
    typed = replace(run.info, config=replace(run.info.config, memory="1G", limits=limits))
    best = run.record(run.best)
    return page(replace(run, info=typed), Findings(importance, 24, STEP, photos=(other, photo)), best)


def test_the_page_is_complete_and_asks_nothing_of_the_network(whole: str) -> None:
    elements = Elements(whole)
    assert {"html", "svg", "table", "img", "h1"} <= set(elements.names)
    assert not {"script", "iframe", "object", "audio", "video", "base", "form"} & set(elements.names)
    for name, value in elements.attributes:
        if name in {"src", "href", "xlink:href", "action", "srcset", "data", "poster"}:
            assert value.startswith(("#", "data:")), (name, value)
        assert not name.startswith("on")
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", whole)
    assert "default-src 'none'" in whole


def test_every_reference_inside_the_pictures_has_one_target(whole: str) -> None:
    ids = re.findall(r'\bid="([^"]+)"', whole)
    assert len(ids) == len(set(ids))
    used = {*re.findall(r'href="#([^"]+)"', whole), *re.findall(r"url\(#([^)]+)\)", whole)}
    labels = " ".join(re.findall(r'aria-labelledby="([^"]+)"', whole)).split()
    assert used | set(labels) <= set(ids)
    assert labels


def test_each_picture_is_told_in_words_and_has_the_pages_colours_light_or_dark(whole: str) -> None:
    assert "prefers-color-scheme: dark" in whole
    pictures = "".join(re.findall(r"<svg.*?</svg>", whole, re.DOTALL))
    assert "var(--blue)" in pictures
    drawn = re.findall(r"<svg viewBox[^>]*aria-labelledby.*?</svg>", whole, re.DOTALL)
    assert len(drawn) >= 7
    assert not re.search(r"#[0-9a-fA-F]{6}\b", "".join(drawn))
    for svg in drawn:
        assert re.search(r"<title[^>]*>(.+?)</title><desc[^>]*>(.+?)</desc>", svg, re.DOTALL)


def test_it_says_what_was_asked_found_and_refused(whole: str) -> None:
    text = Elements(whole).text
    assert "Your classes 7–9: 99.1 % right (95–100); " in text
    assert "Known classes: 99.6 → 92.1 % (88–95)." in text
    assert "95 % interval 95–100 %" in text
    assert "7, 8, 9 (3); the given model knew none of them, and 7 classes in all" in text
    assert "memory 1G, storage 1 GB (default), trials 4" in text
    assert "Of 2 classes 2 lost accuracy, 0 gained and 0 kept it." in text
    assert "10 of 36" in text
    assert "best quarter of 24 trials" in text
    assert "needs 5.0 kB in addition to the weights" in text


def test_the_first_page_says_what_was_tried_brought_and_cost_and_what_to_do(whole: str) -> None:
    text, first = Elements(whole).text, Elements(whole).text.partition("In detail")[0]
    assert "4 ways to train the model, in " in first
    assert "4 ran to their end. Limits: " in first
    assert "Of 107 of your samples that training did not see, 106 are right: 99.1 % (95–100)" in first
    assert "On the known classes 92.1 % (88–95) is right, which was 99.6 %." in first
    assert "to train; " in first
    assert first.index("7, taken for <9> (93 %)7/a.jpg") < first.index("8, taken for <9> (93 %)8/b.jpg")
    assert "All of 4 trials have these wrong. Look whether the label is right." in first
    assert [line for line in ("tuner export", "tuner predict", "tuner check", "tuner show") if line not in first] == []
    assert text.count("What next") == 1


def test_what_says_nothing_is_left_out_with_its_reason_at_the_end(whole: str) -> None:
    left = Elements(whole).text.partition("Left out, as there is nothing to say: ")[2]
    assert "What was refused (every trial ran, and obeyed every limit)" in left
    assert "Marks for training the head only and the whole model (not tried on these samples)" in left
    run = counted(run_of("digits"))
    values = {**run.records[0].values, "local_accuracy": 1.0, "global_accuracy": 1.0}
    records = tuple(replace(one, values=values, epochs=one.epochs[:1]) for one in run.records)
    flat = page_of(
        replace(run, records=records), Findings({}, 40, no_step="onnxruntime plans none", no_photos="all right")
    )
    shown, _, left = flat.text.partition("Left out, as there is nothing to say: ")
    for title in ("What is gained, and what is forgotten", "How the front grew", "Which knobs mattered", "Memory of a"):
        assert title not in shown
        assert title in left
    assert "all trials have the same local accuracy" in left
    assert "no trial was much better than the first" in left
    assert "40 trials were scored on the same samples, and no knob made a difference that is larger than chance" in left
    assert "they have no epochs, or one" in left
    assert "Memory of a training step (onnxruntime plans none)" in left
    assert "Samples it still gets wrong (all right)" in left


def test_numbers_stay_with_their_units_and_tables_begin_with_what_matters(whole: str) -> None:
    seen = re.sub(r"<svg.*?</svg>|<[^>]+>", " ", whole, flags=re.DOTALL)
    assert re.search(r"\d\u00a0%", seen)
    assert re.findall(r"\d (?:%|MB|kB|ms|s)(?!\w)", seen) == []
    assert "95–\u2060100" in seen
    heads = [re.findall(r"<th[^>]*>([^<]+)", head) for head in re.findall(r"<thead>.*?</thead>", whole)]
    assert {head[0] for head in heads} <= {"trial", "strategy", "class", "tensor"}


def test_a_model_whose_own_classes_are_not_known_is_not_said_to_know_none() -> None:
    run = counted(run_of("digits"))
    run = replace(run, info=replace(run.info, classes=replace(DIGITS, known=0)))
    text = page_of(run).text
    assert "7, 8, 9 (3); all new to the given model" in text
    assert "0 classes" not in text


def test_baselines_are_marked() -> None:
    run = run_of("digits")
    plans = [run.record(trial).plan for trial in run.front]
    splits = dict(zip(run.front, (3, 0), strict=False))
    assert all(isinstance(plan, TrialPlan) for plan in plans)
    records = tuple(
        replace(record, plan=replace(record.plan, split=splits.get(record.trial, 2))) if record.plan else record
        for record in run.records
    )
    text = page_of(replace(run, records=records)).text
    assert "best of head only" in text
    assert "best of everything" in text


def test_few_trials_one_or_none_and_an_empty_front_have_a_report() -> None:
    for name in ("exits", "signals"):
        text = page_of(run_of(name)).text
        assert re.search(r"Which knobs mattered \(\d+ trials? w\w+ scored on the same samples, and it takes 20", text)
        assert ("mean flops" in text) == (name == "exits")
    run = run_of("digits")
    first = replace(run.record(0), values={**run.record(0).values, "local_top5_accuracy": 0.9})
    one = replace(run, records=(first,), front=(0,), knee=0, best=0, shortlist=(0,))
    text = page_of(one, Findings({}, 1)).text
    assert "1 trial was scored on the same samples, and it takes 20 to tell" in text
    assert "only one trial has both values" in text
    assert "top5" not in text, "five guesses of ten classes say nothing"
    nothing = replace(run, front=(), knee=None, best=None, shortlist=())
    assert "no trial ended" in page_of(replace(nothing, records=())).text
    records = tuple(replace(one, constraint={"memory": 0.5}, reason="took too much") for one in run.records)
    text = page_of(replace(nothing, records=records)).text
    assert "No trial obeys every limit: 4 of 4 trials do not count because of --memory" in text
    assert text.count("took too much") >= 4


def test_several_labels_have_no_intervals_and_no_confusions() -> None:
    run = run_of("digits")
    records = tuple(replace(record, classes={}) for record in run.records)
    info = replace(run.info, task=replace(run.info.task, loss="multi-label"), classes=DIGITS)
    text = page_of(replace(run, records=records, info=info)).text
    assert "macro AUC" in text
    assert "Wilson" not in text
    assert "Samples have several labels" in text


def test_names_are_text_and_never_markup(tmp_path: Path) -> None:
    run = replace(counted(run_of("digits")), folder=tmp_path)
    append_export(tmp_path, ExportInfo("<b>", 3, refit=True, scores={"test_accuracy": 0.977}, samples=1000))
    hostile = ("<script>alert(1)</script>", "$x^2$", '"><img src=x onerror=alert(1)>', *"345678", "v1.2345")
    info = replace(
        run.info,
        classes=replace(run.info.classes, labels=hostile, local=(0, 1, 2)),
        task_name="<b>\x1b]0;owned\x07\u202e",
        strategies=("<u>", "lora"),
    )
    failed = replace(run.records[2], state="failed", reason="<i>$a$</i>", values={})
    elements = page_of(replace(run, info=info, records=(*run.records[:2], failed, *run.records[3:])))
    assert not {"script", "b", "i", "u"} & set(elements.names)
    assert "Which strategies paid" in elements.text
    assert "<b> (trial 3, trained again on all samples): 97.7 % (97–98) right, of 1,000 test samples." in elements.text
    assert "<script>alert(1)</script>" in elements.text
    assert "\\x1b]0;owned\\x07\\u202e" in elements.text
    assert not set(elements.text) & set("\x1b\x07\u202e")
    title = "v1.2345 and 2.71828"
    with drawing() as (figure, axes):
        axes.set_title(title)
        assert f">{title}<" in to_svg(figure, "name", "title", "description")
    with drawing() as (figure, axes):
        axes.set_title("红色 \u202e\x1b[2J")
        drawn = to_svg(figure, "name", "title \x1b", "description \u202e")  # the warning would be an error
    assert not set(drawn) & set("\x1b\u202e")
    assert "<i>$a$</i>" in elements.text
