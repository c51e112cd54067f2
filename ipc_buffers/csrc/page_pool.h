#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "arena.h"
#include "memory.h"

namespace ipc {

struct PageError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

struct Remembered {
  std::size_t pages, in_use;
};

// A page that several requests share, and its word when it was looked at.
struct SharedPage {
  std::int32_t page;
  std::uint64_t word;
};

struct PageOwner {
  std::uint32_t request;
  std::uint32_t instance;  // 12 bits, up to kMaxInstance

  bool operator==(const PageOwner&) const = default;
};

// Fixed-size pages of a memory, shared by many processes without a lock. What says who owns them is in an arena, in
// host memory always; their data is in that arena, on a GPU, or a memory with a name and a life of its own, over which
// another pool may be laid when this one is no longer used.
//
// One 64-bit word a page — request (32 bits), instance (12), references (20; all ones while the page is being taken);
// 0 is free — is the only truth.
// A process killed at any instruction leaves each page either free or tagged with its owner, for reclaim(), or shared
// with a reference too many. In a shared page's word the instance says that it is, and instead of a request there is a
// number that is new with each change. So who has counted its holders, while the word stayed the same, may correct it.
// The bitmap of pages that may be free only says where to look first: a bit wrongly set costs a failed
// compare-and-swap, a bit wrongly clear is made up for by the scan of all words before an allocation fails.
//
// A free page keeps what it held until it is taken anew, so a pool is its own cache: remember() says that what a page
// holds is worth keeping, recall() brings it back with a reference, if it is still there. Each taking of a page begins
// an epoch of it, which tells. Pages with nothing worth keeping are taken first, then those unused for longest.
//
// Orders: a page is freed with release and taken with acquire, so what its last holder did to the data happens
// before what the next one does. A bit is set (release) after its word was freed; a word is looked at again after
// its bit was cleared (acquire), so no page freed meanwhile loses its bit. A page is taken in three steps: its word
// says that it is being taken, its epoch begins, its word is its owner's (release). Nobody recalls it between the first
// and the last, and whoever finds it in use, or takes it up again, sees the epoch. Begun before the first step, an
// epoch could become that of another's contents, taken and freed in between.
//
// Who holds no page may read it all the same, as a seqlock is read: by a message that came with its epoch, and
// comparing epochs after reading. Both sides change the epoch's word by one atomic operation, the taker to begin an
// epoch (acquire), the reader to look at it (adding nothing, release). If the reader comes first, all that he has read
// happens before anything that the taker writes; if the taker does, the reader sees another epoch. A page that was
// freed and not taken keeps its epoch, and its contents.
class PagePool {
 public:
  static constexpr std::uint32_t kMaxInstance = (1U << 12) - 2;
  static constexpr std::uint32_t kMaxReferences = (1U << 20) - 2;

  static std::shared_ptr<PagePool> create(const std::string& name, std::int64_t num_pages, std::int64_t page_bytes,
                                          const Place& place);
  // Pages of a memory with a name of its own: all free, and holding what the memory holds.
  static std::shared_ptr<PagePool> over(const std::string& name, std::shared_ptr<Memory> memory,
                                        std::int64_t page_bytes);
  static std::shared_ptr<PagePool> attach(const std::string& name);

  const ArenaIdentity& identity() const { return control_->identity(); }
  std::size_t num_pages() const { return words_.size(); }
  std::size_t page_bytes() const { return page_bytes_; }
  // All pages, one after the other.
  const std::shared_ptr<Memory>& data() const { return data_; }

  // Fills `pages`, or takes none and returns false. Two callers that race for the last pages may both fail.
  bool allocate(std::span<std::int32_t> pages, PageOwner owner);
  // Adds a reference to each page, or to none and throws PageError.
  void retain(std::span<const std::int32_t> pages);
  // Drops a reference of each page and returns how many became free. A free page among them is a PageError:
  // nothing is released, unless the same page was given too often or is being released by others.
  std::size_t release(std::span<const std::int32_t> pages);
  // Frees the pages of a request, of an instance or of both, whatever their references; returns how many.
  std::size_t reclaim(std::optional<std::uint32_t> request, std::optional<std::uint32_t> instance);
  // Gives each page of a request as many references as it has places in `pages`, none of which frees it; those of
  // others and shared ones stay as they are. For a request whose holder has died. Returns how many became free.
  std::size_t settle(std::uint32_t request, std::span<const std::int32_t> pages);
  // The requests that own pages, ascending.
  std::vector<std::uint32_t> requests() const;
  // The pages that several requests share.
  std::vector<SharedPage> shared() const;
  // Gives a shared page so many references, none of which frees it; false, and nothing is done, if it has fewer, or if
  // anybody has added or dropped one since it had this word.
  bool correct(SharedPage seen, std::uint32_t references);

  // The epochs of pages that the caller holds: what they hold now can be recalled until they are taken anew.
  std::vector<std::uint64_t> remember(std::span<const std::int32_t> pages);
  // Adds a reference to the leading pages that are still in these epochs, free or not; returns how many. A free page
  // becomes its caller's; one in use is shared from now on, and belongs to request 0 of instance 0, for it is nobody's
  // to reclaim alone.
  std::size_t recall(std::span<const std::int32_t> pages, std::span<const std::uint64_t> epochs, PageOwner owner);
  // The epochs that pages are in, of whomever they are; marks nothing as worth keeping.
  std::vector<std::uint64_t> epochs(std::span<const std::int32_t> pages) const;
  // Which of the pages, by its place among them, is the first that is not in its epoch any more. What was read of the
  // others before is what they held in theirs.
  std::optional<std::size_t> first_taken_anew(std::span<const std::int32_t> pages,
                                              std::span<const std::uint64_t> epochs) const;
  // The epochs of all pages, as they lie in shared memory, for those who read them by other means.
  std::span<const std::byte> epoch_words() const;
  // How many leading pages recall() would find, and how many of these are in use. They count as used just now, the
  // first ones last, as in release(): a prefix outlives what follows it.
  Remembered renew(std::span<const std::int32_t> pages, std::span<const std::uint64_t> epochs);

  std::optional<PageOwner> owner(std::int64_t page) const;
  std::uint32_t references(std::int64_t page) const;
  std::size_t free_pages() const;
  std::size_t remembered_pages() const;  // free ones with something worth keeping
  // Throws PageError unless all pages are in range and in use.
  void check_in_use(std::span<const std::int32_t> pages) const;

 private:
  using Word = std::atomic<std::uint64_t>;
  struct Shape;
  struct Layout;

  PagePool(std::shared_ptr<Arena> control, std::shared_ptr<Memory> data);

  static std::shared_ptr<Arena> create_control(const std::string& name, const Shape& shape);
  static Layout& layout_of(const Arena& control);
  static std::shared_ptr<PagePool> open(std::shared_ptr<Arena> control);
  static std::shared_ptr<Memory> data_of(const std::shared_ptr<Arena>& control);

  Word& word(std::int64_t page) const;
  std::uint64_t shared_word(std::uint32_t references);
  std::uint64_t with_references(std::uint64_t word, std::uint32_t references);
  std::uint64_t epoch_after_reading(std::int32_t page) const;
  bool claim(std::size_t page, std::uint64_t owned);
  void give_back(std::size_t page, std::uint64_t owned);
  std::uint64_t drop_reference(std::int32_t page);
  void hint_free(std::size_t page);
  void forget_hints(std::size_t group, std::uint64_t bits);
  std::size_t take_hinted(std::span<std::int32_t> pages, std::uint64_t owned);
  std::size_t take_oldest(std::span<std::int32_t> pages, std::uint64_t owned);
  std::vector<std::int32_t> oldest_free(std::size_t least) const;
  bool recall_page(std::int32_t page, std::uint64_t epoch, std::uint64_t owned);

  std::shared_ptr<Arena> control_;
  std::shared_ptr<Memory> data_;
  Layout* layout_;
  std::size_t page_bytes_;
  std::span<Word> hints_;  // one bit a page
  std::span<Word> words_;
  std::span<Word> epochs_;
  std::span<Word> last_used_;  // on the pool's clock of uses; 0: nothing worth keeping
};

}  // namespace ipc
