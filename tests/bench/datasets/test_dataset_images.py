"""Data sets of images are read from the layouts that their archives have."""

import json
from pathlib import Path
from typing import Any

import pytest

from unifiedserve.bench.datasets.load import load
from unifiedserve.errors import ConfigError

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


@pytest.mark.parametrize("root", ["", "MME_Benchmark_release_version/MME_Benchmark/"])
def test_mme_has_categories_of_two_layouts(tmp_path: Path, put: Any, root: str) -> None:
    put(
        f"{root}OCR/0001.txt",
        'Is it "angie\'s"? Please answer yes or no.\tYes\nIs it "a"? Please answer yes or no.\tNo\n\n',
    )
    put(f"{root}OCR/0001.jpg")
    put(f"{root}artwork/questions_answers_YN/10002.txt", "Is it a painting? Please answer yes or no.\tYes\nno tab\n")
    put(f"{root}artwork/images/10002.png")
    put(f"{root}eval_tool/notes.txt", "not a category")
    read = load("mme", tmp_path)
    assert [(sample.id, sample.task, sample.right) for sample in read.samples] == [
        ("OCR/0001/1", "OCR", 0),
        ("OCR/0001/2", "OCR", 1),
        ("artwork/10002/1", "artwork", 0),
    ]
    assert read.samples[0].question == 'Is it "angie\'s"?'
    assert Path(read.samples[2].media[0].path) == tmp_path / root / "artwork/images/10002.png"
    assert [row.where for row in read.unusable] == ["artwork/questions_answers_YN/10002.txt, row 2"]


def test_pope_counts_its_questions_anew_in_each_file(tmp_path: Path, put: Any) -> None:
    row = {"question_id": 0, "image": "COCO_val2014_1.jpg", "text": "Is there a dog in the image?", "label": "no"}
    for split in ("random", "popular", "adversarial"):
        put(f"coco_pope_{split}.json", json.dumps(row) + "\n" + json.dumps(row | {"question_id": 1, "label": "yes"}))
    put("val2014/COCO_val2014_1.jpg")
    samples = load("pope", tmp_path).samples
    assert {(sample.task, sample.right) for sample in samples} == {
        (split, right) for split in ("random", "popular", "adversarial") for right in (0, 1)
    }
    assert len({sample.id for sample in samples}) == 6


def test_textvqa_and_textcaps_share_a_folder_of_images(tmp_path: Path, put: Any) -> None:
    put(
        "TextVQA_0.5.1_val.json",
        {"data": [{"question_id": 34602, "image_id": "00f", "question": "who?", "answers": ["x"]}]},
    )
    caption = {"image_id": "00f", "caption_str": "A sign.", "reference_strs": ["A sign.", "It says x."]}
    put("TextCaps_0.1_val.json", {"data": [caption, caption | {"caption_str": "It says x."}]})
    put("train_images/00f.jpg")
    (question,) = load("textvqa", tmp_path).samples
    (caption_sample,) = load("textcaps", tmp_path).samples
    assert (question.id, question.answers) == ("34602", ("x",))
    assert question.media == caption_sample.media
    assert caption_sample.answers == ("A sign.", "It says x.")


@pytest.mark.parametrize("folder", ["", "Annotations/"])
def test_vizwiz_keeps_the_answers_of_people(tmp_path: Path, put: Any, folder: str) -> None:
    answers = [{"answer": "soup", "answer_confidence": "yes"}, {"answer": "unanswerable", "answer_confidence": "no"}]
    row = {"image": "VizWiz_val_00000000.jpg", "question": "What is this?", "answerable": 1, "answer_type": "other"}
    put(f"{folder}val.json", [row | {"answers": answers}])
    put("val/VizWiz_val_00000000.jpg")
    (sample,) = load("vizwiz", tmp_path).samples
    assert (sample.id, sample.task, sample.answers) == ("VizWiz_val_00000000", "other", ("soup", "unanswerable"))


@pytest.mark.parametrize("folder", ["images", "mnt/petrelfs/wangwenhai/workspace_cef/4o/image"])
def test_sharegpt_4o_asks_what_the_human_said(tmp_path: Path, put: Any, folder: str) -> None:
    said = [("human", "<image>\nDescribe it."), ("gpt", "A dog."), ("human", "And the cat?"), ("gpt", "None.")]
    rows = [
        {
            "image": "a.jpg",
            "width": 8,
            "height": 8,
            "conversations": [{"from": who, "value": what} for who, what in said],
        },
        {"image": "a.jpg", "conversations": [{"from": "human", "value": "<image>"}]},
    ]
    put("image_conversations/gpt-4o.jsonl", "\n".join(map(json.dumps, rows)))
    put(f"{folder}/a.jpg")
    read = load("sharegpt-4o", tmp_path)
    (sample,) = read.samples
    assert (sample.question, sample.follow_ups, sample.answers) == (
        "Describe it.",
        ("And the cat?",),
        ("A dog.", "None."),
    )
    assert sample.media[0].path == str(tmp_path / folder / "a.jpg")
    assert [row.reason for row in read.unusable] == ["the user says nothing in it"]


def arena_rows() -> list[dict[str, Any]]:
    messages = [("user", "What is it?"), ("assistant", "A dog."), ("user", "Why?"), ("assistant", "It barks.")]
    conversation = [[{"role": role, "content": content}] for role, content in messages]
    image = {"bytes": PNG, "path": None}
    return [
        {"images": [image, {"bytes": b"\xff\xd8\xff\xe0", "path": "x.jpg"}], "conversation": conversation},
        {"images": [image], "conversation": conversation[:2]},
    ]


def test_vision_arena_unpacks_each_image_once(tmp_path: Path, put: Any) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(arena_rows()), put("data/train-0.parquet"))
    first, second = load("vision-arena", tmp_path).samples
    assert (first.question, first.follow_ups) == ("What is it?", ("Why?",))
    assert first.answers == ("A dog.", "It barks.")
    assert [Path(medium.path).suffix for medium in first.media] == [".png", ".jpg"]
    assert Path(first.media[0].path).read_bytes() == PNG
    assert second.media[0] == first.media[0]
    assert len(list((tmp_path / "unpacked").iterdir())) == 2
    Path(first.media[0].path).write_bytes(PNG[:4])
    load("vision-arena", tmp_path)
    assert Path(first.media[0].path).read_bytes() == PNG


def test_the_benchmark_of_vision_arena_has_turns_without_roles(tmp_path: Path, put: Any) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    row = {"images": [{"bytes": PNG, "path": None}], "turns": [[{"content": "Read it."}]]}
    parquet.write_table(pyarrow.Table.from_pylist([row] * 3), put("data/test-0.parquet"))
    assert [sample.question for sample in load("vision-arena", tmp_path, limit=2).samples] == ["Read it."] * 2


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, put: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("data/train-0.parquet")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigError, match=r"train-0\.parquet: reading Parquet needs pyarrow"):
        load("vision-arena", tmp_path)
