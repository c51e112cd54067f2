// libFuzzer's own mutations mostly destroy the container: three of four inputs are mutated by parts instead.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "mutation.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" inline __attribute__((used)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                                                       unsigned seed) {
  if (size < 16 || seed % 4 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::vector<uint8_t> mutated = flashcodec::fuzz::mutate({data, data + size}, seed);
  const size_t kept = std::min(mutated.size(), max_size);
  std::copy_n(mutated.begin(), kept, data);
  return kept;
}
