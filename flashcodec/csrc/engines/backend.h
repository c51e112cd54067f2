// What a kind of decoding engine can do: the seam between scheduling and decoding.
//
// Above it are plans, presentation order, damage and output order; below it the pictures. A further kind is a folder
// beside cpu/ and a line in backends.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "bitstream/bitstream.h"
#include "pixels/layout.h"
#include "pixels/orientation.h"
#include "pixels/picture.h"
#include "plan/engine_choice.h"
#include "plan/plan.h"

namespace flashcodec {

// A kind of engine cannot go on with a stream, for reasons of its own: another kind may.
struct EngineError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A packet on its way to a decoder, and what is known of it. If it is not `wanted`, its picture is only referred to,
// and need not come out; if it is `rough`, either, it may be decoded without the loop filter. It comes `after_leading`
// pictures that were left out because they refer to what was not sent.
struct PacketToDecode {
  AVPacket* packet;
  const Packet& known;
  bool wanted;
  bool rough;
  bool after_leading = false;
};

// A decoded picture and the frame that its packet was sent as, negative if it had none. `damaged`: the decoder
// concealed errors in it. Its memory is the decoder's.
struct DecodedPicture {
  Picture picture;
  int64_t frame = -1;
  bool damaged = false;
};

// An opened decoder. Opening one and its first pictures cost more than many a frame, so one is kept for all streams
// that it fits.
class PictureDecoder {
 public:
  PictureDecoder() = default;
  virtual ~PictureDecoder() = default;
  PictureDecoder(const PictureDecoder&) = delete;
  PictureDecoder& operator=(const PictureDecoder&) = delete;

  // Return whether, after a flush, it decodes this other stream as a new decoder would.
  virtual bool fits(const Bitstream& stream) const = 0;
  // Forget what was sent: the next packet is a key packet.
  virtual void flush() = 0;
  // Take a packet. To be called when receive() has no more pictures. Throws EngineError.
  virtual void send(const PacketToDecode& packet) = 0;
  // No packets follow before a flush: the pictures held back come out.
  virtual void drain() = 0;
  // Return the next picture in presentation order, valid until the next call; null if it takes more packets.
  virtual const DecodedPicture* receive() = 0;
  // Return how many packets since the flush were damaged. With one thread it is known when send() returns; with several
  // some packets later, but before a picture behind the damaged one comes out.
  virtual int damaged_packets() const = 0;
};

// Writes decoded pictures into groups; one for each engine. Keeps its scratch memory between pictures. A group that one
// writer has begun another of its backend may go on with.
class GroupWriter {
 public:
  GroupWriter() = default;
  virtual ~GroupWriter() = default;
  GroupWriter(const GroupWriter&) = delete;
  GroupWriter& operator=(const GroupWriter&) = delete;

  // Return the number of the GPU in whose memory groups are handed out; none: in ordinary memory.
  virtual std::optional<int> gpu() const = 0;
  // Allocate memory for a group, to write to.
  virtual std::shared_ptr<uint8_t[]> take(size_t bytes) = 0;
  // Return the bytes of a group of such pictures: those of the layout, or of the picture's own planes if it is kRaw.
  virtual size_t group_bytes(const Picture& picture, const Layout& layout) const = 0;
  // Write a picture of this kind's decoder into its places; then its memory is not needed. Throws EngineError.
  virtual void write(const Picture& picture, Orientation orientation, const Layout& layout,
                     std::span<const Place> places) = 0;
  // Return whether groups are written where they are handed out, so that a caller's memory needs none to be taken.
  virtual bool in_place() const = 0;
  // Hand out a group that was taken, once all of it is there: in the caller's memory `out`, or in what is returned.
  virtual std::shared_ptr<uint8_t[]> finish(std::shared_ptr<uint8_t[]> group, size_t bytes, uint8_t* out) = 0;
};

// A kind of engine. Stateless but for what the process keeps; any thread may ask.
class Backend {
 public:
  Backend() = default;
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // Return what people call such engines.
  virtual std::string name() const = 0;
  // Return whether a GPU's units decode, not this machine's cores.
  virtual bool on_gpu() const = 0;
  // Return how many engines of this kind to run where the caller asked for `wanted`; 0: as many as suit the machine.
  virtual int engines(int wanted) const = 0;
  // Return whether it decodes the stream.
  virtual bool decodes(const Bitstream& stream) const = 0;
  // Return how long so many engines take over so many packets, at least.
  virtual Estimate estimate(const Bitstream& stream, const PacketCount& packets, int engines) const = 0;
  // Return whether a decoder can use several threads.
  virtual bool has_frame_threads() const = 0;
  // Return the bytes that the pictures of a decoder take, about. Quick, too.
  virtual int64_t memory(const Bitstream& stream) const = 0;
  // Open a decoder. `threads` > 1: no other engine has work meanwhile, so it may use so many frame threads. Throws
  // DecodeError if it cannot be opened, EngineError if another kind's might.
  virtual std::unique_ptr<PictureDecoder> open(const Bitstream& stream, int threads) const = 0;
  // Make what its engines write with. Throws EngineError.
  virtual std::unique_ptr<GroupWriter> writer() const = 0;
};

}  // namespace flashcodec
