// Reads chosen packets of an analysed stream.
#pragma once

#include <memory>

#include "bitstream/packets.h"
#include "ffmpeg/packet.h"

namespace flashcodec {

class Input;

// Packets are fetched by number, best in ascending order: straight from their bytes where the container keeps
// each in one piece, else through a demuxer of its own. Throws DecodeError if a packet cannot be read in full.
class PacketReader {
 public:
  // The table is used as long as the reader is.
  explicit PacketReader(const PacketTable& table);
  ~PacketReader();
  PacketReader(const PacketReader&) = delete;
  PacketReader& operator=(const PacketReader&) = delete;

  void read(int32_t index, AVPacket* packet);

 private:
  void read_bytes(int32_t index, AVPacket* packet);
  void read_demuxed(int32_t index, AVPacket* packet);
  bool seek(int32_t index);
  bool find_place(int32_t index);
  void rewind();

  const PacketTable& table_;
  std::unique_ptr<Input> input_;
  int32_t next_ = 0;   // number of the packet that the demuxer gives next
  PacketPtr pending_;  // read already while finding the place after a seek
};

}  // namespace flashcodec
