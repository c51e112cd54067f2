// Damage as videos meet it: what a bad disk, a cut connection, a broken muxer or an attacker makes of a file.
#pragma once

#include <cstdint>
#include <vector>

namespace flashcodec::fuzz {

// The same bytes and seed give the same result everywhere. Flipped bits, overwritten bytes, holes of zeros, a cut end;
// lengths and counts that lie; packets or boxes that are swapped, shuffled, doubled or gone. One to four of these; none
// with seed 0.
std::vector<uint8_t> mutate(std::vector<uint8_t> bytes, uint64_t seed);

}  // namespace flashcodec::fuzz
