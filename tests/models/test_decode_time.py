"""A video whose frames take too long to decode is refused at admission, by FlashCodec's estimate."""

from pathlib import Path

import pytest
from fitting_requests import LAYOUT, request

import flashcodec
from unifiedserve.config import EngineConfig, VideoDecoderName
from unifiedserve.engine.admission import workload
from unifiedserve.engine.admission.admission import Admission
from unifiedserve.errors import RequestError
from unifiedserve.models.processor import Processor


def admission(ours: Processor, seconds: float, decoder: VideoDecoderName = "flashcodec") -> Admission:
    return Admission(EngineConfig.of(max_decode_seconds=seconds, video_decoder=decoder), ours, LAYOUT)


def seconds_for(clip: Path, frames: list[int]) -> float:
    return flashcodec.analyse_bitstream(clip).plan(frames).estimated_seconds


@pytest.mark.parametrize("decoder", ["flashcodec", "torchcodec", "pynvvideocodec"])
def test_frames_that_take_too_long_are_refused_whatever_decodes_them(
    ours: Processor, sample_clip: Path, decoder: VideoDecoderName
) -> None:
    whole = flashcodec.analyse_bitstream(sample_clip).num_frames
    limit = seconds_for(sample_clip, list(range(whole))) / 2
    admits = admission(ours, limit, decoder)
    try:
        with pytest.raises(RequestError, match=rf"video 1: decoding {whole} of its {whole} frames of \d+x\d+") as error:
            admits.admit(request(sample_clip, 1, num_frames=-1))
        assert f"of one core, over the limit of {limit:g} s (see --max-decode-seconds): ask for" in error.value.message
        assert admits.admit(request(sample_clip, 1, num_frames=1)).prompt.token_ids
    finally:
        admits.close()


def test_all_frames_are_admitted_up_to_the_limit(ours: Processor, sample_clip: Path) -> None:
    whole = flashcodec.analyse_bitstream(sample_clip).num_frames
    admits = admission(ours, 1.01 * seconds_for(sample_clip, list(range(whole))))
    try:
        assert admits.admit(request(sample_clip, 1, num_frames=-1)).prompt.token_ids
    finally:
        admits.close()


def test_more_frames_than_a_reader_takes_are_held_to_the_limit(
    ours: Processor, sample_clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload, "_MOST_FRAMES", 5)
    whole = flashcodec.analyse_bitstream(sample_clip).num_frames
    admits = admission(ours, seconds_for(sample_clip, list(range(whole))) / 2)
    try:
        with pytest.raises(RequestError, match="see --max-decode-seconds"):
            admits.admit(request(sample_clip, 1, num_frames=-1))
    finally:
        admits.close()
