// Implementation of FileLock: an exclusive flock on a lock file next to the file to write. flock ends with
// its process, so the lock file of a killed writer is unlocked; the next writer detects and removes it.
// Waiting writers poll, with exponential backoff from 1 to 50 ms, and give up once the owner's output file
// has not changed for the timeout. The folder may contain malicious names: see Note [Untrusted names].
#include "gradus/io/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/blocked_signals.h"

namespace gradus::io::internal {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Closes a file descriptor at the end of a scope. Preserves errno.
struct Descriptor {
  int fd;
  ~Descriptor() {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    errno = error;
  }
};

// Returns "process 12 on host a, since 2026-01-31 12:00:00 UTC".
std::string process_text() {
  char host[256] = "", time[64] = "";
  ::gethostname(host, sizeof host - 1);
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::strftime(time, sizeof time, "%Y-%m-%d %H:%M:%S UTC", ::gmtime_r(&now, &parts));
  return concat("process ", ::getpid(), " on host ", host, ", since ", time);
}

// Returns the content of the lock file, which names its owner, without unprintable bytes, since the file is
// untrusted.
std::string owner_of(const std::filesystem::path& lock) {
  const Descriptor file{::open(lock.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
  char text[400];
  const ssize_t n = file.fd >= 0 ? ::read(file.fd, text, sizeof text) : 0;
  std::string owner(text, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  std::erase_if(owner, [](char c) { return c < ' ' || c > '~'; });
  return owner.empty() ? "a process that has not said who it is" : owner;
}

// Returns properties of a file that change when the file is written.
auto state_of(const std::filesystem::path& file) {
  struct stat info {};
  if (::lstat(file.c_str(), &info) != 0) info = {};
  return std::tuple(info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

// Tries to lock without waiting. Returns true if the file is locked, or if the file system has no locks; then
// writers are not serialized.
bool try_lock(int fd) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0)
    if (errno != EINTR) return errno != EWOULDBLOCK;
  return true;
}

}  // namespace

bool is_named(int fd, const std::filesystem::path& name) {
  struct stat opened {
  }, named{};
  return ::fstat(fd, &opened) == 0 && ::lstat(name.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

// Note [Untrusted names]
// A process writes only to files that it has created itself with O_EXCL, so it never writes through a
// symbolic link. An existing lock file belongs to a writer, or is a remnant of a killed writer. A remnant is
// not locked, and the next writer removes it. After locking a file, a process checks that the file still has
// its name.
bool FileLock::try_acquire() {
  Descriptor new_file{::open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666)};
  if (new_file.fd >= 0) {
    if (!try_lock(new_file.fd) || !is_named(new_file.fd, name_)) return false;
    fd_ = std::exchange(new_file.fd, -1);
    const gradus::internal::BlockedSignals blocked;
    const std::string text = process_text();
    (void)!::write(fd_, text.data(),
                   text.size());  // on a full disk, writing the locked file reports the error
    return true;
  }
  if (errno != EEXIST) throw std::system_error(errno, std::generic_category());
  const Descriptor existing{::open(name_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
  if (existing.fd < 0 && errno == ENOENT) return false;
  if (existing.fd < 0 && errno != ELOOP) throw std::system_error(errno, std::generic_category());
  const bool is_remnant = existing.fd < 0 || (try_lock(existing.fd) && is_named(existing.fd, name_));
  if (is_remnant && ::unlink(name_.c_str()) != 0 && errno != ENOENT)
    throw std::system_error(errno, std::generic_category());
  return false;
}

FileLock::FileLock(const std::filesystem::path& path, const std::filesystem::path& growing,
                   const std::string& op, milliseconds lock_timeout)
    : name_(path.string() + ".lock") {
  constexpr milliseconds kMaxPause{50};
  auto state = state_of(growing);
  auto since = Clock::now();
  try {
    for (milliseconds pause{1}; !try_acquire(); pause = std::min(2 * pause, kMaxPause)) {
      std::this_thread::sleep_for(pause);
      if (const auto now = state_of(growing); now != state) {
        state = now;
        since = Clock::now();
      }
      if (Clock::now() - since > lock_timeout)
        throw FileError(op, path.string(), ": another writer has held ", name_.string(),
                        " and not got on for ", lock_timeout.count(), " ms: ", owner_of(name_));
    }
  } catch (const std::system_error& e) {
    throw FileError(op, path.string(), ": cannot create ", name_.filename().string(), ": ",
                    e.code().message());
  }
}

FileLock::~FileLock() {
  // Removes the name while the lock is held: until close() releases it, no other process uses the name.
  if (is_named(fd_, name_)) ::unlink(name_.c_str());
  ::close(fd_);
}

}  // namespace gradus::io::internal
