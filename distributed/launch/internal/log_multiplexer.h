// LogMultiplexer copies the output of the ranks from pipes to the console, with a prefix, and to files, and
// keeps the last bytes of each rank for the report of a failure.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/base/file_descriptor.h"

namespace gradus::dist::internal {

// The destinations of one stream (stdout or stderr) of one rank.
struct StreamOptions {
  int console = -1;    // 1 or 2: this process's stdout or stderr; -1: not to the console
  std::string prefix;  // before every line on the console
  std::string file;    // path of a file that is overwritten; "": none
};

// Writes to this process's stdout (fd 1) or stderr (fd 2). Drops the rest after `limit` if nobody reads.
void write_console(int fd, std::string_view text, Milliseconds limit);

// Copies in a thread of its own. If nobody reads the console, the ranks that write to it block, but not the
// launcher's thread, which supervises them. Any thread may call.
class LogMultiplexer {
 public:
  // `op`: the name in messages, a literal. Errors: FileError if the system has no descriptor left.
  explicit LogMultiplexer(const char* op);
  ~LogMultiplexer();  // does not wait: output that has not been copied yet is lost
  LogMultiplexer(const LogMultiplexer&) = delete;
  LogMultiplexer& operator=(const LogMultiplexer&) = delete;

  // Adds a stream of a rank. Returns the write end of its pipe, which the caller closes. `keep_lines`:
  // last_lines() returns the stream's lines.
  // Errors: FileError if the file cannot be opened, or no pipe is left.
  int add(int rank, bool keep_lines, const StreamOptions& options);
  // Waits until all write ends are closed and all output is copied, at most for `limit`. The rest is lost,
  // and streams that are added afterward are not copied.
  void finish(Milliseconds limit);
  // Returns the last lines that the rank has written to streams with `keep_lines`, oldest first. Lines longer
  // than 400 bytes are cut.
  std::vector<std::string> last_lines(int rank, size_t count) const;
  // Returns a text about the first output that was lost because a file or the console could not be written (a
  // full disk), or "". The text is also written to stderr at once. A console without a reader is no loss.
  std::string first_loss() const;

 private:
  struct Stream;
  void wake();
  void run();
  bool copy(Stream& s, std::vector<char>& buffer);
  void record_loss(const Stream& s, const std::string& where, int error);
  void write_lines(Stream& s, std::string_view part, bool flush);

  mutable std::mutex mutex_;
  std::condition_variable closed_;
  std::vector<Stream> added_;  // the thread has not seen these yet
  size_t open_ = 0;            // number of open streams, including added_
  std::map<int, std::string> tails_;
  std::string first_loss_;
  const char* const op_;
  std::atomic<bool> stop_ = false;
  const FileDescriptor wake_;
  std::thread thread_;
};

}  // namespace gradus::dist::internal
