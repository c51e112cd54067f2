#include "place.h"

#include <charconv>
#include <stdexcept>
#include <string_view>

namespace ipc {
namespace {

constexpr char kHost[] = "host";
constexpr std::string_view kCuda = "cuda:";

}  // namespace

Place Place::parse(const std::string& text) {
  if (text == kHost) return {};
  const char* const end = text.data() + text.size();
  const char* const digits = text.data() + (text.starts_with(kCuda) ? kCuda.size() : text.size());
  int gpu = -1;
  const auto [rest, error] = std::from_chars(digits, end, gpu);
  if (error != std::errc() || rest != end || gpu < 0) {
    throw std::invalid_argument("a place is 'host' or 'cuda:N', not '" + text + "'");
  }
  return {gpu};
}

std::string Place::text() const { return gpu ? std::string(kCuda) + std::to_string(*gpu) : kHost; }

}  // namespace ipc
