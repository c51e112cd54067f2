// Runs a target without libFuzzer, for compilers that have none: `TARGET [RUNS [SEED]]`, with random bytes.
#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int count, char** arguments) {
  const auto runs = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 2000;
  std::mt19937_64 random(count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1);
  for (std::uint64_t run = 0; run < runs; ++run) {
    std::vector<uint8_t> bytes(random() % 2000);
    for (auto& byte : bytes) byte = static_cast<uint8_t>(random());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  return 0;
}
