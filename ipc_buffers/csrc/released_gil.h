#pragma once

#include <Python.h>
#include <unistd.h>

namespace ipc {

// Lets other Python threads run for a scope. In a daemon thread that outlives the interpreter, taking the GIL back
// would end the thread by unwinding through C++ frames, which terminates the process: such a thread sleeps instead.
class ReleasedGil {
 public:
  ReleasedGil() : state_(PyEval_SaveThread()) {}
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;
  ~ReleasedGil() { reacquire(); }

  void reacquire() {
    if (state_ == nullptr) return;
    while (is_finalizing()) ::pause();
    PyEval_RestoreThread(state_);
    state_ = nullptr;
  }

 private:
  static bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030d0000
    return Py_IsFinalizing() != 0;
#else
    return _Py_IsFinalizing() != 0;
#endif
  }

  PyThreadState* state_;
};

}  // namespace ipc
