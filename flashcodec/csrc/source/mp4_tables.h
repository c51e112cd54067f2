// What the tables of an MP4/MOV file claim to hold.
#pragma once

#include <cstdint>

#include "source/source.h"

namespace flashcodec {

// How many entries are claimed by tables that don't list them: a table of sizes or a fragment's run whose samples are
// all alike is a few bytes, an edit list repeats a track with each entry, offsets or groups may be said to go on far
// beyond the last sample, and a table of metadata keys may be cut.
// FFmpeg sets up memory for each before anyone can stop it. 0 for other kinds of files.
int64_t unlisted_entries(Source& source);

}  // namespace flashcodec
