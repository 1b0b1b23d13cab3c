#include <sys/mman.h>

#include <map>
#include <mutex>
#include <new>

#include "gradus/distributed/transport/segment.h"

namespace gradus::dist::internal {
namespace {

class ThreadSegment : public Segment {
 public:
  explicit ThreadSegment(size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(memory);
    bytes_ = bytes;
  }
  ~ThreadSegment() override { munmap(data_, bytes_); }
};

class ThreadSegments : public SegmentProvider {
 public:
  std::shared_ptr<Segment> open(const std::string& key, const std::vector<int>& members, int, size_t bytes,
                                const Watch&) override {
    std::lock_guard lock(mutex_);
    Opening& opening = openings_[key];
    if (!opening.segment) opening.segment = std::make_shared<ThreadSegment>(bytes);
    std::shared_ptr<Segment> segment = opening.segment;
    if (segment->bytes() != bytes)
      throw InternalError("segment '", key, "' has ", segment->bytes(), " bytes, not ", bytes);
    // From now on only the members keep the segment alive.
    if (++opening.opened == members.size()) openings_.erase(key);
    return segment;
  }

 private:
  struct Opening {
    std::shared_ptr<Segment> segment;
    size_t opened = 0;
  };
  std::mutex mutex_;
  std::map<std::string, Opening> openings_;
};

}  // namespace

std::shared_ptr<SegmentProvider> make_thread_segments() { return std::make_shared<ThreadSegments>(); }

}  // namespace gradus::dist::internal
