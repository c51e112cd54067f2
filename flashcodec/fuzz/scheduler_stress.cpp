// Threads that add, take, cancel and leave as fast as they can, and schedulers that are closed under them. To be
// built with the thread sanitizer. Arguments: a video, rounds.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engines/cpu/cpu_backend.h"
#include "serving/session.h"

// FFmpeg's frame threads share reference counts, whose atomics are not seen as the library is not instrumented.
extern "C" const char* __tsan_default_options();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1"; }

namespace {

using namespace flashcodec;
using namespace std::chrono_literals;

constexpr int kEngines = 3;
constexpr int kCallers = 4;
constexpr int kSteps = 24;
// So little that jobs pause again and again.
constexpr size_t kOutputBytes = 4 * 16 * 16 * 3;
constexpr Layout kLayout{LayoutKind::kHwc, 16, 16};

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::_Exit(1);
}

std::vector<int64_t> some_frames(const Bitstream& stream, std::mt19937_64& random) {
  std::vector<int64_t> frames(1 + random() % 24);
  for (int64_t& frame : frames) frame = static_cast<int64_t>(random() % stream.frames().size());
  return frames;
}

// Takes until `request` is done; what others of the session put out meanwhile is dropped.
void wait_for(Session& session, uint64_t request) {
  for (;;) {
    const std::optional<Output> output = session.take(60s);
    if (!output) die("an output did not come");
    if (output->error) die(output->error->what());
    if (output->request == request && output->done) return;
  }
}

// One caller with a session of its own. The scheduler may be closed at any time: then adding throws.
void call(const std::shared_ptr<Scheduler>& scheduler, const std::vector<BitstreamPtr>& streams, uint64_t seed) {
  std::mt19937_64 random(seed);
  Session session(scheduler, kOutputBytes);
  std::vector<uint64_t> requests;
  for (int step = 0; step < kSteps; ++step) {
    switch (random() % 6) {
      case 0:
        if (!requests.empty()) session.cancel(requests[random() % requests.size()]);
        break;
      case 1:
        session.cancel_all();
        break;
      case 2:
        session.take(random() % 2 == 0 ? 0ms : 5ms);
        break;
      default: {
        const BitstreamPtr& stream = streams[random() % streams.size()];
        const RequestOptions options{
            .priority = static_cast<int>(random() % 3), .fast = random() % 2 == 0, .report = random() % 2 == 0};
        try {
          requests.push_back(session.add(stream, some_frames(*stream, random), kLayout, options, nullptr));
        } catch (const std::runtime_error&) {
          return;
        }
      }
    }
  }
}

// One session, many threads: some add and cancel, one takes.
void share_a_session(const std::shared_ptr<Scheduler>& scheduler, const BitstreamPtr& stream, uint64_t seed) {
  Session session(scheduler, kOutputBytes);
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&, i] {
      std::mt19937_64 random(seed + i);
      for (int step = 0; step < kSteps; ++step) {
        const uint64_t request = session.add(stream, some_frames(*stream, random), kLayout, {}, nullptr);
        if (random() % 2 == 0) session.cancel(request);
      }
    });
  }
  for (int i = 0; i < kSteps; ++i) session.take(1ms);
  for (std::thread& caller : callers) caller.join();
  session.cancel_all();
  wait_for(session, session.add(stream, {0, 1}, kLayout, {}, nullptr));
}

// A child must see at once that the threads are not there, and leave the scheduler alone.
void fork_while_decoding(Scheduler& scheduler) {
  const pid_t child = fork();
  if (child == 0) {
    scheduler.close();  // returns at once
    _exit(scheduler.inherited() ? 0 : 1);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) die("the child went wrong");
}

// One kind of engines, or two that share every video.
EngineKinds kinds_of(uint64_t seed) {
  Backends backends;
  for (uint64_t count = 0; count <= seed % 2; ++count) backends.push_back(std::make_unique<CpuBackend>());
  return {std::move(backends), kEngines};
}

void round(const std::vector<BitstreamPtr>& streams, uint64_t seed) {
  const auto scheduler = std::make_shared<Scheduler>(kinds_of(seed / 2), seed % 2 == 0 ? int64_t{1} << 30 : 1);
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i) callers.emplace_back(call, scheduler, streams, seed * 1000 + i);
  if (seed % 3 == 0) share_a_session(scheduler, streams.front(), seed);
  if (seed % 4 == 1) fork_while_decoding(*scheduler);
  if (seed % 2 == 0) scheduler->close();
  for (std::thread& caller : callers) caller.join();
  if (seed % 2 != 0) {
    Session session(scheduler, kOutputBytes);
    wait_for(session, session.add(streams.front(), {0}, kLayout, {}, nullptr));
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) die("usage: scheduler_stress VIDEO ROUNDS");
  const int fd = ::open(arguments[1], O_RDONLY | O_CLOEXEC);
  if (fd < 0) die("the video cannot be opened");
  const SourcePtr video = open_descriptor(fd, arguments[1]);
  std::vector<BitstreamPtr> streams;
  for (int i = 0; i < 3; ++i) streams.push_back(std::make_shared<Bitstream>(video, -1, Limits{}));
  const uint64_t rounds = std::stoull(arguments[2]);
  for (uint64_t seed = 0; seed < rounds; ++seed) round(streams, seed);
  std::printf("%llu rounds\n", static_cast<unsigned long long>(rounds));
}
