#include "gpu.h"

#include <array>

#include "native/cuda/driver.h"
#include "native/cuda/primary_context.h"
#include "native/cuda/visible_gpus.h"

namespace ipc::cuda {
using native::cuda::CudaError;
using native::cuda::Device;
using native::cuda::Driver;
using native::cuda::kCapabilityMajor;
using native::cuda::kCapabilityMinor;
using native::cuda::kComputeMode;
using native::cuda::kMultiprocessors;
using native::cuda::PrimaryContext;
using native::cuda::seen_gpus;
namespace {

std::string name_of(const Driver& driver, Device device) {
  std::array<char, 256> name{};
  driver.call(driver.device_get_name, name.data(), static_cast<int>(name.size()), device);
  return name.data();
}

int attribute(const Driver& driver, Device device, int which) {
  int value = 0;
  driver.call(driver.device_get_attribute, &value, which, device);
  return value;
}

std::uint64_t total_bytes(const Driver& driver, Device device) {
  std::size_t bytes = 0;
  driver.call(driver.device_total_mem, &bytes, device);
  return bytes;
}

// The driver writes 13000 for 13.0.
std::pair<int, int> version_of(const Driver& driver) {
  int version = 0;
  driver.call(driver.driver_get_version, &version);
  return {version / 1000, version % 1000 / 10};
}

std::string compute_mode_of(int number) {
  constexpr std::array<const char*, 4> kNames = {"default", "exclusive thread", "prohibited", "exclusive process"};
  const auto index = static_cast<std::size_t>(number);
  return index < kNames.size() ? kNames.at(index) : std::to_string(number);
}

Gpu gpu_of(const Driver& driver, int number) {
  const Device device = device_of(driver, number);
  return {number,
          name_of(driver, device),
          describe(uuid_of(driver, device)),
          {attribute(driver, device, kCapabilityMajor), attribute(driver, device, kCapabilityMinor)},
          total_bytes(driver, device),
          attribute(driver, device, kMultiprocessors),
          compute_mode_of(attribute(driver, device, kComputeMode)),
          version_of(driver)};
}

}  // namespace

std::vector<Gpu> list_gpus() {
  const auto& driver = Driver::get();
  const int count = count_gpus(driver);
  if (count == 0) throw CudaError("there is no GPU: " + seen_gpus(count));
  std::vector<Gpu> gpus;
  gpus.reserve(static_cast<std::size_t>(count));
  for (int number = 0; number < count; ++number) gpus.push_back(gpu_of(driver, number));
  return gpus;
}

std::uint64_t free_bytes(int gpu) {
  const PrimaryContext context(gpu);
  const PrimaryContext::Current current(context);
  std::size_t free = 0, total = 0;
  context.driver().call(context.driver().mem_get_info, &free, &total);
  return free;
}

}  // namespace ipc::cuda
