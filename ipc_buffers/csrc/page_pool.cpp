#include "page_pool.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

namespace ipc {

// What never changes. Pages are what `own` describes, unless a memory is named.
struct PagePool::Shape {
  std::uint64_t num_pages;
  std::uint64_t page_bytes;
  MemoryDescriptor own;
  std::array<char, Arena::kMaxName + 1> memory;
  std::uint64_t memory_inode;
};

struct PagePool::Layout {
  Shape shape;
  alignas(64) std::atomic<std::uint64_t> next_group;  // where the next search starts
  alignas(64) std::atomic<std::uint64_t> uses;        // of remembered pages so far
};

namespace {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

constexpr std::size_t kGroup = 64;  // pages that share a word of hints
constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kForgottenShare = 64;  // of a pool, ahead of need, so that few searches go through all of it
constexpr PageOwner kShared{0, 0};
constexpr std::uint32_t kSharedInstance = PagePool::kMaxInstance + 1;  // in place of an owner's
constexpr std::uint32_t kInstanceBits = (1U << 12) - 1;
constexpr std::uint32_t kBeingTaken = PagePool::kMaxReferences + 1;  // in place of references
constexpr unsigned kInstanceShift = 20;
constexpr unsigned kRequestShift = 32;
constexpr std::int64_t kMaxPages = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxPageBytes = std::int64_t{1} << 32;

std::uint64_t pack(PageOwner owner, std::uint32_t references) {
  return std::uint64_t{owner.request} << kRequestShift | std::uint64_t{owner.instance} << kInstanceShift | references;
}

std::uint32_t instance_of(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> kInstanceShift) & kInstanceBits;
}

bool is_shared(std::uint64_t word) { return instance_of(word) == kSharedInstance; }

PageOwner owner_of(std::uint64_t word) {
  if (is_shared(word)) return kShared;
  return {static_cast<std::uint32_t>(word >> kRequestShift), instance_of(word)};
}

std::uint32_t references_of(std::uint64_t word) { return static_cast<std::uint32_t>(word) & kBeingTaken; }

std::size_t round_up(std::size_t value, std::size_t step) { return (value + step - 1) / step * step; }

std::size_t groups_of(std::size_t pages) { return (pages + kGroup - 1) / kGroup; }

// Offsets in the arena's payload: layout | hints | words | epochs | last uses | data, if it is there.
struct Offsets {
  std::size_t hints, words, epochs, last_used, data;

  Offsets(std::size_t layout_bytes, std::size_t num_pages)
      : hints(round_up(layout_bytes, kCacheLine)),
        words(round_up(hints + groups_of(num_pages) * sizeof(std::uint64_t), kCacheLine)),
        epochs(round_up(words + num_pages * sizeof(std::uint64_t), kCacheLine)),
        last_used(round_up(epochs + num_pages * sizeof(std::uint64_t), kCacheLine)),
        data(round_up(last_used + num_pages * sizeof(std::uint64_t), Arena::kAlignment)) {}
};

void check_shape(const std::string& name, std::int64_t num_pages, std::int64_t page_bytes) {
  if (num_pages < 1 || num_pages > kMaxPages || page_bytes < 1 || page_bytes > kMaxPageBytes) {
    throw std::invalid_argument("page pool '" + name + "': " + std::to_string(num_pages) + " pages of " +
                                std::to_string(page_bytes) + " bytes; allowed are 1 to " + std::to_string(kMaxPages) +
                                " pages of 1 to " + std::to_string(kMaxPageBytes) + " bytes");
  }
}

ArenaError error_about(const std::string& pool, const std::string& text) {
  return ArenaError("page pool '" + pool + "': " + text);
}

PageError page_is_free(std::int64_t page) {
  return PageError("page " + std::to_string(page) + " is free: it was released too often or never allocated");
}

}  // namespace

std::shared_ptr<PagePool> PagePool::create(const std::string& name, std::int64_t num_pages, std::int64_t page_bytes,
                                           const Place& place) {
  check_shape(name, num_pages, page_bytes);
  const auto pages = static_cast<std::size_t>(num_pages);
  const auto bytes = static_cast<std::size_t>(page_bytes);
  const Allocation allocation(name, place, pages * bytes);
  return open(create_control(name, {pages, bytes, allocation.descriptor(Offsets(sizeof(Layout), pages).data), {}, 0}));
}

std::shared_ptr<PagePool> PagePool::over(const std::string& name, std::shared_ptr<Memory> memory,
                                         std::int64_t page_bytes) {
  const auto size = static_cast<std::int64_t>(memory->size());
  const auto num_pages = page_bytes < 1 ? 0 : size / page_bytes;
  check_shape(name, num_pages, page_bytes);
  const auto& [memory_name, inode] = memory->identity();
  if (size % page_bytes != 0) {
    throw std::invalid_argument("page pool '" + name + "': the " + std::to_string(size) + " bytes of memory '" +
                                memory_name + "' are no whole number of pages of " + std::to_string(page_bytes));
  }
  if (!memory->is_named()) {
    throw std::invalid_argument("page pool '" + name + "': memory '" + memory_name +
                                "' belongs to a pool already; take one of Memory.create()");
  }
  if (!memory->is_writable()) {
    throw std::invalid_argument("page pool '" + name + "': memory '" + memory_name +
                                "' shows bytes of a file, which nobody can write to");
  }
  Shape shape{static_cast<std::uint64_t>(num_pages), static_cast<std::uint64_t>(page_bytes), {}, {}, inode};
  std::copy(memory_name.begin(), memory_name.end(), shape.memory.begin());
  return std::shared_ptr<PagePool>(new PagePool(create_control(name, shape), std::move(memory)));
}

std::shared_ptr<PagePool> PagePool::attach(const std::string& name) {
  return open(Arena::attach(name, ArenaKind::page_pool));
}

std::shared_ptr<Arena> PagePool::create_control(const std::string& name, const Shape& shape) {
  const auto pages = static_cast<std::size_t>(shape.num_pages);
  const Offsets offsets(sizeof(Layout), pages);
  const auto initialise = [&](std::span<std::byte> payload) {
    reinterpret_cast<Layout*>(payload.data())->shape = shape;
    const std::span hints(reinterpret_cast<Word*>(payload.data() + offsets.hints), groups_of(pages));
    for (auto& bits : hints) bits.store(~std::uint64_t{0}, std::memory_order_relaxed);
    if (pages % kGroup != 0) hints.back().store((std::uint64_t{1} << pages % kGroup) - 1);
  };
  return Arena::create(name, ArenaKind::page_pool, offsets.data + shape.own.bytes_in_arena(), initialise);
}

PagePool::Layout& PagePool::layout_of(const Arena& control) {
  return *reinterpret_cast<Layout*>(control.payload().data());
}

std::shared_ptr<PagePool> PagePool::open(std::shared_ptr<Arena> control) {
  auto data = data_of(control);
  return std::shared_ptr<PagePool>(new PagePool(std::move(control), std::move(data)));
}

std::shared_ptr<Memory> PagePool::data_of(const std::shared_ptr<Arena>& control) {
  const auto& shape = layout_of(*control).shape;
  const std::string name(shape.memory.begin(), std::find(shape.memory.begin(), shape.memory.end(), '\0'));
  if (name.empty()) return std::make_shared<Memory>(control, shape.own);
  const auto& pool = control->identity().name;
  try {
    auto memory = Memory::attach(name);
    if (memory->identity().inode == shape.memory_inode) return memory;
  } catch (const ArenaError& error) {
    throw error_about(pool, std::string("its memory cannot be attached to: ") + error.what());
  }
  throw error_about(pool, "its memory, '" + name + "', is gone; what has that name now is another one");
}

PagePool::PagePool(std::shared_ptr<Arena> control, std::shared_ptr<Memory> data)
    : control_(std::move(control)),
      data_(std::move(data)),
      layout_(&layout_of(*control_)),
      page_bytes_(layout_->shape.page_bytes) {
  const auto payload = control_->payload();
  const auto num_pages = static_cast<std::size_t>(layout_->shape.num_pages);
  const Offsets offsets(sizeof(Layout), num_pages);
  if (data_->size() != num_pages * page_bytes_ ||
      offsets.data + layout_->shape.own.bytes_in_arena() != payload.size()) {
    throw error_about(identity().name, "is damaged: its size does not match its arena");
  }
  hints_ = {reinterpret_cast<Word*>(payload.data() + offsets.hints), groups_of(num_pages)};
  words_ = {reinterpret_cast<Word*>(payload.data() + offsets.words), num_pages};
  epochs_ = {reinterpret_cast<Word*>(payload.data() + offsets.epochs), num_pages};
  last_used_ = {reinterpret_cast<Word*>(payload.data() + offsets.last_used), num_pages};
}

PagePool::Word& PagePool::word(std::int64_t page) const {
  if (page < 0 || page >= static_cast<std::int64_t>(words_.size())) {
    throw PageError("page " + std::to_string(page) + " is not in a pool of " + std::to_string(words_.size()) +
                    " pages");
  }
  return words_[static_cast<std::size_t>(page)];
}

std::uint64_t PagePool::shared_word(std::uint32_t references) {
  const auto change = layout_->uses.fetch_add(1, std::memory_order_relaxed) + 1;
  return pack({static_cast<std::uint32_t>(change), kSharedInstance}, references);
}

std::uint64_t PagePool::with_references(std::uint64_t word, std::uint32_t references) {
  if (references == 0) return 0;
  return is_shared(word) ? shared_word(references) : pack(owner_of(word), references);
}

bool PagePool::claim(std::size_t page, std::uint64_t owned) {
  auto& word = words_[page];
  auto being_taken = owned | kBeingTaken;
  std::uint64_t free = 0;
  if (word.load(std::memory_order_relaxed) != 0 ||
      !word.compare_exchange_strong(free, being_taken, std::memory_order_acq_rel, std::memory_order_relaxed)) {
    return false;
  }
  epochs_[page].fetch_add(1, std::memory_order_acquire);
  last_used_[page].store(0, std::memory_order_relaxed);
  // Fails if the page was reclaimed, and perhaps taken by another, in the meantime.
  return word.compare_exchange_strong(being_taken, owned, std::memory_order_acq_rel, std::memory_order_relaxed);
}

// Unlike release(), harmless if the page was reclaimed, and perhaps taken by another, in the meantime.
void PagePool::give_back(std::size_t page, std::uint64_t owned) {
  if (words_[page].compare_exchange_strong(owned, 0, std::memory_order_acq_rel, std::memory_order_relaxed)) {
    hint_free(page);
  }
}

void PagePool::hint_free(std::size_t page) {
  hints_[page / kGroup].fetch_or(std::uint64_t{1} << page % kGroup, std::memory_order_release);
}

void PagePool::forget_hints(std::size_t group, std::uint64_t bits) {
  hints_[group].fetch_and(~bits, std::memory_order_acq_rel);
  for (; bits != 0; bits &= bits - 1) {
    const auto page = group * kGroup + static_cast<std::size_t>(std::countr_zero(bits));
    const bool worthless = last_used_[page].load(std::memory_order_relaxed) == 0;
    if (worthless && words_[page].load(std::memory_order_relaxed) == 0) hint_free(page);
  }
}

std::size_t PagePool::take_hinted(std::span<std::int32_t> pages, std::uint64_t owned) {
  const auto groups = hints_.size();
  auto group = static_cast<std::size_t>(layout_->next_group.load(std::memory_order_relaxed)) % groups;
  std::size_t taken = 0;
  for (std::size_t visited = 0; visited < groups && taken < pages.size(); ++visited) {
    std::uint64_t tried = 0;
    auto bits = hints_[group].load(std::memory_order_relaxed);
    for (; bits != 0 && taken < pages.size(); bits &= bits - 1) {
      const auto page = group * kGroup + static_cast<std::size_t>(std::countr_zero(bits));
      tried |= bits & -bits;
      if (last_used_[page].load(std::memory_order_relaxed) != 0) continue;
      if (claim(page, owned)) pages[taken++] = static_cast<std::int32_t>(page);
    }
    if (tried != 0) forget_hints(group, tried);
    if (bits == 0 && ++group == groups) group = 0;
  }
  layout_->next_group.store(group, std::memory_order_relaxed);
  return taken;
}

// The free pages unused for longest, worthless ones first: `least` of them and some more; none if there are fewer.
std::vector<std::int32_t> PagePool::oldest_free(std::size_t least) const {
  std::vector<std::pair<std::uint64_t, std::int32_t>> free;
  for (std::size_t page = 0; page < words_.size(); ++page) {
    if (words_[page].load(std::memory_order_relaxed) != 0) continue;
    free.emplace_back(last_used_[page].load(std::memory_order_relaxed), static_cast<std::int32_t>(page));
  }
  if (free.size() < least) return {};
  const auto wanted = std::min(free.size(), least + words_.size() / kForgottenShare);
  std::partial_sort(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(wanted), free.end());
  std::vector<std::int32_t> oldest(wanted);
  std::transform(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(wanted), oldest.begin(),
                 [](const auto& entry) { return entry.second; });
  return oldest;
}

std::size_t PagePool::take_oldest(std::span<std::int32_t> pages, std::uint64_t owned) {
  std::size_t taken = 0;
  for (const auto number : oldest_free(pages.size())) {
    const auto page = static_cast<std::size_t>(number);
    if (taken < pages.size()) {
      if (claim(page, owned)) pages[taken++] = number;
    } else {
      last_used_[page].store(0, std::memory_order_relaxed);
      hint_free(page);
    }
  }
  return taken;
}

bool PagePool::allocate(std::span<std::int32_t> pages, PageOwner owner) {
  if (owner.instance > kMaxInstance) {
    throw std::invalid_argument("instance " + std::to_string(owner.instance) + " is above " +
                                std::to_string(kMaxInstance));
  }
  const auto owned = pack(owner, 1);
  auto taken = take_hinted(pages, owned);
  if (taken < pages.size()) taken += take_oldest(pages.subspan(taken), owned);
  if (taken == pages.size()) return true;
  for (const auto page : pages.first(taken)) give_back(static_cast<std::size_t>(page), owned);
  return false;
}

void PagePool::check_in_use(std::span<const std::int32_t> pages) const {
  for (const auto page : pages) {
    if (word(page).load(std::memory_order_relaxed) == 0) throw page_is_free(page);
  }
}

void PagePool::retain(std::span<const std::int32_t> pages) {
  check_in_use(pages);
  for (std::size_t done = 0; done < pages.size(); ++done) {
    auto& word = words_[static_cast<std::size_t>(pages[done])];
    auto seen = word.load(std::memory_order_relaxed);
    while (
        seen != 0 && references_of(seen) < kMaxReferences &&
        !word.compare_exchange_weak(seen, with_references(seen, references_of(seen) + 1), std::memory_order_relaxed)) {
    }
    if (seen != 0 && references_of(seen) < kMaxReferences) continue;
    release(pages.first(done));
    if (seen == 0) throw page_is_free(pages[done]);
    throw PageError("page " + std::to_string(pages[done]) + " has its " + std::to_string(kMaxReferences) +
                    " references already");
  }
}

std::uint64_t PagePool::drop_reference(std::int32_t page) {
  auto& word = words_[static_cast<std::size_t>(page)];
  auto seen = word.load(std::memory_order_relaxed);
  std::uint64_t left = 0;
  do {
    if (seen == 0) throw page_is_free(page);
    left = with_references(seen, references_of(seen) - 1);
  } while (!word.compare_exchange_weak(seen, left, std::memory_order_acq_rel, std::memory_order_relaxed));
  return left;
}

std::size_t PagePool::release(std::span<const std::int32_t> pages) {
  check_in_use(pages);
  auto use = layout_->uses.fetch_add(pages.size(), std::memory_order_relaxed) + pages.size();
  std::size_t freed = 0;
  for (const auto page : pages) {
    auto& last_used = last_used_[static_cast<std::size_t>(page)];
    const bool worthless = last_used.load(std::memory_order_relaxed) == 0;
    if (!worthless) last_used.store(use, std::memory_order_relaxed);
    --use;
    if (drop_reference(page) != 0) continue;
    if (worthless) hint_free(static_cast<std::size_t>(page));
    ++freed;
  }
  return freed;
}

std::vector<std::uint64_t> PagePool::remember(std::span<const std::int32_t> pages) {
  check_in_use(pages);
  std::vector<std::uint64_t> epochs(pages.size());
  std::transform(pages.begin(), pages.end(), epochs.begin(), [&](std::int32_t page) {
    last_used_[static_cast<std::size_t>(page)].store(layout_->uses.fetch_add(1, std::memory_order_relaxed) + 1,
                                                     std::memory_order_relaxed);
    return epochs_[static_cast<std::size_t>(page)].load(std::memory_order_relaxed);
  });
  return epochs;
}

std::uint64_t PagePool::epoch_after_reading(std::int32_t page) const {
  word(page);  // throws for one that there is not
  return epochs_[static_cast<std::size_t>(page)].fetch_add(0, std::memory_order_acq_rel);
}

std::vector<std::uint64_t> PagePool::epochs(std::span<const std::int32_t> pages) const {
  std::vector<std::uint64_t> epochs(pages.size());
  std::transform(pages.begin(), pages.end(), epochs.begin(),
                 [&](std::int32_t page) { return epoch_after_reading(page); });
  return epochs;
}

std::optional<std::size_t> PagePool::first_taken_anew(std::span<const std::int32_t> pages,
                                                      std::span<const std::uint64_t> epochs) const {
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (epoch_after_reading(pages[i]) != epochs[i]) return i;
  }
  return std::nullopt;
}

std::span<const std::byte> PagePool::epoch_words() const {
  return {reinterpret_cast<const std::byte*>(epochs_.data()), epochs_.size_bytes()};
}

bool PagePool::recall_page(std::int32_t page, std::uint64_t epoch, std::uint64_t owned) {
  auto& word = this->word(page);
  const auto& begun = epochs_[static_cast<std::size_t>(page)];
  auto seen = word.load(std::memory_order_acquire);
  std::uint64_t held = 0;
  do {
    if (begun.load(std::memory_order_relaxed) != epoch || references_of(seen) >= kMaxReferences) return false;
    held = seen == 0 ? owned : shared_word(references_of(seen) + 1);
  } while (!word.compare_exchange_weak(seen, held, std::memory_order_acq_rel, std::memory_order_acquire));
  if (begun.load(std::memory_order_relaxed) == epoch) return true;
  release(std::span(&page, 1));  // it was taken, and perhaps freed again, in between
  return false;
}

std::size_t PagePool::recall(std::span<const std::int32_t> pages, std::span<const std::uint64_t> epochs,
                             PageOwner owner) {
  const auto owned = pack(owner, 1);
  for (const auto page : pages) word(page);  // throws for one that there is not, before any is taken
  std::size_t recalled = 0;
  while (recalled < pages.size() && recall_page(pages[recalled], epochs[recalled], owned)) ++recalled;
  return recalled;
}

Remembered PagePool::renew(std::span<const std::int32_t> pages, std::span<const std::uint64_t> epochs) {
  Remembered found{0, 0};
  for (; found.pages < pages.size(); ++found.pages) {
    const auto seen = word(pages[found.pages]).load(std::memory_order_acquire);
    const auto& begun = epochs_[static_cast<std::size_t>(pages[found.pages])];
    if (begun.load(std::memory_order_relaxed) != epochs[found.pages]) break;
    if (seen != 0) ++found.in_use;
  }
  auto use = layout_->uses.fetch_add(found.pages, std::memory_order_relaxed) + found.pages;
  for (const auto page : pages.first(found.pages)) {
    last_used_[static_cast<std::size_t>(page)].store(use--, std::memory_order_relaxed);
  }
  return found;
}

std::size_t PagePool::reclaim(std::optional<std::uint32_t> request, std::optional<std::uint32_t> instance) {
  const auto matches = [&](std::uint64_t word) {
    const auto owner = owner_of(word);
    return word != 0 && owner.request == request.value_or(owner.request) &&
           owner.instance == instance.value_or(owner.instance);
  };
  std::size_t freed = 0;
  for (std::size_t page = 0; page < words_.size(); ++page) {
    auto seen = words_[page].load(std::memory_order_relaxed);
    while (matches(seen)) {
      if (!words_[page].compare_exchange_weak(seen, 0, std::memory_order_acq_rel, std::memory_order_relaxed)) {
        continue;
      }
      hint_free(page);
      ++freed;
      break;
    }
  }
  return freed;
}

std::size_t PagePool::settle(std::uint32_t request, std::span<const std::int32_t> pages) {
  std::vector<std::uint32_t> held(words_.size());
  for (const auto page : pages) {
    word(page);  // throws for one that there is not
    ++held[static_cast<std::size_t>(page)];
  }
  std::size_t freed = 0;
  for (std::size_t page = 0; page < words_.size(); ++page) {
    auto seen = words_[page].load(std::memory_order_relaxed);
    while (seen != 0 && !is_shared(seen) && owner_of(seen).request == request && references_of(seen) != held[page]) {
      const auto settled = with_references(seen, held[page]);
      if (!words_[page].compare_exchange_weak(seen, settled, std::memory_order_acq_rel, std::memory_order_relaxed)) {
        continue;
      }
      if (settled == 0) {
        hint_free(page);
        ++freed;
      }
      break;
    }
  }
  return freed;
}

std::vector<std::uint32_t> PagePool::requests() const {
  std::vector<std::uint32_t> found;
  for (const auto& word : words_) {
    const auto seen = word.load(std::memory_order_relaxed);
    if (seen != 0 && !is_shared(seen)) found.push_back(owner_of(seen).request);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::vector<SharedPage> PagePool::shared() const {
  std::vector<SharedPage> found;
  for (std::size_t page = 0; page < words_.size(); ++page) {
    const auto seen = words_[page].load(std::memory_order_acquire);
    if (is_shared(seen)) found.push_back({static_cast<std::int32_t>(page), seen});
  }
  return found;
}

bool PagePool::correct(SharedPage seen, std::uint32_t references) {
  auto& word = this->word(seen.page);
  if (!is_shared(seen.word) || references > references_of(seen.word)) return false;
  const auto held = with_references(seen.word, references);
  return word.compare_exchange_strong(seen.word, held, std::memory_order_acq_rel, std::memory_order_relaxed);
}

std::size_t PagePool::remembered_pages() const {
  std::size_t remembered = 0;
  for (std::size_t page = 0; page < words_.size(); ++page) {
    const bool free = words_[page].load(std::memory_order_relaxed) == 0;
    if (free && last_used_[page].load(std::memory_order_relaxed) != 0) ++remembered;
  }
  return remembered;
}

std::optional<PageOwner> PagePool::owner(std::int64_t page) const {
  const auto seen = word(page).load(std::memory_order_relaxed);
  return seen == 0 ? std::nullopt : std::optional(owner_of(seen));
}

std::uint32_t PagePool::references(std::int64_t page) const {
  return references_of(word(page).load(std::memory_order_relaxed));
}

std::size_t PagePool::free_pages() const {
  return static_cast<std::size_t>(std::count_if(
      words_.begin(), words_.end(), [](const Word& word) { return word.load(std::memory_order_relaxed) == 0; }));
}

}  // namespace ipc
