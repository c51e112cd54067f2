#pragma once

#include <cstdint>

#include "element_type.h"

namespace unified {

// Pages of keys and values, each [layers, 2, page_size, kv_heads, head_dim]. If these are codes of 8 bits, each page
// has their scales, too, [layers, 2, kv_heads, page_size]: a token's key or value of a head has one.
struct KvCache {
  void* data;
  float* scales;  // null without codes
  ElementType type;
  std::int64_t pages;
  std::int64_t layers;
  std::int64_t page_size;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t page_stride;   // in elements
  std::int64_t scale_stride;  // in scales, from a page's to the next one's

  bool coded() const { return scales != nullptr; }

  std::int64_t token_stride() const { return kv_heads * head_dim; }
  std::int64_t value_offset() const { return page_size * token_stride(); }
  std::int64_t value_scale_offset() const { return page_size * kv_heads; }

  // The keys of a layer in page 0.
  template <class Stored>
  Stored* keys(std::int64_t layer) const {
    return static_cast<Stored*>(data) + layer * 2 * value_offset();
  }
  // Their scales of a head, one a token.
  float* key_scales(std::int64_t layer, std::int64_t head) const {
    return scales + layer * 2 * value_scale_offset() + head * page_size;
  }

  // The key in a slot (page * page_size + offset).
  template <class Stored>
  Stored* key(std::int64_t layer, std::int64_t slot) const {
    return keys<Stored>(layer) + slot / page_size * page_stride + slot % page_size * token_stride();
  }
  // The scale of a head's key in a slot.
  float* key_scale(std::int64_t layer, std::int64_t head, std::int64_t slot) const {
    return key_scales(layer, head) + slot / page_size * scale_stride + slot % page_size;
  }

  // Stores keys and values [kv_heads, head_dim] in a slot as codes.
  template <class T>
  void store_codes(std::int64_t layer, std::int64_t slot, const T* key, const T* value) const;
};

}  // namespace unified
