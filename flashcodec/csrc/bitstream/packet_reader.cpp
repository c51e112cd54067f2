#include "bitstream/packet_reader.h"

#include <string>
#include <utility>

#include "ffmpeg/log.h"
#include "source/input.h"

namespace flashcodec {

namespace {

// Reading on is cheaper than a seek over fewer packets than this.
constexpr int32_t kSeekDistance = 256;
// After a seek, so many packets may be strange (cut in the middle) before one is recognised.
constexpr int kStrangers = 16;

bool same(const Packet& known, const AVPacket& packet) {
  return known.position == packet.pos && known.size == packet.size && packet.pos >= 0;
}

}  // namespace

PacketReader::PacketReader(const PacketTable& table) : table_(table) {}
PacketReader::~PacketReader() = default;

void PacketReader::read(int32_t index, AVPacket* packet) {
  const LogCapture log;
  av_packet_unref(packet);
  if (table_.contiguous) {
    read_bytes(index, packet);
  } else {
    read_demuxed(index, packet);
  }
  const Packet& known = table_.packets[index];
  if (known.key) packet->flags |= AV_PKT_FLAG_KEY;
  if (known.discard) packet->flags |= AV_PKT_FLAG_DISCARD;
}

void PacketReader::read_bytes(int32_t index, AVPacket* packet) {
  const Packet& known = table_.packets[index];
  const auto truncated = [&] {
    table_.fail("the source ends within packet " + std::to_string(index) + " (truncated?)", ErrorKind::kSource,
                known.position);
  };
  if (known.position > table_.source->size() - known.size) truncated();
  if (av_new_packet(packet, known.size) < 0) throw std::bad_alloc();
  size_t done = 0;
  while (done < static_cast<size_t>(known.size)) {
    const std::span<uint8_t> rest(packet->data + done, static_cast<size_t>(known.size) - done);
    const size_t count = table_.source->read_at(known.position + static_cast<int64_t>(done), rest);
    if (count == 0) truncated();
    done += count;
  }
}

void PacketReader::read_demuxed(int32_t index, AVPacket* packet) {
  if (input_ == nullptr || index < next_ || index - next_ > kSeekDistance) {
    if (!seek(index)) rewind();
  }
  for (; next_ <= index; ++next_) {
    if (pending_ != nullptr) {
      av_packet_move_ref(packet, pending_.get());
      pending_.reset();
    } else {
      do {
        if (!input_->read(packet))
          table_.fail("the source ends before packet " + std::to_string(index), ErrorKind::kSource);
      } while (packet->size == 0);
    }
    if (packet->size != table_.packets[next_].size)
      table_.fail("the source changed while it was read", ErrorKind::kSource);
  }
}

void PacketReader::rewind() {
  input_ = std::make_unique<Input>(table_.source, table_.stream_index, table_.limits);
  pending_.reset();
  next_ = 0;
}

// Tries to get near the packet without reading all that is before it; false if the place cannot be told.
bool PacketReader::seek(int32_t index) {
  if (index <= kSeekDistance) return false;
  const Packet& target = table_.packets[index];
  if (target.position < 0) return false;
  if (input_ == nullptr) rewind();
  pending_.reset();
  const int64_t timestamp = target.dts != AV_NOPTS_VALUE ? target.dts : target.pts;
  return input_->seek(target.position, timestamp) && find_place(index);
}

bool PacketReader::find_place(int32_t index) {
  const auto& packets = table_.packets;
  auto packet = owned<PacketPtr>(av_packet_alloc());
  for (int strangers = 0; strangers < kStrangers && input_->read(packet.get()); ++strangers) {
    for (int32_t i = index; i >= 0; --i) {
      if (!same(packets[i], *packet)) continue;
      next_ = i;
      pending_ = std::move(packet);
      return true;
    }
  }
  return false;
}

}  // namespace flashcodec
