// Where the parts of a video file lie, as far as a mutation needs to know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace flashcodec::fuzz {

enum class Coding { kBigEndian, kLittleEndian, kEbml };

// Says how long something is, or how many of it there are.
struct LengthField {
  size_t offset;
  int bytes;
  Coding coding;
};

// A box, element, packet or NAL unit, with its header. Those inside of others are listed, too.
struct Chunk {
  size_t begin;
  size_t end;
};

struct Chunks {
  std::vector<Chunk> chunks;
  std::vector<LengthField> lengths;
};

// Understands MP4/MOV, Matroska, MPEG-TS, AVI, FLV and streams with start codes (MPEG-PS, Annex B); else the parts are
// slices of equal length.
Chunks find_chunks(std::span<const uint8_t> bytes);

}  // namespace flashcodec::fuzz
