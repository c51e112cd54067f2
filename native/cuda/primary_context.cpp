#include "native/cuda/primary_context.h"

#include "native/cuda/visible_gpus.h"

namespace native::cuda {

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

}  // namespace native::cuda
