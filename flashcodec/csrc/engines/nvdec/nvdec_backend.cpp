#include "engines/nvdec/nvdec_backend.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

extern "C" {
#include <libavutil/hwcontext.h>
}

#include "engines/ffmpeg_decoder.h"
#include "engines/nvdec/cuvid_decoder.h"
#include "engines/nvdec/gpu_writer.h"
#include "ffmpeg/log.h"

namespace flashcodec {

namespace {

// While one decoder's packets are parsed and its pictures copied, another one keeps the unit busy.
constexpr int kDecodersPerUnit = 2;
// Surfaces of a decoder: as many as H.264 may refer to, and those on their way.
constexpr int kSurfaces = 20;

// Of a unit: 771 frames of H.264 in 1080p a second (NVIDIA's NVDEC application note, Turing to Hopper).
constexpr double kPixelsAMicrosecond = 771e-6 * 1920 * 1080;
// What making a decoder takes, and having one ready (measured on an H100 by TorchCodec's authors).
constexpr std::chrono::milliseconds kOpening(60);
constexpr std::chrono::milliseconds kReopening(6);

bool by_ffmpeg() {
  const char* way = std::getenv("FLASHCODEC_NVDEC");
  return way != nullptr && std::string_view(way) == "ffmpeg";
}

// FFmpeg's device over the same primary context.
AVBufferRef* make_device(int gpu) {
  const LogCapture log;
  AVDictionary* options = nullptr;
  av_dict_set(&options, "primary_ctx", "1", 0);
  AVBufferRef* device = nullptr;
  const int status = av_hwdevice_ctx_create(&device, AV_HWDEVICE_TYPE_CUDA, std::to_string(gpu).c_str(), options, 0);
  av_dict_free(&options);
  if (status >= 0) return device;
  throw EngineError("this FFmpeg cannot use cuda:" + std::to_string(gpu) + ": " + log.explain(error_text(status)));
}

// Make a writer; that it cannot be made is a reason to leave its work to another kind of engine.
template <class Writer, class... Arguments>
std::unique_ptr<GroupWriter> make_writer(Arguments... arguments) {
  try {
    return std::make_unique<Writer>(arguments...);
  } catch (const native::cuda::CudaError& error) {
    throw EngineError(error.what());
  }
}

}  // namespace

void NvdecBackend::Unref::operator()(AVBufferRef* buffer) const { av_buffer_unref(&buffer); }

NvdecBackend::NvdecBackend(GpuPtr gpu)
    : gpu_(std::move(gpu)), caps_(gpu_), pool_(gpu_, static_cast<size_t>(caps_.engines()) * kDecodersPerUnit) {
  if (caps_.engines() > 0) return;
  throw native::cuda::CudaError("cuda:" + std::to_string(gpu_->number()) + " has no NVDEC");
}

std::string NvdecBackend::name() const { return "NVDEC of cuda:" + std::to_string(gpu_->number()); }

int NvdecBackend::engines(int wanted) const {
  const int most = caps_.engines() * kDecodersPerUnit;
  return wanted > 0 ? std::min(wanted, most) : most;
}

bool NvdecBackend::decodes(const Bitstream& stream) const {
  const AVCodecParameters& parameters = stream.parameters();
  const bool even = parameters.width % 2 == 0 && parameters.height % 2 == 0;
  return even && stream.ordered() && caps_.decodes(stream);
}

Estimate NvdecBackend::estimate(const Bitstream& stream, const PacketCount& packets, int engines) const {
  const double pixels = static_cast<double>(packets.needed) * stream.parameters().width * stream.parameters().height;
  const double units = std::min<double>(engines, caps_.engines());
  const double microseconds = pixels / kPixelsAMicrosecond / units;
  return {pool_.is_warm() ? kReopening : kOpening, std::chrono::microseconds(static_cast<int64_t>(microseconds))};
}

int64_t NvdecBackend::memory(const Bitstream& stream) const {
  return int64_t{3} * stream.parameters().width * stream.parameters().height * kSurfaces;
}

std::unique_ptr<PictureDecoder> NvdecBackend::open(const Bitstream& stream, int /*threads*/) const {
  if (by_ffmpeg()) return std::make_unique<FfmpegDecoder>(stream, 1, device());
  return std::make_unique<CuvidDecoder>(stream, cuvid_codec(stream.parameters().codec_id), gpu_, pool_);
}

AVBufferRef* NvdecBackend::device() const {
  const std::lock_guard lock(mutex_);
  if (device_ == nullptr) device_.reset(make_device(gpu_->number()));
  return device_.get();
}

std::unique_ptr<GroupWriter> NvdecBackend::writer() const {
  return make_writer<GpuWriter>(gpu_, by_ffmpeg() ? StreamOrder::kBehindDefault : StreamOrder::kAlone);
}

std::string UploadingBackend::name() const { return "cores for cuda:" + std::to_string(gpu_->number()); }

int UploadingBackend::engines(int wanted) const { return std::max(1, CpuBackend::engines(wanted) / gpus_); }

std::unique_ptr<GroupWriter> UploadingBackend::writer() const { return make_writer<UploadingWriter>(gpu_); }

}  // namespace flashcodec
