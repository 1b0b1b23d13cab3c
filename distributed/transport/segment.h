// Segment: zero-initialized memory that the ranks of one host share, as threads of one process or as processes.
// Processes share a memfd. A memfd has no name in a file system, so no file remains after a crash.
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
  // Maps the first `bytes` bytes of the open file fd. The caller still owns fd, and may close fd at once.
  // Without a file, maps new zeroed memory, shared with forked children. The destructor unmaps the memory.
  // Errors: ConnectionError if the system refuses.
  explicit Segment(size_t bytes, int fd = -1);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_;
  const size_t bytes_;
};

// Makes segments. open() is collective over `members`, ranks in the job on one host. Each member passes the same
// `key`, which is unique in the job, the same number of bytes, and `index`, its position in `members`. open()
// returns when this member has mapped the memory; of processes, members[0] returns when all members have. `watch`
// limits the wait: open() ends when the job fails or the deadline passes.
// Errors: ConnectionError if the memory cannot be made or opened; on a timeout or a failure the error of
// gradus/distributed/health/waiting.h, which names the members that did not call open().
class SegmentProvider {
 public:
  virtual ~SegmentProvider() = default;
  virtual std::shared_ptr<Segment> open(const std::string& key, const std::vector<int>& members, int index,
                                        size_t bytes, const WaitLimits& watch) = 0;
};

// For ranks that are threads of this process. All ranks use the same provider, and open() returns the same Segment
// to all members without waiting.
std::shared_ptr<SegmentProvider> make_thread_segments();
// For ranks that are processes of one user with a common /proc. members[0] makes a memfd and publishes its process
// id and descriptor in the store; the other members open the memfd through /proc and acknowledge that in the
// store.
std::shared_ptr<SegmentProvider> make_process_segments(std::shared_ptr<Store> store);

// Returns an id of this host; ranks with equal ids can share memory. The id consists of the boot id, the user id
// and the namespaces of network, process ids and users. The environment variable GRADUS_HOST_ID replaces the id.
// Errors: ValueError for a GRADUS_HOST_ID of more than 256 characters.
std::string host_id();

}  // namespace gradus::dist::internal
