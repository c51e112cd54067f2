// NVDEC by its own library: only pictures that are wanted leave the decoder.
//
// Which packet a picture comes from must not rest on the parser's timestamps alone. Where those of the first pictures
// do not rise as pictures are shown, the parser takes them for decoding times and exchanges them from then on
// (VulkanVideoDecoder.cpp of NVIDIA's Vulkan-Video-Samples); pictures that are never shown count.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "engines/backend.h"
#include "engines/nvdec/decoder_pool.h"
#include "engines/nvdec/packet_filter.h"
#include "engines/nvdec/reference_check.h"

namespace flashcodec {

// Wherever it may not give what FFmpeg's decoders give - damage, interlaced pictures, a change of format between key
// packets - it throws EngineError, so that cores decode the segment.
class CuvidDecoder : public PictureDecoder {
 public:
  // `codec`: NVIDIA's number of the stream's. `pool` outlives it.
  CuvidDecoder(const Bitstream& stream, int codec, GpuPtr gpu, DecoderPool& pool);
  ~CuvidDecoder() override;
  CuvidDecoder(const CuvidDecoder&) = delete;
  CuvidDecoder& operator=(const CuvidDecoder&) = delete;

  bool fits(const Bitstream& stream) const override;
  void flush() override;
  void send(const PacketToDecode& packet) override;
  void drain() override;
  const DecodedPicture* receive() override;
  int damaged_packets() const override { return 0; }

 private:
  // A picture to come out, that has been copied out already if its surface is needed for another one.
  struct Due {
    CuvidShown shown;
    int64_t frame;
    std::unique_ptr<MappedPicture> mapped;
  };

  template <auto Method, class Argument>
  static int call_back(void* self, Argument* argument);
  template <class Work>
  void on_gpu(Work work);
  void make_parser();
  void destroy_parser();
  void parse(std::span<const uint8_t> data, unsigned long flags);
  // Take the parameter sets that come with a packet; return whether there were some.
  bool take_parameter_sets(AVPacket& packet);
  unsigned long flags_of(const PacketToDecode& packet) const;
  int on_sequence(CuvidFormat& format);
  int on_decode(CuvidPicture& picture);
  int on_display(CuvidShown& shown);
  // Return the place in presentation order, hidden frames included, of what the parser shows.
  int64_t order_of(const CuvidShown& shown);
  DecoderShape shape_of(const CuvidFormat& format) const;
  PictureFormat format_of_pictures(const CuvidFormat& format) const;
  // Throws EngineError if a picture decoded to a surface is known to be damaged.
  void check(int surface) const;

  const int codec_;
  // Each packet is one picture, and pictures are shown in another order; else they are shown in the order of packets,
  // some of which show one that an earlier packet has brought.
  const bool one_picture_;
  const int64_t max_pixels_;
  GpuPtr gpu_;
  DecoderPool& pool_;
  ParametersPtr parameters_;
  PacketFilter filter_;
  ReferenceCheck references_;
  void* parser_ = nullptr;
  std::unique_ptr<HardwareDecoder> decoder_;
  PictureFormat format_;
  bool gave_up_ = false;      // the decoder may not be as another stream needs it
  std::exception_ptr error_;  // of a callback: it must not pass through the parser

  // Since the flush:
  bool begun_ = false;
  bool begins_ = true;                 // pictures before the packet at hand do not count for it
  int64_t order_ = -1;                 // in presentation order, of that packet
  int pictures_ = 0;                   // of it
  int64_t newest_ = -1;                // that was shown
  std::map<int64_t, int64_t> frames_;  // of the packets, by their order
  std::map<int, int64_t> orders_;      // of the pictures that surfaces hold
  std::set<int64_t> wanted_;           // frames that have not come out of the parser
  std::set<int> unchecked_;            // surfaces with pictures that may be damaged
  std::deque<Due> due_;                // in presentation order
  std::unique_ptr<MappedPicture> current_;
  DecodedPicture decoded_;
};

}  // namespace flashcodec
