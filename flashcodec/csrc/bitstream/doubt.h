// A claim of the container that its packets contradict.
#pragma once

#include <string>

namespace flashcodec {

struct Doubt {
  std::string claim;   // "key flags", "times", "first packets"
  std::string reason;  // what the packets say instead
};

}  // namespace flashcodec
