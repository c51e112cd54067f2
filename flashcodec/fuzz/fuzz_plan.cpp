// Bytes and a choice of frames into segments, runs and packet counts.
#include "exercise.h"
#include "libfuzzer_mutator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  std::string error;
  const flashcodec::BitstreamPtr stream = flashcodec::fuzz::analyse(bytes, error);
  if (stream == nullptr) return 0;
  flashcodec::fuzz::Random random = flashcodec::fuzz::random_of(bytes);
  flashcodec::fuzz::plan(*stream, flashcodec::fuzz::choose_frames(*stream, random), random);
  return 0;
}
