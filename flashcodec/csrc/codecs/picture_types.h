// Whether the picture of a packet is intra coded, by the first bits of codecs of which nothing else is read. Decoding
// may start at an intra picture of each of them: pictures refer only to the one or two before.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace flashcodec {

// H.263, 5.1
bool intra_h263(std::span<const uint8_t> packet);
// Sorenson's H.263 of Flash (SWF File Format, H.263 video packet)
bool intra_flv1(std::span<const uint8_t> packet);
// Theora, 7.1
bool intra_theora(std::span<const uint8_t> packet);
// FFV1, 4.4: the first symbol of the range coder, of even probability
bool intra_ffv1(std::span<const uint8_t> packet);
// Microsoft's MPEG-4 of version 2 and 3, and WMV 1
bool intra_msmpeg4(std::span<const uint8_t> packet);
bool intra_wmv2(std::span<const uint8_t> packet);
bool intra_rv30(std::span<const uint8_t> packet);
bool intra_rv40(std::span<const uint8_t> packet);
// VC-1's advanced profile: an entry point (SMPTE 421M, 6.2) comes before such a picture.
bool enters_vc1(std::span<const uint8_t> packet);

// VC-1's simple and main profile: what must be known to read a picture's header (SMPTE 421M, annex J, 7.1).
struct Wmv3Format {
  bool interpolated = false;  // finterpflag
  bool range_reduced = false;
  bool b_pictures = false;

  // STRUCT_C; nullopt if it is cut.
  static std::optional<Wmv3Format> of(std::span<const uint8_t> configuration);
};

bool intra_wmv3(std::span<const uint8_t> packet, const Wmv3Format& format);

// The number of the first picture among Dirac's and VC-2's data units (Dirac, 9.6 and 10.1), by which pictures are
// shown; none if there are only others.
std::optional<uint32_t> dirac_picture(std::span<const uint8_t> packet);

}  // namespace flashcodec
