// What the tables of an MP4/MOV file claim to hold.
#pragma once

#include <cstdint>

#include "source.h"

namespace flashcodec {

// How many samples are claimed by tables that don't list them: a table of sizes or a fragment's run whose samples are
// all alike is a few bytes, and an edit list repeats a track with each entry. FFmpeg sets up an index entry for each
// sample before anyone can stop it. 0 for other kinds of files.
int64_t unlisted_samples(Source& source);

}  // namespace flashcodec
