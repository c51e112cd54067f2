// Bytes into an analysed stream, or an error.
#include "exercise.h"
#include "libfuzzer_mutator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  std::string error;
  flashcodec::fuzz::analyse(bytes, error);
  return 0;
}
