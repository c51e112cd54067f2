#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "page_pool.h"

namespace ipc {

// The four index arrays of UnifiedServe §4.2 over B requests and P pages, as half-open ranges.
struct PageIndexView {
  std::span<const std::int32_t> indptr;       // [B+1] rows of each request in the flattened batch
  std::span<const std::int32_t> page_indptr;  // [B+1] entries of each request in `pages`
  std::span<const std::int32_t> pages;        // [P]   page numbers
  std::span<const std::int32_t> cu_page_len;  // [P+1] rows before each page in the flattened batch
};

// Rows of a fixed size over a page pool in host memory. Copies are planned, with every bound checked, before memory is
// touched: a plan stays valid when the index arrays it came from change or go away.
class PagedBuffer {
 public:
  struct Copy {
    std::size_t page_offset;  // in the pool's data
    std::size_t row_offset;   // in the caller's rows
    std::size_t bytes;
  };
  using Plan = std::vector<Copy>;

  // Throws ArenaError if the pages are on a GPU.
  PagedBuffer(std::shared_ptr<PagePool> pool, std::int64_t row_bytes);

  std::size_t rows_per_page() const { return rows_per_page_; }
  std::size_t row_bytes() const { return row_bytes_; }
  std::int64_t pages_for(std::int64_t rows) const;

  Plan plan_write(const PageIndexView& index, std::size_t rows) const;
  // Rows [start, stop) of one request, counted from its first row.
  Plan plan_read(const PageIndexView& index, std::int64_t request, std::int64_t start, std::int64_t stop) const;

  void write(const Plan& plan, const std::byte* rows);
  void read(const Plan& plan, std::byte* rows) const;

  // Releases the pages whose last row lies in [start, stop), so that consecutive calls release each page once.
  std::size_t consume(const PageIndexView& index, std::int64_t request, std::int64_t start, std::int64_t stop);

 private:
  struct RequestPages;

  RequestPages pages_of(const PageIndexView& index, std::int64_t request) const;
  RequestPages select(const PageIndexView& index, std::int64_t request, std::int64_t start, std::int64_t stop) const;

  std::shared_ptr<PagePool> pool_;
  std::span<std::byte> data_;
  std::size_t row_bytes_;
  std::size_t rows_per_page_;
};

}  // namespace ipc
