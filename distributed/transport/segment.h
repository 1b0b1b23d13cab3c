// Segment: zeroed memory that the ranks of one host share. For ranks as threads it is plain memory. For
// processes it is a memfd, which the first member passes to the others over a Unix socket. A memfd has no
// name in a file system, so nothing can be left behind.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "gradus/distributed/base/store.h"
#include "gradus/distributed/health/futex.h"
#include "gradus/distributed/health/membership.h"

namespace gradus::dist::internal {

class Segment {
 public:
  virtual ~Segment() = default;
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 protected:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Makes segments. open is collective over `members`, which are ranks in the job on one host. Each member
// passes the same key, which is unique in the job, the same size, and its place among the members. open
// returns when this member has the memory.
// Errors: those of waits (gradus/distributed/health/waiting.h), naming the members that did not come.
class SegmentProvider {
 public:
  virtual ~SegmentProvider() = default;
  virtual std::shared_ptr<Segment> open(const std::string& key, const std::vector<int>& members, int index,
                                        size_t bytes, const Watch& watch) = 0;
};

// For ranks as threads. All of them share one provider.
std::shared_ptr<SegmentProvider> make_thread_segments();
// For processes. The store has the address of the socket. The peer must be a process of the same user.
std::shared_ptr<SegmentProvider> make_process_segments(std::shared_ptr<Store> store);

// Returns an id of this host; ranks with equal ids can share memory. It is made of boot, network namespace
// and user. The environment variable GRADUS_HOST_ID overrides it.
std::string host_id();

}  // namespace gradus::dist::internal
