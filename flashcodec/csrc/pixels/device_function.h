// Functions that a GPU runs, too.
#pragma once

#if defined(__CUDACC__)
#define DEVICE_FN __host__ __device__
#else
#define DEVICE_FN
#endif
