#pragma once

#include <cstdint>

#include "element_type.h"

namespace unified {

// Pages of keys and values, contiguous: [pages, layers, 2, page_size, kv_heads, head_dim].
struct KvCache {
  void* data;
  ElementType type;
  std::int64_t pages;
  std::int64_t layers;
  std::int64_t page_size;
  std::int64_t kv_heads;
  std::int64_t head_dim;

  std::int64_t token_stride() const { return kv_heads * head_dim; }
  std::int64_t value_offset() const { return page_size * token_stride(); }
  std::int64_t page_stride() const { return layers * 2 * value_offset(); }

  // The keys of a layer in page 0.
  template <class T>
  T* keys(std::int64_t layer) const {
    return static_cast<T*>(data) + layer * 2 * value_offset();
  }

  // The key in a slot (page * page_size + offset).
  template <class T>
  T* key(std::int64_t layer, std::int64_t slot) const {
    return keys<T>(layer) + slot / page_size * page_stride() + slot % page_size * token_stride();
  }
};

}  // namespace unified
