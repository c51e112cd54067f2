#include "engines/nvjpeg/jpeg_batches.h"

#include <utility>

namespace flashcodec {

std::optional<JpegPlanes> JpegBatches::decode(std::span<const unsigned char> bytes) {
  std::unique_lock lock(mutex_);
  const std::optional<Jpeg> jpeg = hardware_.inspect(bytes);
  if (!jpeg) return std::nullopt;
  Waiting mine{*jpeg};
  waiting_.push_back(&mine);
  freed_.wait(lock, [&] { return mine.done || !busy_; });
  if (!mine.done) {
    busy_ = true;
    const std::vector<Waiting*> batch = std::exchange(waiting_, {});
    lock.unlock();
    decode_all(batch);
    lock.lock();
    for (Waiting* each : batch) each->done = true;
    busy_ = false;
    freed_.notify_all();
  }
  if (mine.error != nullptr) std::rethrow_exception(mine.error);
  return std::move(mine.planes);
}

// What goes wrong is told to all that have waited.
void JpegBatches::decode_all(std::span<Waiting* const> batch) {
  try {
    std::vector<Jpeg> jpegs;
    for (const Waiting* each : batch) jpegs.push_back(each->jpeg);
    std::vector<std::optional<JpegPlanes>> planes = hardware_.decode(jpegs);
    for (size_t i = 0; i < batch.size(); ++i) batch[i]->planes = std::move(planes[i]);
  } catch (...) {
    for (Waiting* each : batch) each->error = std::current_exception();
  }
}

}  // namespace flashcodec
