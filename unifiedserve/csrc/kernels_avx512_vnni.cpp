#define SIMD_WIDTH 16
#include "kernels.inl"

namespace unified {

constinit const CodedProducts kAvx512VnniProducts = coded_products();

}  // namespace unified
