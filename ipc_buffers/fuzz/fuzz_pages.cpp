// Operations on a pool with random page numbers, beside a model of it; index arrays of random numbers for its rows.
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>

#include "choices.h"
#include "page_pool.h"
#include "paged_buffer.h"

namespace {

using ipc::fuzz::Choices;
using ipc::fuzz::require;
using Pages = std::vector<std::int32_t>;

class Run {
 public:
  Run(Choices choices, const std::string& name)
      : choices_(choices),
        pool_(ipc::PagePool::create(name, choices_.between(1, 150), choices_.between(1, 100), ipc::Place{})),
        buffer_(pool_, choices_.between(1, static_cast<std::int64_t>(pool_->page_bytes()))),
        references_(pool_->num_pages()) {}
  ~Run() { pool_->identity().unlink(); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void go() {
    while (choices_.left()) {
      step();
      check();
    }
  }

 private:
  void step() {
    switch (choices_.byte() % 9) {
      case 0:
      case 1:
        return allocate();
      case 2:
        return change([&](const Pages& pages) { pool_->retain(pages); }, 1);
      case 3:
        return change([&](const Pages& pages) { pool_->release(pages); }, -1);
      case 4:
        return reclaim();
      case 5:
        return remember();
      case 6:
        return recall();
      case 7:
        return write_and_read();
      default:
        return look();
    }
  }

  void allocate() {
    Pages pages(static_cast<std::size_t>(choices_.between(0, 20)));
    const auto free = pool_->free_pages();
    const bool taken = pool_->allocate(pages, {static_cast<std::uint32_t>(choices_.byte() % 4), choices_.byte()});
    require(taken == (pages.size() <= free));
    for (const auto page : taken ? pages : Pages{}) require(references_.at(static_cast<std::size_t>(page))++ == 0);
  }

  // Retains or releases: all pages or none of them, unless one page is given too often.
  template <typename Operation>
  void change(const Operation& operation, int by) {
    const auto pages = choices_.indices(6, pool_->num_pages());
    try {
      operation(pages);
      for (const auto page : pages) references_.at(static_cast<std::size_t>(page)) += by;
    } catch (const ipc::PageError&) {
      if (given_twice(pages)) follow();
    }
  }

  static bool given_twice(Pages pages) {
    std::sort(pages.begin(), pages.end());
    return std::adjacent_find(pages.begin(), pages.end()) != pages.end();
  }

  void reclaim() {
    pool_->reclaim(choices_.byte() % 4, std::nullopt);
    for (std::size_t page = 0; page < references_.size(); ++page) {
      const bool gone = !pool_->owner(static_cast<std::int64_t>(page));
      if (gone) references_[page] = 0;
    }
  }

  void remember() {
    const auto pages = choices_.indices(6, pool_->num_pages());
    try {
      const auto epochs = pool_->remember(pages);
      for (std::size_t i = 0; i < pages.size(); ++i) epochs_[pages[i]] = epochs[i];
    } catch (const ipc::PageError&) {
    }
  }

  void recall() {
    const auto pages = choices_.indices(6, pool_->num_pages());
    std::vector<std::uint64_t> epochs;
    for (const auto page : pages) epochs.push_back(epochs_.count(page) != 0 ? epochs_[page] : choices_.number());
    try {
      const auto found = pool_->renew(pages, epochs);
      const auto recalled = pool_->recall(pages, epochs, {7, 1});
      require(recalled == found.pages);
      for (const auto page : std::span(pages).first(recalled)) ++references_.at(static_cast<std::size_t>(page));
    } catch (const ipc::PageError&) {
      follow();
    }
  }

  // What a plan copies lies within the pool and within the rows, whatever the index says.
  void write_and_read() {
    const auto pages = choices_.indices(5, pool_->num_pages());
    auto ends = choices_.indices(pages.size() + 1, buffer_.rows_per_page() * pages.size());
    if (choices_.byte() < 200) ends = regular(pages.size());
    const Pages page_indptr{0, static_cast<std::int32_t>(pages.size())}, indptr{0, ends.empty() ? 0 : ends.back()};
    const ipc::PageIndexView index{indptr, page_indptr, pages, ends};
    const auto rows = static_cast<std::size_t>(std::clamp(indptr[1], 0, 1000));
    std::vector<std::byte> data(rows * buffer_.row_bytes(), std::byte{1});
    try {
      buffer_.write(checked(buffer_.plan_write(index, rows), data.size()), data.data());
      const auto start = choices_.between(-1, static_cast<std::int64_t>(rows) + 1);
      const auto stop = choices_.between(-1, static_cast<std::int64_t>(rows) + 1);
      buffer_.read(checked(buffer_.plan_read(index, 0, start, stop), data.size()), data.data());
      buffer_.consume(index, choices_.between(-1, 1), start, stop);
    } catch (const std::logic_error&) {
    }
    follow();
  }

  Pages regular(std::size_t pages) {
    Pages ends{0};
    for (std::size_t page = 0; page < pages; ++page) {
      ends.push_back(ends.back() + static_cast<std::int32_t>(
                                       choices_.between(1, static_cast<std::int64_t>(buffer_.rows_per_page()))));
    }
    return ends;
  }

  const ipc::PagedBuffer::Plan& checked(ipc::PagedBuffer::Plan plan, std::size_t bytes) {
    plan_ = std::move(plan);
    for (const auto& copy : plan_) {
      require(copy.page_offset + copy.bytes <= pool_->data()->size());
      require(copy.row_offset + copy.bytes <= bytes);
    }
    return plan_;
  }

  void look() {
    const auto page = choices_.index(pool_->num_pages());
    try {
      require(pool_->owner(page).has_value() == (pool_->references(page) != 0));
      require(page >= 0 && static_cast<std::size_t>(page) < pool_->num_pages());
    } catch (const ipc::PageError&) {
      require(page < 0 || static_cast<std::size_t>(page) >= pool_->num_pages());
    }
  }

  void follow() {
    for (std::size_t page = 0; page < references_.size(); ++page) {
      references_[page] = pool_->references(static_cast<std::int64_t>(page));
    }
  }

  void check() const {
    std::size_t free = 0;
    for (std::size_t page = 0; page < references_.size(); ++page) {
      require(pool_->references(static_cast<std::int64_t>(page)) == references_[page]);
      free += references_[page] == 0;
    }
    require(free == pool_->free_pages());
    require(pool_->remembered_pages() <= free);
  }

  Choices choices_;
  std::shared_ptr<ipc::PagePool> pool_;
  ipc::PagedBuffer buffer_;
  std::vector<std::uint32_t> references_;
  std::map<std::int32_t, std::uint64_t> epochs_;
  ipc::PagedBuffer::Plan plan_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Run(Choices({data, size}), "fuzz-pages-" + std::to_string(getpid())).go();
  return 0;
}
