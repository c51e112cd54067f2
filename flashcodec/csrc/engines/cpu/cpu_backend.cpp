#include "engines/cpu/cpu_backend.h"

#include <sched.h>

#include <algorithm>
#include <thread>

extern "C" {
#include <libavutil/imgutils.h>
}

#include "engines/cpu/cpu_writer.h"
#include "engines/ffmpeg_decoder.h"

namespace flashcodec {

namespace {

// Pictures that a decoder holds: references, those waiting for their turn, and the one at work.
constexpr int kPictures = 9;

int usable_cores() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace

int CpuBackend::engines(int wanted) const { return wanted > 0 ? wanted : usable_cores(); }

bool CpuBackend::decodes(const Bitstream&) const { return true; }

Estimate CpuBackend::estimate(const Bitstream& /*stream*/, const PacketCount& packets, int engines) const {
  return {.decoding = std::chrono::microseconds(packets.cost / engines)};
}

int64_t CpuBackend::memory(const Bitstream& stream) const {
  const AVCodecParameters& parameters = stream.parameters();
  const int bytes =
      av_image_get_buffer_size(static_cast<AVPixelFormat>(parameters.format), parameters.width, parameters.height, 1);
  const int64_t picture = bytes > 0 ? bytes : int64_t{3} * parameters.width * parameters.height;
  return picture * kPictures;
}

std::unique_ptr<PictureDecoder> CpuBackend::open(const Bitstream& stream, int threads) const {
  return std::make_unique<FfmpegDecoder>(stream, threads);
}

std::unique_ptr<GroupWriter> CpuBackend::writer() const { return std::make_unique<CpuWriter>(); }

}  // namespace flashcodec
