"""List all data sets by their names on the command line."""

from unifiedserve.bench.datasets.images import mme, pope, sharegpt4o, textvqa, vision_arena, vizwiz
from unifiedserve.bench.datasets.loader import Loader
from unifiedserve.bench.datasets.videos import (
    activitynet_qa,
    egoschema,
    longvideobench,
    mlvu,
    mvbench,
    nextqa,
    video_mme,
)

DATA_SETS: dict[str, Loader] = {
    "mlvu": mlvu.DEV,
    "mlvu-test": mlvu.TEST,
    "egoschema": egoschema.ALL,
    "egoschema-subset": egoschema.SUBSET,
    "video-mme": video_mme.VIDEO_MME,
    "longvideobench": longvideobench.VALIDATION,
    "longvideobench-test": longvideobench.TEST,
    "mvbench": mvbench.MVBENCH,
    "nextqa": nextqa.VALIDATION,
    "nextqa-test": nextqa.TEST,
    "activitynet-qa": activitynet_qa.TEST,
    "mme": mme.MME,
    "pope": pope.POPE,
    "textvqa": textvqa.TEXTVQA,
    "textcaps": textvqa.TEXTCAPS,
    "vizwiz": vizwiz.VIZWIZ,
    "sharegpt-4o": sharegpt4o.SHAREGPT_4O,
    "vision-arena": vision_arena.VISION_ARENA,
}
