"""Data sets of videos are read from the layouts and with the quirks that their archives have."""

import json
from pathlib import Path
from typing import Any

import pytest

from unifiedserve.bench.datasets.durations import with_durations
from unifiedserve.bench.datasets.load import load
from unifiedserve.errors import ConfigError


def mlvu_row(video: str, **fields: Any) -> dict[str, Any]:
    return {
        "video": video,
        "duration": 480,
        "question": "What happens? ",
        "candidates": ["Nothing", "2", "1->2", "It rains"],
        "answer": "It rains",
        "question_type": "plotQA",
        **fields,
    }


def test_mlvu_keeps_videos_of_one_name_in_several_tasks_apart(tmp_path: Path, put: Any) -> None:
    put("MLVU/json/1_plotQA.json", [mlvu_row("1.mp4"), mlvu_row("1.mp4", duration=32550.5)])
    put("MLVU/json/7_topic_reasoning.json", [mlvu_row("1.mp4", question_type="topic_reasoning")])
    for task in ("1_plotQA", "7_topic_reasoning"):
        put(f"MLVU/video/{task}/1.mp4")
    samples = load("mlvu", tmp_path).samples
    assert [sample.media[0].path for sample in samples] == [
        str(tmp_path / "MLVU/video" / task / "1.mp4") for task in ("1_plotQA", "1_plotQA", "7_topic_reasoning")
    ]
    assert [sample.media[0].seconds for sample in samples] == [480, 32550.5, 480]
    assert [sample.right for sample in samples] == [3, 3, 3]
    assert len({sample.id for sample in samples}) == 3


def test_the_folder_mlvu_itself_will_do(tmp_path: Path, put: Any) -> None:
    put("json/1_plotQA.json", [mlvu_row("-a.mp4")])
    put("video/1_plotQA/-a.mp4")
    assert load("mlvu", tmp_path).samples[0].media[0].path == str(tmp_path / "video/1_plotQA/-a.mp4")


def test_an_answer_that_is_not_one_candidate_is_listed_and_not_asked(tmp_path: Path, put: Any) -> None:
    rows = [
        mlvu_row("a.mp4", answer="Catching a drone"),
        mlvu_row("a.mp4", candidates=["Blue", "Red", "Blue"], answer="Blue"),
        mlvu_row("a.mp4", candidates=["Blue", "Red", "Blue"], answer="Red"),
    ]
    put("MLVU/json/2_needle.json", rows)
    put("MLVU/video/2_needle/a.mp4")
    read = load("mlvu", tmp_path)
    assert [sample.id for sample in read.samples] == ["2_needle/3"]
    assert [row.where for row in read.unusable] == ["2_needle.json, row 1", "2_needle.json, row 2"]
    (note,) = read.notes()
    assert "2 rows cannot be used" in note
    assert "its answer is none of its candidates" in note


def test_mlvu_tasks_with_free_answers_have_no_choices(tmp_path: Path, put: Any) -> None:
    row = mlvu_row("a.mp4", answer="A whale dives.", question_type="subPlot", scoring_points=["whale"])
    del row["candidates"]
    put("MLVU/json/8_sub_scene.json", [row])
    put("MLVU/video/8_sub_scene/a.mp4")
    (sample,) = load("mlvu", tmp_path).samples
    assert (sample.choices, sample.right, sample.answers) == ((), None, ("A whale dives.",))


@pytest.mark.parametrize("answered", [True, False])
def test_mlvu_test_takes_answers_where_they_are(tmp_path: Path, put: Any, answered: bool) -> None:
    row = mlvu_row("test_1.mp4", question_id="AR_0")
    put("test-ground-truth/test_mcq_gt.json" if answered else "unused.json", [row])
    del row["answer"]
    put("test_multi_choice_tasks.json", [row])
    put("MLVU_Test/video/test_1.mp4")
    (sample,) = load("mlvu-test", tmp_path).samples
    assert (sample.id, sample.right) == ("AR_0", 3 if answered else None)


def ego_row(name: str) -> dict[str, str]:
    return {"q_uid": name, "google_drive_id": "x", "question": "Why?"} | {
        f"option {n}": f"C does {n}" for n in range(5)
    }


def test_egoschema_has_questions_without_public_answers(tmp_path: Path, put: Any) -> None:
    put("questions.json", [ego_row("u1"), ego_row("u2")])
    put("subset_answers.json", {"u2": 4, "u3": 0})
    put("videos/u1.mp4")
    put("videos/u2.mp4")
    assert [sample.right for sample in load("egoschema", tmp_path).samples] == [None, 4]
    (sample,) = load("egoschema-subset", tmp_path).samples
    assert (sample.id, sample.media[0].seconds, sample.choices[4]) == ("u2", 180, "C does 4")


def test_an_early_revision_of_egoschema_is_refused(tmp_path: Path, put: Any) -> None:
    row = ego_row("u1")
    del row["question"]
    put("questions.json", [ego_row("u0"), row])
    with pytest.raises(ConfigError, match=r"questions\.json, row 2: .*`question`"):
        load("egoschema", tmp_path)


def mme_row(**fields: Any) -> dict[str, Any]:
    return {
        "video_id": "901",
        "duration": "short",
        "videoID": "-BBBBBBBBBB",
        "question_id": "901-1",
        "question": "How many?",
        "options": ["A. One.", "B. Two.", "C. A. Three", "D. Four."],
        "answer": "C",
        **fields,
    }


def test_video_mme_has_classes_of_length_and_names_that_begin_with_a_dash(tmp_path: Path, put: Any) -> None:
    put("videomme/test.jsonl", json.dumps(mme_row()) + "\n" + json.dumps(mme_row(question_id="901-2", duration="long")))
    put("data/-BBBBBBBBBB.mp4")
    first, second = load("video-mme", tmp_path).samples
    assert (first.task, second.task) == ("short", "long")
    assert first.media[0].path == str(tmp_path / "data/-BBBBBBBBBB.mp4")
    assert (first.choices, first.right) == (("One.", "Two.", "A. Three", "Four."), 2)


def test_video_mme_knows_no_other_class_of_length(tmp_path: Path, put: Any) -> None:
    put("videomme/test.jsonl", json.dumps(mme_row(duration="endless")))
    with pytest.raises(ConfigError, match=r"test\.jsonl, row 1: .*'endless'.*\$\.duration"):
        load("video-mme", tmp_path)


def test_video_mme_is_read_from_parquet(tmp_path: Path, put: Any) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    put("data/-BBBBBBBBBB.mp4")
    path = put("videomme/test-00000-of-00001.parquet")
    parquet.write_table(pyarrow.Table.from_pylist([mme_row(question_id=f"901-{n}") for n in range(200)]), path)
    assert len(load("video-mme", tmp_path).samples) == 200
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ConfigError, match=r"test-00000-of-00001\.parquet: "):
        load("video-mme", tmp_path)


def test_longvideobench_test_set_has_no_answers(tmp_path: Path, put: Any) -> None:
    row = {
        "id": "x_0",
        "video_path": "x.mp4",
        "question": "Who?",
        "candidates": ["a man", "a dog", "no one", "a cat", "me"],
        "correct_choice": 4,
        "position": [854],
        "duration_group": 600,
        "duration": 190.16,
    }
    put("lvb_val.json", [row, row | {"id": "x_1", "correct_choice": 5}])
    del row["correct_choice"]
    put("lvb_test_wo_gt.json", [row])
    put("videos/x.mp4")
    read = load("longvideobench", tmp_path)
    assert [(sample.right, sample.task) for sample in read.samples] == [(4, "600 s")]
    assert [row.reason for row in read.unusable] == ["its answer is candidate 5 of 5, counted from 0"]
    assert load("longvideobench-test", tmp_path).samples[0].right is None


def mvb_row(video: str, **fields: Any) -> dict[str, Any]:
    return {"video": video, "question": "What?", "candidates": ["Up", "Not sure"], "answer": "Up", **fields}


def test_mvbench_finds_the_folder_of_each_task_and_clips(tmp_path: Path, put: Any) -> None:
    put("json/action_antonym.json", [mvb_row("166583.webm")])
    put(
        "json/action_sequence.json",
        [mvb_row("ZS9XR.mp4", start=11.1, end=17.2), mvb_row("ZS9XR.mp4", start=3.0, end=2.0)],
    )
    put("json/state_change.json", [mvb_row("left/4504_frame52.mp4")])
    put("video/ssv2_video/166583.webm")
    put("video/star/Charades_v1_480/ZS9XR.mp4")
    put("video/perception/videos/left/4504_frame52.mp4")
    read = load("mvbench", tmp_path)
    media = {sample.task: sample.media[0] for sample in read.samples}
    assert [row.reason for row in read.unusable] == ["nothing lies in its clip from 3.0 to 2.0 s"]
    assert set(media) == {"action_antonym", "action_sequence", "state_change"}
    assert (media["action_sequence"].start, media["action_sequence"].end) == (11.1, 17.2)
    assert (media["action_antonym"].start, media["action_antonym"].end) == (None, None)


def test_mvbench_sends_folders_of_frames_as_images_of_the_clip(tmp_path: Path, put: Any) -> None:
    clips = [(1.0, 2.0), (0.0, 100.0), (90.0, 95.0), (3.0, 3.0)]
    rows = [mvb_row("friends_s01", start=start, end=end) for start, end in clips]
    put("json/episodic_reasoning.json", [*rows, mvb_row("gone", start=0.0, end=1.0)])
    for number in range(1, 61):
        put(f"video/tvqa/frames_fps3_hq/friends_s01/{number:05}.jpg")
    read = load("mvbench", tmp_path, skip_missing=True)
    frames = [[int(Path(medium.path).stem) for medium in sample.media] for sample in read.samples]
    assert frames[0] == [4, 5, 6]  # 3 a second, from 1: frame 4 is shown at 1 s
    assert len(frames[1]) == 16
    assert min(frames[1]) <= 4
    assert max(frames[1]) >= 57
    assert {medium.kind for sample in read.samples for medium in sample.media} == {"image"}
    assert [row.where for row in read.unusable] == [f"episodic_reasoning.json, row {row}" for row in (3, 4)]
    assert read.missing == (str(tmp_path / "video/tvqa/frames_fps3_hq/gone"),)


NEXT_HEADER = "video,frame_count,width,height,question,answer,qid,type,a0,a1,a2,a3,a4\n"


def test_nextqa_has_folders_in_a_map_and_the_same_question_numbers_for_each_video(tmp_path: Path, put: Any) -> None:
    rows = [
        '7,369,640,480,"why, ""he"" asked",0,6,CH,"roll, turn",b,c,d,e',
        "8,369,640,480,how,4,6,CW,a,b,c,d,e",
        "9,369,640,480,how,4,6,CW,a,b,c,d,e",
    ]
    put("val.csv", "\ufeff" + NEXT_HEADER + "\n".join(rows))
    put("map_vid_vidorID.json", {"7": "1150/7", "8": "1201/8"})
    put("NExTVideo/1150/7.mp4")
    put("NExTVideo/1201/8.mp4")
    read = load("nextqa", tmp_path)
    assert [sample.id for sample in read.samples] == ["7/6", "8/6"]
    assert (read.samples[0].question, read.samples[0].choices[0]) == ('why, "he" asked', "roll, turn")
    assert [row.reason for row in read.unusable] == ["video 9 is not in map_vid_vidorID.json"]


def test_activitynet_finds_videos_by_stem(tmp_path: Path, put: Any) -> None:
    names = ("-aa", "b.b", "cc")
    put("test_q.json", [{"video_name": n, "question": "is it", "question_id": f"v_{n}_1"} for n in names])
    put("test_a.json", [{"answer": "no", "type": 3, "question_id": f"v_{n}_1"} for n in names[:2]])
    put("all_test/v_-aa.webm")
    put("all_test/v_b.b.mkv")
    read = load("activitynet-qa", tmp_path)
    assert [Path(sample.media[0].path).name for sample in read.samples] == ["v_-aa.webm", "v_b.b.mkv"]
    assert read.samples[0].answers == ("no",)
    assert [row.reason for row in read.unusable] == ["test_a.json has no answer to v_cc_1"]


def test_unknown_lengths_are_read_from_the_videos(tmp_path: Path, put: Any, sample_clip: Path) -> None:
    put("videomme/test.jsonl", json.dumps(mme_row()))
    path = put("data/-BBBBBBBBBB.mp4", sample_clip.read_bytes())
    (sample,) = with_durations(load("video-mme", tmp_path).samples)
    assert sample.media[0].seconds == pytest.approx(10, abs=5)
    path.write_bytes(b"no video")
    with pytest.raises(ConfigError, match=r"-BBBBBBBBBB\.mp4: its length is unknown"):
        with_durations(load("video-mme", tmp_path).samples)
