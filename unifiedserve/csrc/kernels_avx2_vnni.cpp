#define SIMD_WIDTH 8
#include "kernels.inl"

namespace unified {

constinit const CodedProducts kAvx2VnniProducts = coded_products();

}  // namespace unified
