// share_on_host: one read-only copy of `bytes` bytes for all ranks of a host. The ranks elect the one that
// fills it by compare_set on a key of the job's store. That rank fills a memfd, seals it, and publishes its
// pid and descriptor; the others map /proc/PID/fd/FD. A rank that cannot map that memory fills private memory
// instead (Job::share).
#include "gradus/distributed/group/internal/host_copy.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <sstream>
#include <thread>

#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/distributed/health/waiting.h"
#include "gradus/tensor/runtime/blocked_signals.h"

namespace gradus::dist::internal {
namespace {

constexpr char kOp[] = "share";

// Returns this process's PID namespace: process ids are comparable only within one.
uint64_t process_namespace() {
  struct stat status {};
  stat("/proc/self/ns/pid", &status);
  return status.st_ino;
}

// The store's value for a copy, and what may happen next:
//   nothing, or kFree    no rank has the copy: a rank that replaces this value by its own kFilling fills it
//   kFilling             `rank` fills the copy; others wait. If `rank` has left the job, as kFree
//   kReady               the copy is descriptor `fd` of process `pid`. If that file is gone, as kFree
struct Claim {
  enum State { kFree, kFilling, kReady };
  State state = kFree;
  int rank = 0;
  std::string nonce;  // no two claims are the same
  uint64_t pid_namespace = 0;
  int64_t pid = 0;
  int fd = -1;
  uint64_t device = 0, inode = 0;  // of the memfd, to detect a descriptor that was reused

  static Claim make(State state, int rank) { return {state, rank, random_hex(kOp, 16)}; }
  std::string text() const {
    return concat(int(state), ' ', rank, ' ', nonce, ' ', pid_namespace, ' ', pid, ' ', fd, ' ', device, ' ',
                  inode);
  }
  static Claim parse(const std::string& text) {
    Claim c;
    int state = -1;
    std::istringstream in(text);
    in >> state >> c.rank >> c.nonce >> c.pid_namespace >> c.pid >> c.fd >> c.device >> c.inode;
    if (!in || state < kFree || state > kReady)
      throw StoreError(kOp, -1, "the store's value of a shared copy is '", text.substr(0, 100), "'");
    c.state = State(state);
    return c;
  }
};

using Memory = std::shared_ptr<std::byte>;

// Maps a file. Returns null if the system refuses. The mapping keeps `file` open, unless null.
Memory map(int fd, size_t bytes, int protection, std::shared_ptr<FileDescriptor> file = nullptr) {
  void* data = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return nullptr;
  return {static_cast<std::byte*>(data), [bytes, file](std::byte* p) { munmap(p, bytes); }};
}

// Maps the ready copy of `claim`. Returns null if that fails: with `gone` set, the copy no longer exists and
// another rank may fill it again; otherwise it cannot reach the copy (other PID namespace, or no permission).
Memory attach(const Claim& claim, size_t bytes, bool& gone) {
  gone = false;
  if (claim.pid_namespace != process_namespace()) return nullptr;
  const FileDescriptor file(
      open(concat("/proc/", claim.pid, "/fd/", claim.fd).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) {
    gone = errno == ENOENT || errno == ESRCH;
    return nullptr;
  }
  // The descriptor's number may meanwhile belong to another file, or the pid to another process.
  struct stat status {};
  const int seals = fcntl(file.fd(), F_GET_SEALS), needed = F_SEAL_WRITE | F_SEAL_SHRINK;
  gone = fstat(file.fd(), &status) != 0 || status.st_dev != claim.device || status.st_ino != claim.inode ||
         status.st_uid != geteuid() || size_t(status.st_size) != bytes || seals < 0 ||
         (seals & needed) != needed;
  return gone ? nullptr : map(file.fd(), bytes, PROT_READ);
}

// Scope of filling: unless done() was called, sets the store's value to kFree at the end.
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

// Fills the copy that this rank has claimed, and seals it, so that nobody can change it. Returns null if
// there is no memory that can be shared. Other processes map the copy through this process's descriptor.
Memory fill_claimed(Store& store, const std::string& key, Claim claim, size_t bytes, const Job::Fill& fill) {
  Filling filling(store, key, claim);
  const auto file =
      std::make_shared<FileDescriptor>(memfd_create("gradus-copy", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  {
    // Allocates now, so that a lack of memory is no signal later. BlockedSignals: `ulimit -f` must
    // raise no signal now.
    const gradus::internal::BlockedSignals blocked;
    if (!*file || fallocate(file->fd(), 0, 0, off_t(bytes)) != 0) return nullptr;
  }
  {
    const Memory writable = map(file->fd(), bytes, PROT_READ | PROT_WRITE);
    if (!writable) return nullptr;
    fill(writable.get());
  }
  struct stat status {};
  if (fcntl(file->fd(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
      fstat(file->fd(), &status) != 0)
    return nullptr;
  Memory memory = map(file->fd(), bytes, PROT_READ, file);
  if (!memory) return nullptr;
  claim.pid_namespace = process_namespace();
  claim.pid = getpid();
  claim.fd = file->fd();
  claim.device = status.st_dev;
  claim.inode = status.st_ino;
  filling.done(claim);
  return memory;
}

}  // namespace

HostMemory share_on_host(World& world, const std::string& key, size_t bytes, const Job::Fill& fill) {
  constexpr size_t kMaxKeyBytes = 512;
  if (key.size() > kMaxKeyBytes)
    throw ValueError(kOp, "a key has at most ", kMaxKeyBytes, " bytes, got ", key.size());
  if (bytes == 0 || world.local_size == 1 || !world.shared_memory) return world.Job::share(key, bytes, fill);

  const std::string store_key = concat("share/", world.host_of[size_t(world.rank)], '/', bytes, '/', key);
  const WaitLimits limits = world.wait_limits();
  std::string replaceable;  // the store's value that this rank may replace; empty: only an absent value
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
      if (limits.deadline.passed()) throw_wait(kOp, WaitResult::kTimeout, limits, {claim.rank});
    }
    replaceable = gone ? held : "";
    if (!gone) std::this_thread::sleep_for(pause);
  }
}

}  // namespace gradus::dist::internal
