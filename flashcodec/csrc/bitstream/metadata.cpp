#include "bitstream/metadata.h"

#include <algorithm>
#include <cmath>
#include <cstring>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavutil/display.h>
#include <libavutil/pixdesc.h>
}

namespace flashcodec {

namespace {

const uint8_t* side_data(const AVStream* stream, AVPacketSideDataType type) {
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(60, 31, 100)
  const AVPacketSideData* data =
      av_packet_side_data_get(stream->codecpar->coded_side_data, stream->codecpar->nb_coded_side_data, type);
  return data == nullptr ? nullptr : data->data;
#else
  return av_stream_get_side_data(stream, type, nullptr);
#endif
}

using DisplayMatrix = std::array<int32_t, 9>;

std::optional<DisplayMatrix> display_matrix(const AVStream* stream) {
  const uint8_t* bytes = side_data(stream, AV_PKT_DATA_DISPLAYMATRIX);
  if (bytes == nullptr) return std::nullopt;
  DisplayMatrix matrix;
  std::memcpy(matrix.data(), bytes, sizeof(matrix));
  return matrix;
}

// In degrees, anticlockwise, as FFmpeg and TorchCodec tell it also of a matrix that mirrors.
std::optional<double> rotation_of(const DisplayMatrix& matrix) {
  const double degrees = av_display_rotation_get(matrix.data());
  if (std::isnan(degrees)) return std::nullopt;
  return degrees;
}

// A matrix that mirrors has a negative determinant: with its first row negated it is the turn that follows.
Orientation orientation_of_matrix(DisplayMatrix matrix) {
  const auto product = [&](int i, int j) { return static_cast<double>(matrix[i]) * matrix[j]; };
  const bool mirrored = product(0, 4) < product(1, 3);
  for (int i = 0; mirrored && i < 2; ++i) matrix[i] = -std::max(matrix[i], -INT32_MAX);
  const double degrees = rotation_of(matrix).value_or(0);
  return {.quarter_turns = (4 - static_cast<int>(std::lround(degrees / 90))) % 4, .mirrored = mirrored};
}

std::optional<std::string> name_or_none(const char* name) {
  if (name == nullptr) return std::nullopt;
  return name;
}

}  // namespace

bool is_encrypted(const AVStream& stream) {
  return stream.codecpar->codec_tag == MKTAG('e', 'n', 'c', 'v') ||
         side_data(&stream, AV_PKT_DATA_ENCRYPTION_INIT_INFO) != nullptr ||
         av_dict_get(stream.metadata, "enc_key_id", nullptr, 0) != nullptr;  // Matroska
}

Orientation orientation_of(const AVStream& stream) {
  const std::optional<DisplayMatrix> matrix = display_matrix(&stream);
  return matrix ? orientation_of_matrix(*matrix) : Orientation{};
}

Metadata metadata_of(const AVStream& stream) {
  Metadata metadata;
  const AVCodecParameters& codec = *stream.codecpar;
  const auto seconds = [&](int64_t time) {
    return static_cast<double>(time) * stream.time_base.num / stream.time_base.den;
  };
  metadata.codec = avcodec_get_name(codec.codec_id);
  if (const std::optional<DisplayMatrix> matrix = display_matrix(&stream)) {
    metadata.rotation = rotation_of(*matrix);
  }
  const bool turned = orientation_of(stream).swaps_sides();
  metadata.width = turned ? codec.height : codec.width;
  metadata.height = turned ? codec.width : codec.height;
  metadata.pixel_format = name_or_none(av_get_pix_fmt_name(static_cast<AVPixelFormat>(codec.format)));
  if (stream.duration > 0) metadata.duration_from_header = seconds(stream.duration);
  if (stream.start_time != AV_NOPTS_VALUE) metadata.begin_from_header = seconds(stream.start_time);
  if (codec.bit_rate > 0) metadata.bit_rate = static_cast<double>(codec.bit_rate);
  const AVRational fps = stream.avg_frame_rate.num > 0 ? stream.avg_frame_rate : stream.r_frame_rate;
  if (fps.num > 0 && fps.den > 0) metadata.average_fps_from_header = av_q2d(fps);
  if (stream.nb_frames > 0) metadata.num_frames_from_header = stream.nb_frames;
  if (codec.sample_aspect_ratio.num > 0) {
    metadata.pixel_aspect_ratio = {codec.sample_aspect_ratio.num, codec.sample_aspect_ratio.den};
  }
  if (codec.color_primaries != AVCOL_PRI_UNSPECIFIED) {
    metadata.color_primaries = name_or_none(av_color_primaries_name(codec.color_primaries));
  }
  if (codec.color_space != AVCOL_SPC_UNSPECIFIED) {
    metadata.color_space = name_or_none(av_color_space_name(codec.color_space));
  }
  if (codec.color_trc != AVCOL_TRC_UNSPECIFIED) {
    metadata.color_transfer = name_or_none(av_color_transfer_name(codec.color_trc));
  }
  return metadata;
}

}  // namespace flashcodec
