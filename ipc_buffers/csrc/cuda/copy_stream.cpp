#include "copy_stream.h"

#include "../copy_path.h"

namespace ipc::cuda {
namespace {

using native::cuda::Address;
using native::cuda::CudaError;
using native::cuda::Driver;
using native::cuda::Function;
using native::cuda::PrimaryContext;

constexpr unsigned kNonBlocking = 1;    // CU_STREAM_NON_BLOCKING: waits for nobody, and nobody for it
constexpr unsigned kDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING

struct Functions {
  void* library = Driver::get().library();
  Function<void**, unsigned> stream_create{library, "cuStreamCreate"};
  Function<void*> stream_destroy{library, "cuStreamDestroy_v2"};
  Function<Address, Address, std::size_t, void*> copy{library, "cuMemcpyAsync"};
  Function<void**, unsigned> event_create{library, "cuEventCreate"};
  Function<void*, void*> event_record{library, "cuEventRecord"};
  Function<void*> event_synchronize{library, "cuEventSynchronize"};
  Function<void*> event_destroy{library, "cuEventDestroy_v2"};
};

const Functions& functions() {
  static const Functions found;
  return found;
}

// Behind what was issued; its context is to be current.
class Event {
 public:
  Event(const Driver& driver, void* stream) : driver_(driver) {
    driver.call(functions().event_create, &event_, kDisableTiming);
    try {
      driver.call(functions().event_record, event_, stream);
    } catch (const CudaError&) {
      functions().event_destroy.pointer(event_);
      throw;
    }
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { functions().event_destroy.pointer(event_); }

  void wait() const { driver_.call(functions().event_synchronize, event_); }

 private:
  const Driver& driver_;
  void* event_ = nullptr;
};

Address address_of(const std::byte* at) { return reinterpret_cast<Address>(at); }

}  // namespace

CopyStream::CopyStream(int gpu) : context_(gpu) {
  const PrimaryContext::Current current(context_);
  context_.driver().call(functions().stream_create, &stream_, kNonBlocking);
}

CopyStream::~CopyStream() {
  if (!context_.driver().is_usable()) return;
  try {
    const PrimaryContext::Current current(context_);
    functions().stream_destroy.pointer(stream_);
  } catch (const CudaError&) {  // the driver has shut down, and the stream is gone
  }
}

void CopyStream::copy(std::span<const CopyRun> runs) const {
  const auto& driver = Driver::get();  // throws in a fork
  const PrimaryContext::Current current(context_);
  const auto issue = [&] {
    for (const auto& run : runs) {
      driver.call(functions().copy, address_of(run.to), address_of(run.from), run.bytes, stream_);
    }
  };
  try {
    issue();
  } catch (const CudaError&) {
    Event(driver, stream_).wait();  // nothing is written after this has thrown
    throw;
  }
  Event(driver, stream_).wait();
}

}  // namespace ipc::cuda
