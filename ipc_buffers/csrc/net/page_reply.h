#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "protocol.h"
#include "transfers.h"

namespace ipc::net {

// What a server answers to one request: its pages in frames, then an end or what has failed.
class PageReply {
 public:
  PageReply(std::uint64_t transfer, std::vector<ReadPart>&& parts, const std::vector<ServedPool>& pools);

  std::uint64_t transfer() const { return transfer_; }

  // Puts parts of pages behind the others, up to the size of a frame, and returns how many bytes they have; 0 when all
  // pages are in frames, or it has failed.
  std::size_t append_frame(std::vector<iovec>& parts);
  // Compares the epochs of all pages that are sent to their end; to be called when a frame has been read.
  void check_sent();
  // What has failed; empty if nothing has.
  const std::string& failure() const { return failure_; }

 private:
  struct Source {
    std::string name;
    std::shared_ptr<PagePool> pool;
    std::vector<std::int32_t> pages;
    std::vector<std::uint64_t> epochs;
    std::size_t checked = 0;  // pages whose epochs were compared after reading
  };

  void check(Source& source, std::size_t first, std::size_t last);

  std::uint64_t transfer_;
  std::vector<Source> sources_;
  std::size_t source_ = 0, page_ = 0, offset_ = 0;  // what comes next
  bool begun_ = false;
  std::string failure_;
};

}  // namespace ipc::net
