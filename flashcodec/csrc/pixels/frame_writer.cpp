#include "pixels/frame_writer.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

extern "C" {
#include <libavutil/imgutils.h>
}

#include "pixels/color.h"
#include "pixels/resize.h"
#include "pixels/upright.h"

namespace flashcodec {

class FrameWriter::Pipeline {
 public:
  explicit Pipeline(const Kernels& kernels)
      : kernels_(kernels), converter_(kernels), upright_(kernels), resizers_{Resizer(kernels), Resizer(kernels)} {}

  const Kernels& kernels() const { return kernels_; }

  ColorConverter& start(const Picture& picture) {
    converter_.start(picture);
    return converter_;
  }

  void write(PixelSource& source, Orientation orientation, const Layout& layout, std::span<const Place> places) {
    auto resizer = resizers_.begin();
    for (const Canvas& canvas : layout.canvases()) {
      upright_.start(source, orientation, canvas.fit());
      draw(canvas, *resizer++, layout.interpolation, places);
    }
  }

 private:
  void draw(const Canvas& canvas, Resizer& resizer, Interpolation interpolation, std::span<const Place> places);

  const Kernels& kernels_;
  ColorConverter converter_;
  Upright upright_;
  std::array<Resizer, 2> resizers_;  // of the picture and the thumbnail: each keeps its filters
  std::vector<uint8_t> row_;
};

void FrameWriter::Pipeline::draw(const Canvas& canvas, Resizer& resizer, Interpolation interpolation,
                                 std::span<const Place> places) {
  const Fit& fit = canvas.fit();
  const int width = canvas.width();
  const Box covered = canvas.covered();
  if (!covered.empty()) {
    const Window window{covered.top - fit.top, covered.left - fit.left, covered.height(), covered.width()};
    resizer.start(upright_, fit.height, fit.width, interpolation, window);
  }
  row_.resize(std::max(row_.size(), size_t{3} * width));
  const Planes scratch{row_.data(), row_.data() + width, row_.data() + ptrdiff_t{2} * width};
  const bool direct = canvas.planar();
  for (int y = 0; y < canvas.height(); ++y) {
    const Planes row = direct ? canvas.planes(y, places.front().group) : scratch;
    const bool has_frame = !covered.empty() && y >= covered.top && y < covered.bottom;
    if (!has_frame || covered.width() < width) fill(row, width, fit.color);
    if (has_frame) resizer.row(y - covered.top, row + covered.left);
    for (const Place& place : direct ? places.subspan(1) : places) {
      canvas.write_row(kernels_, row, y, place.slot, place.group);
    }
  }
}

FrameWriter::FrameWriter(const Kernels& kernels) : pipeline_(std::make_unique<Pipeline>(kernels)) {}
FrameWriter::~FrameWriter() = default;
FrameWriter::FrameWriter(FrameWriter&&) noexcept = default;
FrameWriter& FrameWriter::operator=(FrameWriter&&) noexcept = default;

void FrameWriter::write(const Picture& picture, Orientation orientation, const Layout& layout,
                        std::span<const Place> places) {
  pipeline_->write(pipeline_->start(picture), orientation, layout, places);
}

void FrameWriter::write(const RgbView& rgb, const Layout& layout, std::span<const Place> places) {
  RgbPixels pixels(pipeline_->kernels(), rgb);
  pipeline_->write(pixels, Orientation{}, layout, places);
}

size_t raw_bytes(const Picture& picture) {
  const int bytes =
      av_image_get_buffer_size(static_cast<AVPixelFormat>(picture.format.pixels), picture.width, picture.height, 1);
  if (bytes < 0) throw std::runtime_error("the decoder's pixel format has no plain layout");
  return static_cast<size_t>(bytes);
}

void write_raw(const Picture& picture, uint8_t* out) {
  av_image_copy_to_buffer(out, static_cast<int>(raw_bytes(picture)), picture.planes.data(), picture.strides.data(),
                          static_cast<AVPixelFormat>(picture.format.pixels), picture.width, picture.height, 1);
}

}  // namespace flashcodec
