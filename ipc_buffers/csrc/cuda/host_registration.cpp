#include "host_registration.h"

namespace ipc::cuda {

using native::cuda::CudaError;
using native::cuda::kHostRegisterPortable;
using native::cuda::PrimaryContext;
HostRegistration::HostRegistration(std::span<std::byte> bytes, int gpu) : context_(gpu), address_(bytes.data()) {
  const PrimaryContext::Current current(context_);
  context_.driver().call(context_.driver().host_register, address_, bytes.size(), kHostRegisterPortable);
}

HostRegistration::~HostRegistration() {
  if (!context_.driver().is_usable()) return;
  try {
    const PrimaryContext::Current current(context_);
    context_.driver().host_unregister.pointer(address_);
  } catch (const CudaError&) {  // the driver has shut down, and nothing is registered any more
  }
}

}  // namespace ipc::cuda
