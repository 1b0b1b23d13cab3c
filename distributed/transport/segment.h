// Segment: zeroed memory that the ranks of one host share. For processes it is a memfd, which has no name in a file
// system, so nothing can be left behind.
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
  // Maps a file. Without one, makes memory that this process and its forked children share.
  // Errors: ConnectionError.
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
// For processes of one user, which see each other in /proc. Members publish in the store.
std::shared_ptr<SegmentProvider> make_process_segments(std::shared_ptr<Store> store);

// Returns an id of this host; ranks with equal ids can share memory. It is made of boot, user and
// namespaces (network, process ids, users). The environment variable GRADUS_HOST_ID overrides it.
std::string host_id();

}  // namespace gradus::dist::internal
