"""Training sees what serving sees, lowers its loss, and goes on where it was interrupted."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from flashcodec import PatchLayout
from training.recipe import batches as batches_module
from training.recipe.batches import EXAMINATION, POOL, TRAINING, Batches, Lesson, Lessons
from training.recipe.checkpoint import write_description
from training.recipe.clips import Source, coded, drawn, encode
from training.recipe.heads import NAMED, POINTERS, TOLD, Heads, pointing_loss, told_loss
from training.recipe.labels import NOTHING, labels
from training.recipe.loop import CURVES, STATE, Options, Trainer
from training.recipe.network import Network
from training.recipe.prompts import IGNORED, ROW, Writer
from training.world.language import moment
from training.world.plots import VECTORS
from training.world.questions import ASKERS, Turn, ask, conversation
from training.world.rendering import Renderer
from training.world.sampling import STILL, Recipe, sample_scene
from training.world.scene import COLOURS, EVENT_KINDS, HEADINGS, SHAPES, Scene
from unifiedserve.messages.media import MediaOptions, VideoInfo
from unifiedserve.models.checkpoint_files import train_tokenizer
from unifiedserve.models.hub import load_transformers
from unifiedserve.models.registry import load_config, load_processor

LESSON = Lesson(Recipe((1, 3), (2.0, 6.0)), stills=0.3, long=0.0)
QUIET = Options(steps=40, workers=0, fast=False, warmup=2, exam_every=1000, save_seconds=1e9)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "GROUPS", 8)
    monkeypatch.setattr(batches_module, "FRAMES", (4,))
    monkeypatch.setattr("training.recipe.loop.CURRICULUM", ((0.0, LESSON),))
    # torch's Muon multiplies bfloat16, which takes processors without such instructions ten times as long
    monkeypatch.setattr(torch.optim, "Muon", partial(torch.optim.Muon, ns_steps=1))


@pytest.fixture
def lessons(tokenizer: Tokenizer, tmp_path: Path) -> Batches:
    return Batches(tokenizer, Lessons(40, ((0.0, LESSON),)), seed=0, folder=tmp_path)


def test_plans_and_prompts_are_those_of_serving(description: Path, tokenizer: Tokenizer) -> None:
    """Frames, sizes, token ids and positions of our own Processor and adapter, for each branch of a sequence alone."""
    config = load_config(description)
    processor = load_processor(description)
    scene = sample_scene(Recipe(seconds=(5.0, 9.0)), 1, 16 / 9)
    source = Source(224, 126, 10.0)
    clip = drawn(scene, source)
    plan = processor.plan_video(source.info(scene), MediaOptions())
    assert isinstance(plan.layout, PatchLayout)
    assert (plan.layout.height // 28, plan.layout.width // 28) == clip.grid
    assert (plan.units, plan.patches) == (clip.groups, len(clip.rows))
    assert plan.seconds_per_unit == pytest.approx(clip.seconds_per_group)

    talks = [
        [Turn("", "Where is the red star?", "It is in the top left."), Turn("", "How big is it?", "It is big.")],
        [Turn("", "What happens first?", "The blue ring leaves.")],
    ]
    writer = Writer(tokenizer)
    rows = [[writer.branch(turns) for turns in talks]]
    made = writer.sequences("video", clip.groups, clip.grid, [clip.seconds_per_group], [rows])
    with torch.device("meta"):
        model = load_transformers().AutoModelForImageTextToText.from_config(config)
    for branch, turns in enumerate(talks, 1):
        messages: list[dict[str, object]] = []
        for number, turn in enumerate(turns):
            text = {"type": "text", "text": turn.question}
            messages += [{"role": "user", "content": [text] if number else [text, {"type": "video"}]}]
            messages += [{"role": "assistant", "content": turn.answer}]
        ids = processor.prompt(messages, [plan], add_generation_prompt=False).token_ids
        mine = (made.branches[0] == 0) | (made.branches[0] == branch)
        assert made.ids[0][mine].tolist() == ids[: mine.sum()]
        rest = ids[mine.sum() :]
        assert processor.tokenizer.decode(rest) == "\n"
        whole = torch.tensor([ids])
        positions, _ = model.model.get_rope_index(
            whole,
            mm_token_type_ids=2 * (whole == config.video_token_id).int(),
            video_grid_thw=torch.tensor([plan.grid]),
            second_per_grid_ts=torch.tensor([plan.seconds_per_unit]),
        )
        assert np.array_equal(made.positions[:, 0, mine], positions[:, 0, : mine.sum()].numpy())
        said = made.targets[0][mine & (made.targets[0] != IGNORED)]
        assert tokenizer.decode(said.tolist(), skip_special_tokens=True) == "".join(turn.answer for turn in turns)


def test_pixels_are_those_of_the_vision_stage(description: Path, tmp_path: Path) -> None:
    """Rows of a coded clip equal FlashCodec's in the processor's layout."""
    import flashcodec

    scene, source = sample_scene(Recipe(seconds=(3.0, 4.0)), 3, 4 / 3), Source(200, 150, 8.0)
    clip = coded(scene, source, "h264", 30, tmp_path)
    file = next(tmp_path.glob("*.mp4"))
    stream = flashcodec.VideoDecoder(str(file)).bitstream
    info = VideoInfo(stream.num_frames, 8.0, stream.num_frames / 8, 200, 150)
    plan = load_processor(description).plan_video(info, MediaOptions())
    assert isinstance(plan.layout, PatchLayout)
    rows = np.zeros((plan.units, *clip.rows.reshape(clip.groups, -1, 1176).shape[1:]), np.uint8)
    with flashcodec.FlashCodec() as codec:
        codec.add_decoding_request(stream, plan.frame_indices, plan.layout)
        for _ in range(plan.units):
            output = codec.get_decoding_output()
            assert output is not None
            assert output.data is not None
            rows[output.first_group] = output.data
    assert np.array_equal(rows.reshape(clip.rows.shape), clip.rows)


def test_a_clip_that_two_draw_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As processes that draw ahead may: each has a file of its own until it is whole."""
    scene, source = sample_scene(Recipe(seconds=(3.0, 4.0)), 3, 4 / 3), Source(200, 150, 8.0)
    begun: list[Path] = []

    def encode_beside(scene: Scene, source: Source, codec: str, crf: int, file: Path) -> None:
        encode(scene, source, codec, crf, file)
        begun.append(file)
        if len(begun) == 1:
            coded(scene, source, codec, crf, tmp_path)

    monkeypatch.setattr("training.recipe.clips.encode", encode_beside)
    rows = coded(scene, source, "h264", 30, tmp_path).rows
    assert len(set(begun)) == 2
    assert [file.suffix for file in tmp_path.iterdir()] == [".mp4"]
    assert np.array_equal(coded(scene, source, "h264", 30, tmp_path).rows, rows)


def test_the_network_computes_what_transformers_does(lessons: Batches, description: Path) -> None:
    """In float32, each branch like a sequence of its own."""
    model = load_transformers().AutoModelForImageTextToText.from_pretrained(description, dtype=torch.float32)
    network = Network(model)
    batch = next(batch for step in range(20) if (batch := lessons[step]).kind == "video")
    with torch.no_grad():
        visual = network.encode(batch)
        logits = network.read(batch, visual).logits
        rows = batch.sequences["turns"][0] >= 0
        first = logits[: int(rows.sum())]
        grid = torch.tensor([[batch.groups, 2 * batch.grid[0], 2 * batch.grid[1]]])
        mean, deviation = network._normalisation
        pixels = (batch.rows[: int(grid.prod())].float() - mean) / deviation
        reference = model.model.visual(pixels, grid_thw=grid).pooler_output
        assert torch.allclose(visual[0].flatten(0, 1), reference, atol=2e-2, rtol=2e-2)
        own = batch.sequences["branches"][0] <= 1
        own &= batch.sequences["branches"][0] >= 0
        embeds = model.model.language_model.embed_tokens(batch.sequences["ids"][0][own])[None]
        place = batch.sequences["ids"][0][own] == model.config.video_token_id
        embeds[0, place] = reference
        hidden = model.model.language_model(
            inputs_embeds=embeds, position_ids=batch.sequences["positions"][:, :1][..., own]
        ).last_hidden_state
        expected = model.lm_head(hidden)[0, rows[own]]
    assert torch.allclose(first[: len(expected)], expected, atol=0.1, rtol=0.05)


def test_rows_are_filled_but_never_overfull(tokenizer: Tokenizer) -> None:
    writer, rng = Writer(tokenizer), np.random.default_rng(0)
    for seed in range(20):
        branches = writer.row(partial(conversation, sample_scene(Recipe(), seed), rng))
        assert ROW / 2 < sum(len(branch.ids) for branch in branches) <= ROW


@pytest.mark.parametrize("seed", range(20))
def test_labels_know_headings_and_the_group_before(seed: int) -> None:
    scene = sample_scene(Recipe((1, 3), (5.0, 9.0)), seed, 4 / 3)
    made = labels(scene, np.arange(0, 5, 0.5).reshape(-1, 2), 4, 5)
    assert np.array_equal(made.was[1:], np.where(made.shape[:-1] > 0, made.colour[:-1] + 1, 0))
    for group, (before, there) in enumerate(zip(made.before, made.shape > 0, strict=True)):
        known = {0} if group == 0 else {0, *(made.colour[group - 1] + 1).tolist()}
        assert set(before[there].tolist()) <= known
    assert not made.motion[made.heading == 0].any()
    for number, heading in enumerate(HEADINGS, 1):
        ways = made.motion[(made.heading == number) & (made.frames == 0)]
        assert (ways @ VECTORS[heading] > 0).all()


@pytest.mark.parametrize("seed", range(20))
def test_labels_name_things_and_events(seed: int) -> None:
    scene = sample_scene(Recipe((1, 4), (5.0, 9.0)), seed, 4 / 3)
    made = labels(scene, np.arange(0, 10, 0.5).reshape(-1, 2), 4, 5)
    assert np.array_equal(made.thing >= 0, made.shape > 0)
    for number, thing in enumerate(scene.things):
        assert set(made.shape[made.thing == number].tolist()) <= {1 + SHAPES.index(thing.shape)}
    for number, event in enumerate(scene.events):
        kinds = made.event[made.happening == number].tolist()
        assert kinds in ([], [2 + EVENT_KINDS.index(event.kind)])
        hit = None if event.other is None else scene.things[event.other]
        shapes, colours = (look[made.happening == number].tolist() for look in (made.hit_shape, made.hit_colour))
        assert shapes in ([], [1 + SHAPES.index(hit.shape) if hit else NOTHING])
        assert colours in ([], [COLOURS.index(hit.colour) if hit else NOTHING])
    assert (made.happening >= 0).sum() >= len(scene.events) - 1  # two may fall into one cell


def test_labels_count_what_is_alike_and_tell_times_as_answers_do() -> None:
    scene = sample_scene(Recipe((4, 4), (300.0, 500.0)), 1, 1.0)
    times = np.linspace(0, scene.seconds - 1, 40).reshape(-1, 2)
    made = labels(scene, times, 6, 6)
    for group, own in enumerate(times[:, 0].tolist()):
        there = [scene.things[i] for i in made.thing[group] if i >= 0]
        for cell in np.flatnonzero(made.thing[group] >= 0):
            thing = scene.things[made.thing[group, cell]]
            assert made.same_shape[group, cell] == sum(other.shape == thing.shape for other in there) - 1
        said = f"at minute {made.minute[group, 0]}:{made.ten[group, 0]}0"
        assert said == moment(own, scene.seconds)
    short = labels(sample_scene(Recipe(), 1), np.arange(0, 2, 0.5).reshape(-1, 2), 4, 4)
    assert (short.minute < 0).all()
    assert (short.ten < 0).all()


def test_pointing_costs_nothing_where_heads_look_at_what_is_asked_about(lessons: Batches) -> None:
    batch = next(batch for step in range(20) if (batch := lessons[step]).kind == "video")
    prefix = int((batch.sequences["branches"][0] == 0).sum())
    wanted = {name: batch.sequences[name][:, prefix:].reshape(-1, ROW) for name in ("thing", "happening")}
    count, cells = len(wanted["thing"]), batch.labels["thing"][0].numel()
    right = torch.full((count, 6, ROW, cells), 1e-6)
    for head, name in POINTERS.items():
        for row, place in (wanted[name] >= 0).nonzero().tolist():
            there = batch.labels[name][row * batch.clips // count].flatten() == wanted[name][row, place]
            right[row, head, place, there] = 1 / max(1, int(there.sum()))
    assert pointing_loss(right, wanted, batch.labels) < 1e-3
    assert pointing_loss(torch.full_like(right, 1 / cells), wanted, batch.labels) > 1


def test_tokens_that_look_at_an_event_should_have_its_time_and_number(lessons: Batches) -> None:
    """A token costs nothing if the heads read from it what the labels say of its event, and much if another one's."""
    batch = next(batch for step in range(40) if (batch := lessons[step]).labels["happening"].max() > 0)
    clip, group, cell = (int(i) for i in (batch.labels["happening"] > 0).nonzero()[0])
    own = {name: int(batch.labels[name][clip, group, cell]) for name in TOLD}
    wanted = {"happening": torch.full((batch.clips, ROW), -1)}
    wanted["happening"][clip, 5] = own["happening"]
    heads, text = Heads(8), torch.zeros(batch.clips, ROW, 8)
    text[clip, 5, 0] = 100.0
    for right in (True, False):
        for name in TOLD:
            weight = torch.zeros(NAMED[name][0], 8)
            weight[own[name] if right else own[name] - 1, 0] = 1.0
            heads.named[name].weight.data = weight
        loss = float(told_loss(heads, text, wanted, batch.labels).detach())
        assert loss < 0.1 if right else loss > 10


@pytest.mark.parametrize("seed", range(10))
def test_words_point_at_what_they_mean(seed: int, tokenizer: Tokenizer) -> None:
    """The last token of each mention, and each place where a token of the answer is predicted."""
    scene, rng = sample_scene(Recipe((2, 4), (6.0, 9.0)), seed), np.random.default_rng(seed)
    turns = [turn for category in ASKERS if (turn := ask(scene, rng, category)) is not None]
    for turn in turns:
        branch = Writer(tokenizer).branch([turn])
        for mention in turn.mentions:
            ends = [
                place
                for place, owner in enumerate(branch.owners)
                if tokenizer.decode(branch.ids[: place + 1]).endswith(mention.words) and owner < 0
            ]
            assert [(branch.thing[i], branch.happening[i]) for i in ends] == [
                (mention.thing, -1 if mention.event is None else mention.event)
            ]
        told = [branch.thing[place - 1] for place, owner in enumerate(branch.owners) if owner == 0]
        assert set(told) == {-1 if turn.about is None else turn.about}


def test_a_few_steps_lower_the_loss(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, QUIET)
    batch = next(batch for step in range(20) if (batch := trainer._batches[step]).turns)
    losses = [trainer._learn(batch) for _ in range(12)]
    assert losses[-1]["answers"] < 0.7 * losses[0]["answers"]
    assert losses[-1]["seen"] < 0.9 * losses[0]["seen"]


def test_a_directory_keeps_its_tokenizer(tmp_path: Path) -> None:
    """Weights in there go with its ids, even if today's wordings would give others."""
    other = train_tokenizer(["another world, of other words"], 300)
    other.save(str(tmp_path / "tokenizer.json"))
    assert write_description(tmp_path).get_vocab() == other.get_vocab()
    assert json.loads((tmp_path / "config.json").read_text())["eos_token_id"] == other.token_to_id("<|im_end|>")


def test_a_run_that_was_interrupted_goes_on_exactly(tmp_path: Path) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    Trainer(whole, Options(**{**vars(QUIET), "stop_at": 4})).run()
    for stop in (2, 4):
        Trainer(halves, Options(**{**vars(QUIET), "stop_at": stop})).run()
    first, second = (torch.load(folder / STATE, weights_only=True)["model"] for folder in (whole, halves))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert (whole / "model.safetensors").read_bytes() == (halves / "model.safetensors").read_bytes()


def test_curves_have_each_step_once(tmp_path: Path) -> None:
    """A run that ends before it has saved what it has learned does it again, and its last line may be cut."""
    Trainer(tmp_path, Options(**{**vars(QUIET), "stop_at": 1})).run()
    kept = json.dumps({"step": 1, "answers": 2.0}) + "\n"
    (tmp_path / CURVES).write_text(f'{kept}{json.dumps({"step": 2, "answers": 1.5})}\n{{"step": 3, "answ')
    Trainer(tmp_path, Options(**{**vars(QUIET), "stop_at": 1}))
    assert (tmp_path / CURVES).read_text() == kept


def test_examinations_are_written_down(tmp_path: Path) -> None:
    Trainer(tmp_path, Options(**{**vars(QUIET), "stop_at": 1, "exam_every": 1, "exam_batches": 2})).run()
    (line,) = [json.loads(line) for line in (tmp_path / CURVES).read_text().splitlines()]
    assert line["step"] == 1
    assert line["exam"]
    assert all(0 <= share <= 1 for share in line["exam"].values())


def test_no_scene_is_trained_on_and_examined() -> None:
    seeds = {part: [(0, part, step, i) for step in range(20) for i in range(5)] for part in (TRAINING, EXAMINATION)}
    looks = {part: {sample_scene(STILL, seed).look for seed in own} for part, own in seeds.items()}
    assert not looks[TRAINING] & looks[EXAMINATION]
    assert len({TRAINING, POOL, EXAMINATION}) == 3


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_files_show_the_scene(codec: str, tmp_path: Path) -> None:
    import flashcodec

    scene, source = sample_scene(Recipe(seconds=(2.0, 3.0)), 5, 1.0), Source(160, 160, 8.0)
    encode(scene, source, codec, 22, tmp_path / "scene.mp4")
    frames = flashcodec.sample(tmp_path / "scene.mp4", indices=[0, 8])
    drawn_frame = Renderer(scene, 160, 160).frame(1.0)
    assert np.abs(frames.data[1].astype(int) - drawn_frame).mean() < 12
