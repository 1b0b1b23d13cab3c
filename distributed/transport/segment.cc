// Shared-memory segments for the ranks of one host. Ranks that are threads share one anonymous mapping, found
// by key in a table. Ranks that are processes map a memfd, whose location they exchange through the key-value
// store; no file name exists that a crash could leave behind. Waits poll for the job's failure and the
// deadline every 100 ms.
#include "gradus/distributed/transport/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/distributed/health/waiting.h"
#include "gradus/tensor/runtime/blocked_signals.h"

namespace gradus::dist::internal {
namespace {

constexpr char kOp[] = "shared memory";
constexpr Milliseconds kSlice{100};  // interval of the checks for a failure while waiting

[[noreturn]] void throw_errno(const char* what) { throw ConnectionError(kOp, -1, what, ": ", errno_text()); }

// See make_thread_segments. The table has the segments that some member has not opened yet.
class ThreadSegments final : public SegmentProvider {
 public:
  std::shared_ptr<Segment> open(const std::string& key, const std::vector<int>& members, int, size_t bytes,
                                const WaitLimits&) override {
    std::lock_guard lock(mutex_);
    Opening& opening = openings_[key];
    if (!opening.segment) opening.segment = std::make_shared<Segment>(bytes);
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

// Creates a memfd of zeroed memory. Its size is sealed: if another process could shrink it, an access beyond
// the end would raise SIGBUS. SIGXFSZ is blocked, so that ftruncate beyond `ulimit -f` fails with an error.
// Errors: ConnectionError.
FileDescriptor make_memory(size_t bytes) {
  FileDescriptor memory(memfd_create("gradus", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) throw_errno("memfd_create");
  const gradus::internal::BlockedSignals blocked;
  if (ftruncate(memory.fd(), off_t(bytes)) != 0) throw_errno("ftruncate");
  if (fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw_errno("F_ADD_SEALS");
  return memory;
}

// Opens the memfd that another process of this user has as `name`, "process id/descriptor". Verifies seal,
// owner and size, since the process id may have been reused. Returns an invalid descriptor if the process has
// no such memory, or is gone. `rank` is the memfd's creator, for errors.
// Errors: StoreError for a malformed name; ConnectionError without permission.
FileDescriptor open_memory(const std::string& name, size_t bytes, int rank) {
  int pid = 0, number = 0, length = 0;
  if (name.find_first_not_of("0123456789/") != name.npos ||
      std::sscanf(name.c_str(), "%d/%d%n", &pid, &number, &length) != 2 || size_t(length) != name.size())
    throw StoreError(kOp, rank, "the store's value '", name.substr(0, 64), "' names no memory of rank ",
                     rank);
  FileDescriptor memory(
      ::open(concat("/proc/", pid, "/fd/", number).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!memory && (errno == EACCES || errno == EPERM))
    throw ConnectionError(kOp, rank, "the memory of rank ", rank, " (process ", pid,
                          ") cannot be opened: ", errno_text());
  struct stat status {};
  const int seals = memory ? fcntl(memory.fd(), F_GET_SEALS) : -1;
  if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(memory.fd(), &status) != 0 ||
      status.st_uid != geteuid() || size_t(status.st_size) != bytes)
    memory.close();
  return memory;
}

// The first member makes a memfd and publishes its process id and descriptor in the store. The others open
// the memfd through /proc and publish that they have it. Then the first member closes its descriptor. The
// memory disappears with the last process that has it, however that process ends.
class ProcessSegments final : public SegmentProvider {
 public:
  explicit ProcessSegments(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  std::shared_ptr<Segment> open(const std::string& key, const std::vector<int>& members, int index,
                                size_t bytes, const WaitLimits& watch) override {
    const std::string name_key = "segment/" + key;
    const auto opened_key = [&](int rank) { return concat(name_key, '/', rank); };
    if (index != 0) {
      wait_for({{members[0], name_key}}, watch);
      const std::string name = store_->get(name_key, kSlice);
      for (;;) {
        if (const FileDescriptor memory = open_memory(name, bytes, members[0])) {
          auto segment = std::make_shared<Segment>(bytes, memory.fd());
          store_->set(opened_key(members[index]), "");
          return segment;
        }
        // The first member is gone, and the membership soon reports the failure.
        check({members[0]}, watch, [](int) { return true; });
        std::this_thread::sleep_for(kSlice);
      }
    }
    const FileDescriptor memory = make_memory(bytes);
    auto segment = std::make_shared<Segment>(bytes, memory.fd());
    if (members.size() == 1) return segment;
    store_->set(name_key, concat(getpid(), '/', memory.fd()));
    std::map<int, std::string> opened;
    for (size_t i = 1; i < members.size(); ++i) opened[members[i]] = opened_key(members[i]);
    wait_for(opened, watch);
    for (const auto& [rank, key] : opened) store_->delete_key(key);
    store_->delete_key(name_key);
    return segment;
  }

 private:
  // Throws if the job has failed, the time is over, or one of the missing ranks has left. still_missing(rank)
  // is called for a rank that has left, which may have arrived just before.
  template <class StillMissing>
  static void check(const std::vector<int>& missing, const WaitLimits& watch, StillMissing&& still_missing) {
    if (watch.membership->failed()) throw_wait(kOp, WaitResult::kFailed, watch, missing);
    for (int rank : missing) check_left(kOp, watch, rank, [&] { return still_missing(rank); });
    if (watch.deadline.passed()) throw_wait(kOp, WaitResult::kTimeout, watch, missing);
  }

  // Waits until each of these ranks has set its key in the store. `keys` is by rank.
  void wait_for(std::map<int, std::string> keys, const WaitLimits& watch) {
    for (;;) {
      std::erase_if(keys, [&](const auto& entry) { return store_->check({entry.second}); });
      if (keys.empty()) return;
      std::vector<int> missing;
      std::vector<std::string> absent;
      for (const auto& [rank, key] : keys) {
        missing.push_back(rank);
        absent.push_back(key);
      }
      check(missing, watch, [&](int rank) { return !store_->check({keys[rank]}); });
      const WaitScope waiting(*watch.membership, Wait::for_ranks([&missing] { return missing; }));
      try {
        store_->wait(absent, std::min(kSlice, watch.deadline.remaining()));
      } catch (const TimeoutError&) {
      }
    }
  }

  const std::shared_ptr<Store> store_;
};

}  // namespace

Segment::Segment(size_t bytes, int fd) : bytes_(bytes) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
  if (memory == MAP_FAILED) throw_errno("mmap");
  data_ = static_cast<std::byte*>(memory);
}

Segment::~Segment() { munmap(data_, bytes_); }

std::shared_ptr<SegmentProvider> make_thread_segments() { return std::make_shared<ThreadSegments>(); }

std::shared_ptr<SegmentProvider> make_process_segments(std::shared_ptr<Store> store) {
  return std::make_shared<ProcessSegments>(std::move(store));
}

std::string host_id() {
  constexpr size_t kMaxBytes = 256;
  if (const char* variable = std::getenv("GRADUS_HOST_ID"); variable && *variable) {
    if (strnlen(variable, kMaxBytes + 1) > kMaxBytes)
      throw ValueError("host_id", "GRADUS_HOST_ID is longer than ", kMaxBytes, " characters");
    return variable;
  }
  std::string id = concat(read_file("/proc/sys/kernel/random/boot_id", 36), '/', geteuid());
  for (const char* space : {"net", "pid", "user"}) {
    struct stat status {};
    stat(concat("/proc/self/ns/", space).c_str(), &status);
    id += concat('/', status.st_dev, ':', status.st_ino);
  }
  return id;
}

}  // namespace gradus::dist::internal
