#include "native/cuda/visible_gpus.h"

namespace native::cuda {

int count_gpus(const Driver& driver) {
  int count = 0;
  driver.call(driver.device_get_count, &count);
  return count;
}

Device device_of(const Driver& driver, int gpu) {
  const int count = count_gpus(driver);
  if (gpu < 0 || gpu >= count) {
    throw CudaError("there is no cuda:" + std::to_string(gpu) + ": " + seen_gpus(count));
  }
  Device device = 0;
  driver.call(driver.device_get, &device, gpu);
  return device;
}

int number_of(const Driver& driver, const Uuid& uuid) {
  const int count = count_gpus(driver);
  for (int gpu = 0; gpu < count; ++gpu) {
    if (uuid_of(driver, device_of(driver, gpu)) == uuid) return gpu;
  }
  throw CudaError("is on " + describe(uuid) + ", which is hidden or not there: " + seen_gpus(count));
}

Uuid uuid_of(const Driver& driver, Device device) {
  Uuid uuid{};
  driver.call(driver.device_get_uuid, &uuid, device);
  return uuid;
}

std::string describe(const Uuid& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[uuid.bytes[i] >> 4];
    text += kDigits[uuid.bytes[i] & 15];
  }
  return text;
}

std::string seen_gpus(int count) {
  return "this process sees " + std::to_string(count) + (count == 1 ? " GPU" : " GPUs") +
         "; CUDA_VISIBLE_DEVICES says which a process sees";
}

}  // namespace native::cuda
