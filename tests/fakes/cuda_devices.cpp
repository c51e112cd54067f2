#include "cuda_devices.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

namespace fake_cuda {
namespace {

constexpr char kAll[] = "all";

// As nvidia-smi writes it: a GPU's UUID is its letter, 16 times.
std::string uuid_of(char gpu) {
  std::ostringstream text;
  text << "GPU-";
  for (int byte = 0; byte < 16; ++byte) {
    if (byte == 4 || byte == 6 || byte == 8 || byte == 10) text << '-';
    text << std::hex << static_cast<int>(gpu);
  }
  return text.str();
}

std::size_t find(const std::string& gpus, const std::string& name) {
  if (!name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; })) {
    return std::stoul(name);
  }
  const auto found = std::find_if(gpus.begin(), gpus.end(), [&](char gpu) { return uuid_of(gpu).starts_with(name); });
  return name.starts_with("GPU-") ? static_cast<std::size_t>(found - gpus.begin()) : gpus.size();
}

// What comes after a name that names nothing is not seen.
std::string selected(const std::string& gpus, const std::string& names) {
  if (names == kAll) return gpus;
  std::string seen;
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    const std::size_t place = find(gpus, name);
    if (place >= gpus.size()) break;
    seen += gpus[place];
  }
  return seen;
}

std::string shown_by_daemon(const std::string& gpus) {
  const char* pipes = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  std::ifstream devices(std::string(pipes == nullptr ? "/nonexistent" : pipes) + "/devices");
  if (!devices) return gpus;
  return selected(gpus, {std::istreambuf_iterator<char>(devices), {}});
}

}  // namespace

std::string visible_gpus(const std::string& machine) {
  const char* own = std::getenv("CUDA_VISIBLE_DEVICES");
  return selected(shown_by_daemon(machine), own == nullptr ? kAll : own);
}

}  // namespace fake_cuda
