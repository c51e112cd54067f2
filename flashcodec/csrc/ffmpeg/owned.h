// Owners of FFmpeg's handles.
#pragma once

#include <memory>
#include <new>

namespace flashcodec {

template <auto Free>
struct FreeByPointer {
  template <class T>
  void operator()(T* handle) const {
    Free(&handle);
  }
};
template <auto Free>
struct FreeBy {
  template <class T>
  void operator()(T* handle) const {
    Free(handle);
  }
};

// Own a handle that FFmpeg has just allocated. Throws std::bad_alloc if it could not.
template <class Ptr>
Ptr owned(typename Ptr::pointer handle) {
  if (handle == nullptr) throw std::bad_alloc();
  return Ptr(handle);
}

}  // namespace flashcodec
