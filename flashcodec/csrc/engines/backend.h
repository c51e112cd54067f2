// What a kind of decoding engine can do: the seam between scheduling and decoding.
//
// Above it are plans, presentation order, damage and output order; below it the pictures. A further kind is a folder
// beside cpu/ and a line in backends.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "bitstream/bitstream.h"
#include "pixels/layout.h"
#include "pixels/orientation.h"
#include "pixels/picture.h"

namespace flashcodec {

// A packet on its way to a decoder. `frame` is its place in presentation order, -1 if it has none; `rough`: its picture
// is only referred to, and may be decoded without the loop filter.
struct PacketToDecode {
  AVPacket* packet;
  int64_t frame;
  bool rough;
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
  // Take a packet. To be called when receive() has no more pictures.
  virtual void send(const PacketToDecode& packet) = 0;
  // No packets follow before a flush: the pictures held back come out.
  virtual void drain() = 0;
  // Return the next picture in presentation order, valid until the next call; null if it takes more packets.
  virtual const DecodedPicture* receive() = 0;
  // Return how many packets since the flush were damaged. With one thread it is known when send() returns; with several
  // some packets later, but before a picture behind the damaged one comes out.
  virtual int damaged_packets() const = 0;
};

// Writes decoded pictures into groups, in the memory that this kind of engine writes to; one for each engine. Keeps its
// scratch memory between pictures.
class GroupWriter {
 public:
  GroupWriter() = default;
  virtual ~GroupWriter() = default;
  GroupWriter(const GroupWriter&) = delete;
  GroupWriter& operator=(const GroupWriter&) = delete;

  // Allocate memory for a group.
  virtual std::shared_ptr<uint8_t[]> take(size_t bytes) = 0;
  // Return the bytes of a group of such pictures: those of the layout, or of the picture's own planes if it is kRaw.
  virtual size_t group_bytes(const Picture& picture, const Layout& layout) const = 0;
  // Write a picture of this kind's decoder into its places.
  virtual void write(const Picture& picture, Orientation orientation, const Layout& layout,
                     std::span<const Place> places) = 0;
  // Return once all that was written is in memory.
  virtual void fence() = 0;
};

// A kind of engine. Stateless but for what the process keeps; any thread may ask.
class Backend {
 public:
  Backend() = default;
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // Return how many engines of this kind to run where the caller asked for `wanted`; 0: as many as suit the machine.
  virtual int engines(int wanted) const = 0;
  // Return whether it decodes the stream. Asked under the scheduler's lock, so it must be quick.
  virtual bool decodes(const Bitstream& stream) const = 0;
  // Return the bytes that the pictures of a decoder take, about. Quick, too.
  virtual int64_t memory(const Bitstream& stream) const = 0;
  // Open a decoder. `threads` > 1: no other engine has work meanwhile, so it may use so many threads. Throws
  // DecodeError if it cannot be opened.
  virtual std::unique_ptr<PictureDecoder> open(const Bitstream& stream, int threads) const = 0;
  virtual std::unique_ptr<GroupWriter> writer() const = 0;
};

}  // namespace flashcodec
