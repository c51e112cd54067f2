// Reads pictures as numbers, a line each, and prints whether what each refers to is there.
#include <iostream>
#include <sstream>
#include <string>

#include "engines/nvdec/reference_check.h"

namespace {

using namespace flashcodec;

// order, references, three sets (their length first), then entries of surface, order and whether it is long-term
CuvidHevc read_hevc(std::istream& line) {
  CuvidHevc picture{};
  line >> picture.order >> picture.references;
  const auto read_set = [&](int& count, std::array<uint8_t, 8>& places) {
    line >> count;
    for (int i = 0, place = 0; i < count && line >> place; ++i) places.at(i) = static_cast<uint8_t>(place);
  };
  read_set(picture.before, picture.in_before);
  read_set(picture.after, picture.in_after);
  read_set(picture.long_term, picture.in_long_term);
  picture.surfaces.fill(-1);
  for (int place = 0; line >> place;) {
    int is_long_term = 0;
    line >> picture.surfaces.at(place) >> picture.orders.at(place) >> is_long_term;
  }
  return picture;
}

CuvidH264 read_h264(std::istream& line) {
  CuvidH264 picture{};
  line >> picture.log2_frame_nums_minus_4 >> picture.frame_num >> picture.is_reference;
  return picture;
}

}  // namespace

int main(int, char** arguments) {
  const int codec = std::string(arguments[1]) == "hevc" ? kCuvidHevc : kCuvidH264;
  ReferenceCheck check(codec);
  for (std::string text; std::getline(std::cin, text);) {
    std::istringstream line(text);
    CuvidPicture picture{};
    bool begins = false;
    line >> begins >> picture.surface;
    if (codec == kCuvidHevc) {
      picture.hevc = read_hevc(line);
    } else {
      picture.h264 = read_h264(line);
    }
    std::cout << check.complete(picture, begins);
  }
}
