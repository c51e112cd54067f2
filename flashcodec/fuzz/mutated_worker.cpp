// Runs mutated files for mutated_files.py: reads lines "PATH<tab>SEED", answers each with one line of JSON. With
// --write PATH SEED OUT it only writes the mutated file.
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "exercise.h"
#include "mutation.h"

#if defined(__SANITIZE_ADDRESS__)
#define HAS_LEAK_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_LEAK_SANITIZER 1
#endif
#endif
#ifdef HAS_LEAK_SANITIZER
#include <sanitizer/lsan_interface.h>
#endif

namespace {

using namespace flashcodec;

std::vector<uint8_t> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::cerr << path << ": cannot be read\n";
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

// In kB, as /proc/self/status has it ("VmRSS:", "VmHWM:").
long memory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::stol(line.substr(name.size()));
  }
  return 0;
}

void forget_peak_memory() { std::ofstream("/proc/self/clear_refs") << 5; }

// Looks now and then, as that takes longer than most cases: what is found is of this case or of the few before.
bool leaks() {
#ifdef HAS_LEAK_SANITIZER
  constexpr int kCasesPerCheck = 20;
  static int cases = 0;
  return ++cases % kCasesPerCheck == 0 && __lsan_do_recoverable_leak_check() != 0;
#else
  return false;
#endif
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c >= ' ' && c <= '~' ? c : '?';
  }
  return out + '"';
}

// Analyses, plans and decodes one file; gives what came out as the inside of a JSON object.
std::string exercise(const std::vector<uint8_t>& bytes) {
  std::string error;
  const BitstreamPtr stream = fuzz::analyse(bytes, error);
  if (stream == nullptr) return "\"outcome\": \"refused\", \"error\": " + quoted(error);
  fuzz::Random random = fuzz::random_of(bytes);
  const std::vector<int64_t> frames = fuzz::choose_frames(*stream, random);
  fuzz::plan(*stream, frames, random);
  const int groups = fuzz::decode(stream, frames, random, error);
  return "\"outcome\": \"" + std::string(error.empty() ? "frames" : "failed") +
         "\", \"groups\": " + std::to_string(groups) + ", \"error\": " + quoted(error);
}

void run(const std::string& path, uint64_t seed) {
  const std::vector<uint8_t> bytes = fuzz::mutate(read_file(path), seed);
  forget_peak_memory();
  const auto began = std::chrono::steady_clock::now();
  const std::string result = exercise(bytes);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  std::cout << "{" << result << ", \"seconds\": " << seconds.count() << ", \"peak_mb\": " << memory("VmHWM:") / 1024
            << ", \"left_mb\": " << memory("VmRSS:") / 1024 << ", \"leaks\": " << (leaks() ? "true" : "false") << "}"
            << std::endl;
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> given(arguments + 1, arguments + count);
  if (given.size() == 4 && given[0] == "--write") {
    const std::vector<uint8_t> bytes = fuzz::mutate(read_file(given[1]), std::stoull(given[2]));
    std::ofstream(given[3], std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    return 0;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const size_t tab = line.find('\t');
    run(line.substr(0, tab), std::stoull(line.substr(tab + 1)));
  }
}
