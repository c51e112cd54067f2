#include "paged_buffer.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace ipc {

// The part of an index that belongs to one request; page i holds rows [ends[i], ends[i + 1]) of the batch.
struct PagedBuffer::RequestPages {
  std::span<const std::int32_t> pages;
  std::span<const std::int32_t> ends;  // one more than pages
};

namespace {

std::string range(std::int64_t first, std::int64_t last) {
  return "[" + std::to_string(first) + ", " + std::to_string(last) + ")";
}

std::invalid_argument bad_index(const std::string& text) { return std::invalid_argument("page index: " + text); }

void check_shapes(const PageIndexView& index) {
  if (index.indptr.empty() || index.page_indptr.size() != index.indptr.size() ||
      index.cu_page_len.size() != index.pages.size() + 1) {
    throw bad_index(
        "shapes must be pv_indptr [B+1], pv_page_indptr [B+1], pv_page_indices [P], "
        "pv_cu_page_len [P+1]; got [" +
        std::to_string(index.indptr.size()) + "], [" + std::to_string(index.page_indptr.size()) + "], [" +
        std::to_string(index.pages.size()) + "], [" + std::to_string(index.cu_page_len.size()) + "]");
  }
}

}  // namespace

PagedBuffer::PagedBuffer(std::shared_ptr<PagePool> pool, std::int64_t row_bytes)
    : pool_(std::move(pool)), data_(pool_->data()->host_bytes()) {
  if (row_bytes < 1 || static_cast<std::uint64_t>(row_bytes) > pool_->page_bytes()) {
    throw std::invalid_argument("rows of " + std::to_string(row_bytes) + " bytes do not fit into pages of " +
                                std::to_string(pool_->page_bytes()) + " bytes");
  }
  row_bytes_ = static_cast<std::size_t>(row_bytes);
  rows_per_page_ = pool_->page_bytes() / row_bytes_;
}

std::int64_t PagedBuffer::pages_for(std::int64_t rows) const {
  if (rows < 0) throw std::invalid_argument("cannot hold " + std::to_string(rows) + " rows");
  const auto step = static_cast<std::int64_t>(rows_per_page_);
  return rows / step + (rows % step != 0 ? 1 : 0);
}

PagedBuffer::RequestPages PagedBuffer::pages_of(const PageIndexView& index, std::int64_t request) const {
  const auto number = static_cast<std::size_t>(request);
  const auto name = "request " + std::to_string(request);
  const std::int64_t first = index.page_indptr[number], last = index.page_indptr[number + 1];
  if (first < 0 || first > last || last > static_cast<std::int64_t>(index.pages.size())) {
    throw bad_index(name + " has the page entries " + range(first, last) + " of " + std::to_string(index.pages.size()));
  }
  const auto offset = static_cast<std::size_t>(first), count = static_cast<std::size_t>(last - first);
  const RequestPages part{index.pages.subspan(offset, count), index.cu_page_len.subspan(offset, count + 1)};
  const std::int64_t first_row = index.indptr[number], last_row = index.indptr[number + 1];
  if (first_row < 0 || first_row != part.ends.front() || last_row != part.ends.back()) {
    throw bad_index(name + " has the rows " + range(first_row, last_row) + ", its pages hold " +
                    range(part.ends.front(), part.ends.back()));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const auto rows = std::int64_t{part.ends[i + 1]} - part.ends[i];
    if (rows < 1 || rows > static_cast<std::int64_t>(rows_per_page_)) {
      throw bad_index("page " + std::to_string(part.pages[i]) + " holds " + std::to_string(rows) +
                      " rows; allowed are 1 to " + std::to_string(rows_per_page_));
    }
  }
  return part;
}

PagedBuffer::RequestPages PagedBuffer::select(const PageIndexView& index, std::int64_t request, std::int64_t start,
                                              std::int64_t stop) const {
  check_shapes(index);
  const auto requests = static_cast<std::int64_t>(index.indptr.size()) - 1;
  if (request < 0 || request >= requests) {
    throw std::out_of_range("request " + std::to_string(request) + " is not in a batch of " + std::to_string(requests));
  }
  const auto part = pages_of(index, request);
  const auto rows = std::int64_t{part.ends.back()} - part.ends.front();
  if (start < 0 || start > stop || stop > rows) {
    throw std::out_of_range("rows " + range(start, stop) + " are not within the " + std::to_string(rows) +
                            " rows of request " + std::to_string(request));
  }
  return part;
}

PagedBuffer::Plan PagedBuffer::plan_write(const PageIndexView& index, std::size_t rows) const {
  check_shapes(index);
  if (index.indptr.front() != 0 || index.page_indptr.front() != 0 ||
      static_cast<std::size_t>(index.indptr.back()) != rows ||
      static_cast<std::size_t>(index.page_indptr.back()) != index.pages.size()) {
    throw bad_index("describes rows " + range(index.indptr.front(), index.indptr.back()) + " on page entries " +
                    range(index.page_indptr.front(), index.page_indptr.back()) + ", but there are " +
                    std::to_string(rows) + " rows and " + std::to_string(index.pages.size()) + " pages");
  }
  Plan plan;
  plan.reserve(index.pages.size());
  for (std::size_t request = 0; request + 1 < index.indptr.size(); ++request) {
    const auto [pages, ends] = pages_of(index, static_cast<std::int64_t>(request));
    pool_->check_in_use(pages);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      plan.push_back({static_cast<std::size_t>(pages[i]) * pool_->page_bytes(),
                      static_cast<std::size_t>(ends[i]) * row_bytes_,
                      static_cast<std::size_t>(ends[i + 1] - ends[i]) * row_bytes_});
    }
  }
  return plan;
}

PagedBuffer::Plan PagedBuffer::plan_read(const PageIndexView& index, std::int64_t request, std::int64_t start,
                                         std::int64_t stop) const {
  const auto [pages, ends] = select(index, request, start, stop);
  const auto first = start + ends.front(), last = stop + ends.front();
  Plan plan;
  auto row = first;
  auto i = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), row) - ends.begin()) - 1;
  for (; row < last; ++i) {
    const auto end = std::min<std::int64_t>(last, ends[i + 1]);
    pool_->check_in_use(pages.subspan(i, 1));  // pages read before may have been consumed
    plan.push_back({static_cast<std::size_t>(pages[i]) * pool_->page_bytes() +
                        static_cast<std::size_t>(row - ends[i]) * row_bytes_,
                    static_cast<std::size_t>(row - first) * row_bytes_,
                    static_cast<std::size_t>(end - row) * row_bytes_});
    row = end;
  }
  return plan;
}

void PagedBuffer::write(const Plan& plan, const std::byte* rows) {
  for (const auto& copy : plan) {
    std::memcpy(data_.data() + copy.page_offset, rows + copy.row_offset, copy.bytes);
  }
}

void PagedBuffer::read(const Plan& plan, std::byte* rows) const {
  for (const auto& copy : plan) {
    std::memcpy(rows + copy.row_offset, data_.data() + copy.page_offset, copy.bytes);
  }
}

std::size_t PagedBuffer::consume(const PageIndexView& index, std::int64_t request, std::int64_t start,
                                 std::int64_t stop) {
  const auto part = select(index, request, start, stop);
  const auto pages_ending_by = [&](std::int64_t row) {
    const auto page_ends = part.ends.subspan(1);
    const auto after = std::upper_bound(page_ends.begin(), page_ends.end(), row + part.ends.front());
    return static_cast<std::size_t>(after - page_ends.begin());
  };
  const auto first = pages_ending_by(start);
  return pool_->release(part.pages.subspan(first, pages_ending_by(stop) - first));
}

}  // namespace ipc
