// What a caller does with a video, step by step, with checks of what must hold whatever the bytes are. A check that
// fails aborts; an exception that is no DecodeError is nobody's to catch.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "bitstream/bitstream.h"
#include "plan/plan.h"

namespace flashcodec::fuzz {

using Random = std::mt19937_64;

// Seeded by the bytes, so that an input is a plain video and yet decides what is asked of it.
Random random_of(std::span<const uint8_t> bytes);

// Null if the bytes are refused; `error` then says why.
BitstreamPtr analyse(std::span<const uint8_t> bytes, std::string& error);

// One to sixteen frames, in any order.
std::vector<int64_t> choose_frames(const Bitstream& stream, Random& random);

void plan(const Bitstream& stream, std::span<const int64_t> frames, Random& random);

// Decodes the frames through a scheduler. Returns how many groups came; `error` says why not all did.
int decode(const BitstreamPtr& stream, const std::vector<int64_t>& frames, Random& random, std::string& error);

}  // namespace flashcodec::fuzz
