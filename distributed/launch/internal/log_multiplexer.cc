// Copies the output of the launched ranks. Each stream of a rank is a pipe; one thread polls all pipes,
// appends what it reads to a file, writes whole lines with a prefix to the console, and keeps the last bytes
// in memory for the report of a failure. Public functions may be called from other threads; mutex_ guards
// added_, open_, tails_ and first_loss_.
#include "gradus/distributed/launch/internal/log_multiplexer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string_view>
#include <utility>

#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/distributed/base/split.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/blocked_signals.h"

namespace gradus::dist::internal {
namespace {

constexpr size_t kTail = 16 << 10;  // minimum number of bytes kept for each rank, once it has written as many
constexpr size_t kLongLine = 64 << 10;  // longer lines are divided on a console with prefixes
constexpr size_t kAtOnce = 4096;  // bytes that a pipe ready for writing accepts without blocking (PIPE_BUF)

// Writes `text` to fd, which may be a pipe that nobody reads. Returns 0 once all is written or give_up()
// returns true (checked at least every 50 ms), else the error number of a failed write.
template <class GiveUp> int write_patiently(int fd, std::string_view text, GiveUp&& give_up) {
  while (!text.empty() && !give_up()) {
    pollfd ready{fd, POLLOUT, 0};
    if (poll(&ready, 1, 50) == 0) continue;
    const ssize_t n = write(fd, text.data(), std::min(text.size(), kAtOnce));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return n < 0 ? errno : 0;
    text.remove_prefix(size_t(n));
  }
  return 0;
}

}  // namespace

void write_console(int fd, std::string_view text, Milliseconds limit) {
  // If the console has no reader, or is a file that is full, the write must not end this process
  // while it cleans up.
  const gradus::internal::BlockedSignals blocked({SIGPIPE, SIGXFSZ});
  const Deadline deadline = Deadline::after(limit);
  write_patiently(fd, text, [&] { return deadline.passed(); });
}

// One stream of one rank. Only the copying thread uses it.
struct LogMultiplexer::Stream {
  int rank;
  FileDescriptor in, file;
  bool keep_lines;  // for last_lines
  StreamOptions options;
  std::string line;  // beginning of a line, with its prefix, whose end has not arrived yet
};

LogMultiplexer::LogMultiplexer(const char* op) : op_(op), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw FileError("launcher", "cannot make an eventfd: ", errno_text());
  sigset_t all, before;  // the new thread gets no signals
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LogMultiplexer::~LogMultiplexer() {
  stop_ = true;
  wake();
  thread_.join();
}

int LogMultiplexer::add(int rank, bool keep_lines, const StreamOptions& options) {
  FileDescriptor file;
  if (!options.file.empty()) {
    file =
        FileDescriptor(open(options.file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
    if (!file) throw FileError("launcher", options.file, ": ", errno_text());
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) throw FileError("launcher", "cannot make a pipe: ", errno_text());
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  std::lock_guard lock(mutex_);
  added_.push_back({rank, FileDescriptor(ends[0]), std::move(file), keep_lines, options, ""});
  ++open_;
  wake();
  return ends[1];
}

void LogMultiplexer::finish(Milliseconds limit) {
  std::unique_lock lock(mutex_);
  if (closed_.wait_for(lock, limit, [&] { return open_ == 0; })) return;
  // A process that cannot be ended keeps a pipe open, or nobody reads the console.
  stop_ = true;
  wake();
  closed_.wait_for(lock, Milliseconds(500), [&] { return open_ == 0; });
}

std::string LogMultiplexer::first_loss() const {
  std::lock_guard lock(mutex_);
  return first_loss_;
}

std::vector<std::string> LogMultiplexer::last_lines(int rank, size_t count) const {
  std::string tail;
  {
    std::lock_guard lock(mutex_);
    if (const auto it = tails_.find(rank); it != tails_.end()) tail = it->second;
  }
  std::vector<std::string> lines = split(tail, "\n\r");
  std::erase(lines, "");
  for (std::string& line : lines) line.resize(std::min<size_t>(line.size(), 400));
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - std::ptrdiff_t(count));
  return lines;
}

void LogMultiplexer::wake() { eventfd_write(wake_.fd(), 1); }

// The copying thread. A stream without a prefix (a single rank's console) also shows an incomplete line after
// 50 ms without output, such as a prompt or a progress bar.
void LogMultiplexer::run() {
  std::vector<Stream> streams;
  std::vector<char> buffer(64 << 10);
  while (!stop_) {
    std::vector<pollfd> fds;
    bool begun = false;
    for (const Stream& s : streams) {
      fds.push_back({s.in.fd(), POLLIN, 0});
      begun = begun || (s.options.prefix.empty() && !s.line.empty());
    }
    fds.push_back({wake_.fd(), POLLIN, 0});
    if (poll(fds.data(), fds.size(), begun ? 50 : -1) == 0)
      for (Stream& s : streams)
        if (s.options.prefix.empty()) write_lines(s, "", /*flush=*/true);
    eventfd_t count;
    if (fds.back().revents) eventfd_read(wake_.fd(), &count);
    for (size_t i = 0; i < streams.size(); ++i)
      if (fds[i].revents && !copy(streams[i], buffer)) streams[i].in.close();
    const size_t ended = std::erase_if(streams, [](const Stream& s) { return !s.in; });
    std::lock_guard lock(mutex_);
    std::ranges::move(added_, std::back_inserter(streams));
    added_.clear();
    open_ -= ended;
    closed_.notify_all();
  }
  std::lock_guard lock(mutex_);
  streams.clear();
  added_.clear();
  open_ = 0;
  closed_.notify_all();
}

// Copies the bytes that are ready in the pipe, without blocking. Returns false at the end of the stream.
bool LogMultiplexer::copy(Stream& s, std::vector<char>& buffer) {
  const ssize_t n = read(s.in.fd(), buffer.data(), buffer.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  const std::string_view part(buffer.data(), n > 0 ? size_t(n) : 0);
  if (s.keep_lines) {
    std::lock_guard lock(mutex_);
    std::string& tail = tails_[s.rank];
    tail.append(part);
    if (tail.size() > 2 * kTail) tail.erase(0, tail.size() - kTail);
  }
  if (s.file && !write_all(s.file.fd(), part))
    record_loss(s, s.options.file, errno);  // a full disk does not end the job
  write_lines(s, part, /*flush=*/n <= 0);
  return n > 0;
}

// Records that output of a rank could not be written to `where`, and prints the first such loss to stderr.
void LogMultiplexer::record_loss(const Stream& s, const std::string& where, int error) {
  {
    std::lock_guard lock(mutex_);
    if (!first_loss_.empty()) return;
    first_loss_ =
        concat("output of rank ", s.rank, " is lost: cannot write to ", where, ": ", errno_text(error));
  }
  write_patiently(2, concat(op_, ": ", first_loss_, '\n'), [&] { return stop_.load(); });
}

// Writes the lines that `part` completes to the stream's console, so that lines of different ranks do not
// mix. `flush` also writes an incomplete line. A '\r' ends a line only on consoles without prefixes.
void LogMultiplexer::write_lines(Stream& s, std::string_view part, bool flush) {
  const bool prefix = !s.options.prefix.empty();
  std::string out;
  for (const char c : part) {
    if (s.line.empty()) s.line = s.options.prefix;
    s.line += c;
    const bool ends = c == '\n' || (c == '\r' && !prefix);
    if (!ends && s.line.size() < kLongLine) continue;
    if (!ends && prefix) s.line += '\n';
    out += std::exchange(s.line, "");
  }
  if (flush && !s.line.empty()) out += std::exchange(s.line, "") + (prefix ? "\n" : "");
  if (s.options.console < 0) return;
  const int error = write_patiently(s.options.console, out, [&] { return stop_.load(); });
  if (error != 0 && error != EPIPE) record_loss(s, s.options.console == 1 ? "stdout" : "stderr", error);
}

}  // namespace gradus::dist::internal
