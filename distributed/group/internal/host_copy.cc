#include "gradus/distributed/group/internal/host_copy.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>

#include "gradus/distributed/health/waiting.h"
#include "gradus/tensor/runtime/blocked_signals.h"

namespace gradus::dist::internal {
namespace {

constexpr char kOp[] = "share";

uint64_t random_number() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != ssize_t(sizeof number))
    throw StateError(kOp, "the system gives no random numbers");
  return number;
}

// Returns a random number that identifies this process.
uint64_t own_id() {
  static const uint64_t id = random_number();
  return id;
}

// Returns this process's PID namespace: process ids are comparable only within one.
uint64_t process_namespace() {
  struct stat status {};
  stat("/proc/self/ns/pid", &status);
  return status.st_ino;
}

// The store's value for a copy, and what may happen next:
//   nothing, or kFree    no rank has it: a rank that replaces this by its own kFilling fills it
//   kFilling             `rank` fills it; others wait
//   kReady               it is descriptor `fd` of process `pid`. When it is not there any more, as kFree
struct Claim {
  enum State { kFree, kFilling, kReady };
  State state = kFree;
  int rank = 0;
  uint64_t nonce = 0;  // no two claims are the same
  uint64_t process = 0, pid_namespace = 0;
  int64_t pid = 0;
  int fd = -1;
  uint64_t device = 0, inode = 0;

  static Claim make(State state, int rank) { return {state, rank, random_number()}; }
  std::string text() const {
    return concat(int(state), ' ', rank, ' ', nonce, ' ', process, ' ', pid_namespace, ' ', pid, ' ', fd, ' ',
                  device, ' ', inode);
  }
  static Claim parse(const std::string& text) {
    Claim c;
    int state = -1;
    std::istringstream in(text);
    in >> state >> c.rank >> c.nonce >> c.process >> c.pid_namespace >> c.pid >> c.fd >> c.device >> c.inode;
    if (!in || state < kFree || state > kReady)
      throw StoreError(kOp, -1, "the store's value of a shared copy is '", text.substr(0, 100), "'");
    c.state = State(state);
    return c;
  }
};

using Memory = std::shared_ptr<const std::byte>;

Memory map_read_only(int fd, size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return nullptr;
  return {static_cast<const std::byte*>(data),
          [bytes](const std::byte* p) { munmap(const_cast<std::byte*>(p), bytes); }};
}

// The copies that this process has filled, by inode. Ranks that are threads of this process use
// the same mapping.
class OwnCopies {
 public:
  Memory find(uint64_t inode) {
    std::lock_guard lock(mutex_);
    const auto it = copies_.find(inode);
    return it == copies_.end() ? nullptr : it->second.lock();
  }
  // Keeps `fd` open until the last user in this process is gone: other processes map the memory through it.
  Memory add(uint64_t inode, int fd, Memory mapping) {
    const Memory copy(mapping.get(), [this, inode, fd, mapping](const std::byte*) mutable {
      {
        std::lock_guard lock(mutex_);
        copies_.erase(inode);
      }
      close(fd);
      mapping.reset();
    });
    std::lock_guard lock(mutex_);
    copies_[inode] = copy;
    return copy;
  }

  static OwnCopies& instance() {
    static auto& copies = *new OwnCopies;  // never destroyed: data sets may live as long as the process
    return copies;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<const std::byte>> copies_;
};

// A memfd that is being filled.
class NewCopy {
 public:
  explicit NewCopy(size_t bytes)
      : bytes_(bytes), fd_(memfd_create("gradus-copy", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    // Allocates the memory now, so that a lack of memory is no signal later. BlockedSignals: `ulimit -f` must
    // raise no signal now.
    const gradus::internal::BlockedSignals blocked;
    if (fd_ < 0 || fallocate(fd_, 0, 0, off_t(bytes)) != 0) return;
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (data != MAP_FAILED) data_ = static_cast<std::byte*>(data);
  }
  ~NewCopy() {
    if (data_) munmap(data_, bytes_);
    if (fd_ >= 0) close(fd_);
  }
  NewCopy(const NewCopy&) = delete;
  NewCopy& operator=(const NewCopy&) = delete;

  std::byte* data() const { return data_; }  // null if the system has no such memory

  // Seals the memory, so that nobody can change it, and writes its place to `claim`. Returns null if
  // the system refuses.
  Memory finish(Claim& claim) {
    munmap(std::exchange(data_, nullptr), bytes_);
    struct stat status {};
    if (fcntl(fd_, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
        fstat(fd_, &status) != 0)
      return nullptr;
    Memory mapping = map_read_only(fd_, bytes_);
    if (!mapping) return nullptr;
    claim.process = own_id();
    claim.pid_namespace = process_namespace();
    claim.pid = getpid();
    claim.fd = fd_;
    claim.device = status.st_dev;
    claim.inode = status.st_ino;
    return OwnCopies::instance().add(status.st_ino, std::exchange(fd_, -1), std::move(mapping));
  }

 private:
  size_t bytes_;
  int fd_;
  std::byte* data_ = nullptr;
};

// Maps the ready copy of `claim`. Returns null if that fails: with `gone` set, the copy is not there any
// more; otherwise it is out of reach.
Memory attach(const Claim& claim, size_t bytes, bool& gone) {
  gone = false;
  if (claim.process == own_id() && claim.pid == getpid()) {
    Memory memory = OwnCopies::instance().find(claim.inode);
    gone = !memory;
    return memory;
  }
  if (claim.pid_namespace != process_namespace()) return nullptr;
  const int fd =
      open(concat("/proc/", claim.pid, "/fd/", claim.fd).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    gone = errno == ENOENT || errno == ESRCH;
    return nullptr;
  }
  // The descriptor's number may meanwhile belong to another file, or the pid to another process.
  struct stat status {};
  const int seals = fcntl(fd, F_GET_SEALS), needed = F_SEAL_WRITE | F_SEAL_SHRINK;
  gone = fstat(fd, &status) != 0 || status.st_dev != claim.device || status.st_ino != claim.inode ||
         status.st_uid != geteuid() || size_t(status.st_size) != bytes || seals < 0 ||
         (seals & needed) != needed;
  Memory memory = gone ? nullptr : map_read_only(fd, bytes);
  close(fd);
  return memory;
}

// Frees the claim in the store if this rank does not fill the copy.
class Filling {
 public:
  Filling(Store& store, const std::string& key, const Claim& claim)
      : store_(store), key_(key), claim_(claim) {}
  ~Filling() {
    try {
      if (!done_) store_.compare_set(key_, claim_.text(), Claim::make(Claim::kFree, claim_.rank).text());
    } catch (const std::exception&) {
      // The store is gone, so no rank waits for the copy.
    }
  }
  void done(Claim claim) {
    claim.state = Claim::kReady;
    done_ = true;
    store_.compare_set(key_, claim_.text(), claim.text());
  }

 private:
  Store& store_;
  const std::string& key_;
  const Claim claim_;
  bool done_ = false;
};

// Fills the copy that this rank has claimed. Returns null if there is no memory that can be shared.
Memory fill_claimed(Store& store, const std::string& key, Claim claim, size_t bytes, const Job::Fill& fill) {
  Filling filling(store, key, claim);
  NewCopy copy(bytes);
  if (!copy.data()) return nullptr;
  fill(copy.data());
  Memory memory = copy.finish(claim);
  if (memory) filling.done(claim);
  return memory;
}

}  // namespace

HostMemory share_on_host(World& world, const std::string& key, size_t bytes, const Job::Fill& fill) {
  constexpr size_t kMaxKeyBytes = 512;
  if (key.size() > kMaxKeyBytes)
    throw ValueError(kOp, "a key has at most ", kMaxKeyBytes, " bytes, got ", key.size());
  if (bytes == 0 || world.local_size == 1 || !world.shared_memory) return world.Job::share(key, bytes, fill);

  const std::string store_key = concat("share/", world.host_of[size_t(world.rank)], '/', bytes, '/', key);
  const Watch watch = world.watch();
  std::string replaceable;  // the store's value that this rank may replace
  for (Milliseconds pause{1};; pause = std::min(2 * pause, Milliseconds(20))) {
    const Claim own = Claim::make(Claim::kFilling, world.rank);
    const std::string held = world.store->compare_set(store_key, replaceable, own.text());
    if (held == own.text()) {
      if (Memory memory = fill_claimed(*world.store, store_key, own, bytes, fill))
        return {std::move(memory), true};
      return world.Job::share(key, bytes, fill);
    }
    const Claim claim = Claim::parse(held);
    std::optional<WaitScope> waiting;
    bool gone = claim.state == Claim::kFree;
    if (claim.state == Claim::kReady) {
      if (Memory memory = attach(claim, bytes, gone)) return {std::move(memory), true};
      if (!gone) return world.Job::share(key, bytes, fill);
    } else if (claim.state == Claim::kFilling) {
      gone = world.membership->has_left(claim.rank);
      waiting.emplace(*world.membership, Wait::for_ranks([rank = claim.rank] { return std::vector{rank}; }));
      if (watch.deadline.passed()) throw_wait(kOp, WaitResult::kTimeout, watch, {claim.rank});
    }
    replaceable = gone ? held : "";
    if (!gone) std::this_thread::sleep_for(pause);
  }
}

}  // namespace gradus::dist::internal
