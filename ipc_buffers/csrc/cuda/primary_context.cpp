#include "primary_context.h"

#include <string>

namespace ipc::cuda {
namespace {

constexpr char kVisibility[] = "; CUDA_VISIBLE_DEVICES says which a process sees";

int visible_gpus(const Driver& driver) {
  int count = 0;
  driver.call(driver.device_get_count, &count);
  return count;
}

std::string sees(int count) { return "this process sees " + std::to_string(count) + (count == 1 ? " GPU" : " GPUs"); }

Device device_of(const Driver& driver, int gpu) {
  const int count = visible_gpus(driver);
  if (gpu < 0 || gpu >= count) {
    throw CudaError("there is no cuda:" + std::to_string(gpu) + ": " + sees(count) + kVisibility);
  }
  Device device = 0;
  driver.call(driver.device_get, &device, gpu);
  return device;
}

Uuid uuid_of(const Driver& driver, Device device) {
  Uuid uuid{};
  driver.call(driver.device_get_uuid, &uuid, device);
  return uuid;
}

// As nvidia-smi writes it: GPU-8-4-4-4-12 hexadecimal digits.
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

int number_of(const Driver& driver, const Uuid& uuid) {
  const int count = visible_gpus(driver);
  for (int gpu = 0; gpu < count; ++gpu) {
    if (uuid_of(driver, device_of(driver, gpu)) == uuid) return gpu;
  }
  throw CudaError("is on " + describe(uuid) + ", but " + sees(count) + ", and not that one" + kVisibility);
}

}  // namespace

PrimaryContext::PrimaryContext(int gpu) : driver_(Driver::get()), gpu_(gpu), device_(device_of(driver_, gpu)) {
  driver_.call(driver_.primary_context_retain, &context_, device_);
}

PrimaryContext::PrimaryContext(const Uuid& uuid) : PrimaryContext(number_of(Driver::get(), uuid)) {}

PrimaryContext::~PrimaryContext() {
  if (driver_.is_usable()) driver_.primary_context_release.pointer(device_);
}

Uuid PrimaryContext::uuid() const { return uuid_of(driver_, device_); }

PrimaryContext::Current::Current(const PrimaryContext& context) : driver_(context.driver_) {
  driver_.call(driver_.context_push, context.context_);
}

PrimaryContext::Current::~Current() {
  Context popped = nullptr;
  driver_.context_pop.pointer(&popped);
}

}  // namespace ipc::cuda
