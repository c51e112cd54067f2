#pragma once

#include <sys/types.h>

// The abstract socket of a process that uses CUDA, @cuda-uvmfd-<pid namespace>-<pid>. libcuda binds it in cuInit and
// hands its descriptor of /dev/nvidia-uvm to processes that open its memory.
namespace fake_cuda {

// Binds this process's socket and serves it in a thread, to which it gives a name, once; returns whether the system
// lets it. Drivers from 570 on end cuInit where a thread cannot be named.
bool serve_peers();

// Connects to the socket of another process and takes its descriptor; returns whether that went well.
bool take_descriptor_of(pid_t owner);

}  // namespace fake_cuda
