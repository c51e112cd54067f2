#include "kv_cache.h"

#include "selected_kernels.h"

namespace unified {

template <class T>
void KvCache::store_codes(std::int64_t layer, std::int64_t slot, const T* key, const T* value) const {
  const auto quantize = kernels<T>().quantize;
  auto* const codes = this->key<std::int8_t>(layer, slot);
  for (std::int64_t head = 0; head < kv_heads; ++head) {
    const std::int64_t at = head * head_dim;
    float* const scale = key_scale(layer, head, slot);
    scale[0] = quantize(key + at, head_dim, codes + at);
    scale[value_scale_offset()] = quantize(value + at, head_dim, codes + value_offset() + at);
  }
}

template void KvCache::store_codes(std::int64_t, std::int64_t, const float*, const float*) const;
template void KvCache::store_codes(std::int64_t, std::int64_t, const BFloat16*, const BFloat16*) const;

}  // namespace unified
