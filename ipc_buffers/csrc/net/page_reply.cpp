#include "page_reply.h"

#include <algorithm>
#include <utility>

namespace ipc::net {
namespace {

constexpr std::size_t kMostPieces = 512;  // of a frame; the system takes 1024 at once

}  // namespace

PageReply::PageReply(std::uint64_t transfer, std::vector<ReadPart>&& parts, const std::vector<ServedPool>& pools)
    : transfer_(transfer) {
  for (auto& [number, pages, epochs] : parts) {
    if (number >= pools.size()) {
      failure_ = "a pool of number " + std::to_string(number) + " was asked for";
      return;
    }
    const auto& [name, pool] = pools[number];
    if (pool == nullptr) {
      failure_ = "the source has no pool '" + name + "'";
      return;
    }
    sources_.push_back({name, pool, std::move(pages), std::move(epochs)});
    try {
      check_range(name, *pool, sources_.back().pages);
    } catch (const ArenaError& error) {
      failure_ = error.what();
      return;
    }
  }
}

std::size_t PageReply::append_frame(std::vector<iovec>& parts) {
  if (!std::exchange(begun_, true)) {
    for (auto& source : sources_) check(source, 0, source.pages.size());  // saves sending what is gone
  }
  const auto first = parts.size();
  std::size_t bytes = 0;
  while (failure_.empty() && source_ < sources_.size() && bytes < kMostFrame && parts.size() - first < kMostPieces) {
    const auto& [name, pool, pages, epochs, checked] = sources_[source_];
    if (page_ == pages.size()) {
      ++source_;
      page_ = 0;
      continue;
    }
    const auto page_bytes = pool->page_bytes();
    const auto data = pool->data()->host_bytes();
    const auto part = std::min(page_bytes - offset_, kMostFrame - bytes);
    auto* const at = data.data() + static_cast<std::size_t>(pages[page_]) * page_bytes + offset_;
    const bool follows =
        parts.size() > first && static_cast<std::byte*>(parts.back().iov_base) + parts.back().iov_len == at;
    if (follows) {
      parts.back().iov_len += part;
    } else {
      parts.push_back({at, part});
    }
    bytes += part;
    offset_ = (offset_ + part) % page_bytes;
    if (offset_ == 0) ++page_;
  }
  return bytes;
}

void PageReply::check(Source& source, std::size_t first, std::size_t last) {
  if (!failure_.empty()) return;
  const auto pages = std::span(source.pages).subspan(first, last - first);
  const auto epochs = std::span(source.epochs).subspan(first, last - first);
  if (auto text = find_taken_anew(source.name, *source.pool, pages, epochs)) failure_ = std::move(*text);
}

void PageReply::check_sent() {
  for (std::size_t i = 0; i <= source_ && i < sources_.size(); ++i) {
    auto& source = sources_[i];
    const auto sent = i < source_ ? source.pages.size() : page_;
    check(source, source.checked, sent);
    source.checked = sent;
  }
}

}  // namespace ipc::net
