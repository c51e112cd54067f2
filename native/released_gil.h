#pragma once

#include <Python.h>
#include <unistd.h>

namespace native {

// Lets other Python threads run for a scope. In a daemon thread that outlives the interpreter, taking the GIL back
// would end the thread by unwinding through C++ frames, which terminates the process: such a thread sleeps instead.
// The thread that ends the interpreter, which alone holds the GIL from then on, takes it back as always.
class ReleasedGil {
 public:
  ReleasedGil() : finalizes_(is_finalizing()), state_(PyEval_SaveThread()) {}
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;
  ~ReleasedGil() { reacquire(); }

  void reacquire() {
    if (state_ == nullptr) return;
    while (!finalizes_ && is_finalizing()) ::pause();
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

  bool finalizes_;  // before state_: to be asked with the GIL
  PyThreadState* state_;
};

}  // namespace native
