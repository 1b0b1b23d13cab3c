// Segment: zeroed memory that the ranks of one host share. For ranks as threads it is plain memory; for
// processes a memfd that its first member passes to the others over a Unix socket: no name in a file system,
// so nothing can be left behind.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "gradus/distributed/base/futex.h"
#include "gradus/distributed/base/membership.h"
#include "gradus/distributed/base/store.h"

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

// Makes segments. Collective: each of the `members`, ranks in the job on one host, calls open with the
// same key (unique in the job) and size, and with its place among them; it returns when this member
// has the memory.
// Errors: those of waits (gradus/distributed/base/waiting.h), naming the members that did not come.
class SegmentProvider {
 public:
  virtual ~SegmentProvider() = default;
  virtual std::shared_ptr<Segment> open(const std::string& key, const std::vector<int>& members, int index,
                                        size_t bytes, const Watch& watch) = 0;
};

// Ranks as threads: one provider object shared by all of them.
std::shared_ptr<SegmentProvider> make_thread_segments();
// Processes: the store tells the address of the socket. The peer must be of the same user.
std::shared_ptr<SegmentProvider> make_process_segments(std::shared_ptr<Store> store);

// What tells apart hosts, in the sense of ranks that can share memory: boot, network namespace, user; or the
// value of the environment's GRADUS_HOST_ID.
std::string host_id();

}  // namespace gradus::dist::internal
