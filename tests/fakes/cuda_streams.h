#pragma once

#include <functional>

// The order in which a stand-in's GPU works. Nothing is done before somebody waits for it: for its stream, for a stream
// that waits for that one, or for all of the context. Streams of flag 0 and the default one, nullptr, wait for each
// other; streams of flag 1 wait for nobody, and nobody for them.
namespace fake_cuda {

using Work = std::function<void()>;

void give(void* stream, Work work);
// Do all that a stream was given, and what that waits for.
void finish(void* stream);
void finish_all();
// Whether a stream is of the current context.
bool is_own(void* stream);

// Streams and events that are not destroyed.
int live_streams();

}  // namespace fake_cuda
