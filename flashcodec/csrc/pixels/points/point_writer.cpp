#include "pixels/points/point_writer.h"

#include <algorithm>
#include <utility>

namespace flashcodec {

namespace {

Rgb color_of(const Fit& fit) { return {fit.color[0], fit.color[1], fit.color[2]}; }

// The section of the upright picture that is fitted.
UprightView upright(UprightView picture, const Fit& fit) {
  const Surface& surface = picture.surface;
  const bool swaps = picture.orientation.swaps_sides();
  const int height = swaps ? surface.width : surface.height;
  const int width = swaps ? surface.height : surface.width;
  const Section section = section_of(fit, height, width);
  picture.height = section.height;
  picture.width = section.width;
  picture.top = section.top;
  picture.left = section.left;
  picture.color = color_of(fit);
  return picture;
}

}  // namespace

bool PointWriter::fits(const PictureFormat& format, int height, int width) {
  Picture picture;
  picture.format = format;
  picture.height = height;
  picture.width = width;
  return YuvRows::fits(picture) && ways_.of(format) != YuvWay::kNone;
}

void PointWriter::write(const Surface& surface, const PictureFormat& format, Orientation orientation,
                        const Layout& layout, std::span<const Place> places) {
  const UprightView picture{.surface = surface,
                            .way = ways_.of(format),
                            .coefficients = yuv_coefficients(format),
                            .orientation = orientation,
                            .color = {},
                            .width = 0,
                            .height = 0,
                            .top = 0,
                            .left = 0};
  write(picture, layout, places);
}

void PointWriter::write_rgb(const Surface& surface, Orientation orientation, const Layout& layout,
                            std::span<const Place> places) {
  const UprightView picture{.surface = surface,
                            .way = YuvWay::kRgb,
                            .coefficients = {},
                            .orientation = orientation,
                            .color = {},
                            .width = 0,
                            .height = 0,
                            .top = 0,
                            .left = 0};
  write(picture, layout, places);
}

void PointWriter::write(const UprightView& picture, const Layout& layout, std::span<const Place> places) {
  auto tables = tables_.begin();
  for (const Canvas& canvas : layout.canvases()) {
    draw(upright(picture, canvas.fit()), canvas, layout.interpolation, *tables++, places);
  }
}

void PointWriter::draw(const UprightView& picture, const Canvas& canvas, Interpolation interpolation, Tables& tables,
                       std::span<const Place> places) {
  const Fit& fit = canvas.fit();
  const Box covered = canvas.covered();
  DownPass down{.in = {},
                .filter = {},
                .first_row = 0,
                .top = covered.top - fit.top,
                .covered_top = covered.top,
                .covered_bottom = covered.bottom,
                .covered_left = covered.left,
                .covered_right = covered.right,
                .color = color_of(fit),
                .canvas = canvas.shape(),
                .slot = 0,
                .group = nullptr};
  if (!covered.empty()) {
    const FilterView across = tables.across.get(device_, interpolation, picture.width, fit.width);
    down.filter = tables.down.get(device_, interpolation, picture.height, fit.height);
    down.first_row = tables.down.filter().first(down.top);
    const int rows = tables.down.filter().last(down.top + covered.height() - 1) - down.first_row;
    down.in = {device_.scratch(size_t{3} * rows * covered.width()), rows, covered.width()};
    device_.run(AcrossPass{picture, across, down.first_row, covered.left - fit.left, down.in});
  }
  for (const Place& place : places) {
    down.slot = place.slot;
    down.group = place.group;
    device_.run(down);
  }
}

FilterView PointWriter::Table::get(PointDevice& device, Interpolation interpolation, int in, int out) {
  if (!filter_.made_for(interpolation, in, out)) {
    Filter filter(interpolation, in, out);
    std::shared_ptr<const std::byte> first = device.upload(std::as_bytes(filter.starts()));
    weights_ = device.upload(std::as_bytes(filter.all_weights()));
    first_ = std::move(first);
    filter_ = std::move(filter);
  }
  FilterView view = filter_.view();
  view.first = reinterpret_cast<const int32_t*>(first_.get());
  view.weights = reinterpret_cast<const int16_t*>(weights_.get());
  return view;
}

}  // namespace flashcodec
