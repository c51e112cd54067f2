// In what order the pictures of packets are shown, by what the packets say themselves.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "codecs/coded_format.h"
#include "codecs/mpeg.h"
#include "ffmpeg/packet.h"
#include "ffmpeg/picture_parser.h"

namespace flashcodec {

// To be asked of all packets in decoding order. Picture order counts are read by FFmpeg's parsers (H.264, 8.2.1; HEVC,
// 8.3.1); in MPEG-1, 2 and 4 a B picture is shown at once, any other when the next of them comes.
class PictureOrder {
 public:
  explicit PictureOrder(const AVCodecParameters& parameters);

  // Return the packet's place among all others, no number of its own meaning; none if it does not tell.
  std::optional<int64_t> place(std::span<const uint8_t> packet, const CodedFormat& format);
  // Return whether the last packet started a coded sequence anew in mid-stream, without being an IDR picture: what is
  // shown before it may not come out.
  bool joined() const { return joined_; }
  // Return how many pixels the last picture has, as far as the parser tells.
  int64_t pixels() const;
  // Take other parameter sets, those of the packets that follow.
  void configure(const AVCodecParameters& parameters);

 private:
  std::optional<int64_t> by_type(PictureType type);
  std::optional<int64_t> by_count(std::span<const uint8_t> packet);
  std::optional<int64_t> count_of(std::span<const uint8_t> packet);
  bool starts_sequence(std::span<const uint8_t> packet, const CodedFormat& format);

  std::optional<PictureParser> parser_;
  int64_t sequence_ = 0;      // of pictures that are counted together
  int64_t decoded_ = 0;       // pictures so far; of MPEG those that are no B pictures
  int64_t between_ = 0;       // B pictures since
  uint32_t last_number_ = 0;  // Dirac
  bool ended_ = false;        // an end of sequence came
  bool joined_ = false;
};

}  // namespace flashcodec
