// Copies the ranks' output to the console with a prefix and to files, and keeps its end for the
// report of a failure.
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

// Where one stream of one rank goes.
struct StreamOptions {
  int console = -1;    // 1 or 2: this process's stdout or stderr; -1: not there
  std::string prefix;  // before every line on the console
  std::string file;    // "": none
};

// Writes to stdout (1) or stderr (2) of this process. Gives up after `limit` if nobody reads.
void write_console(int fd, std::string_view text, Milliseconds limit);

// Copies what comes through the ranks' pipes, in a thread of its own. If nobody reads the console, only the
// ranks that write to it are held up, not their supervision.
class LogMultiplexer {
 public:
  // `op`: the name in messages.
  explicit LogMultiplexer(const char* op);
  ~LogMultiplexer();  // loses what was not copied
  LogMultiplexer(const LogMultiplexer&) = delete;
  LogMultiplexer& operator=(const LogMultiplexer&) = delete;

  // Adds a stream of a rank. Returns the end to write to; the caller closes it. `keep_lines`: last_lines
  // returns its lines.
  // Errors: FileError.
  int add(int rank, bool keep_lines, const StreamOptions& options);
  // Waits until all writers have closed their ends and everything is copied, at most for `limit`.
  // The rest is lost.
  void finish(Milliseconds limit);
  // Returns the last lines that the rank has written to streams with `keep_lines`, oldest first. Lines longer than
  // 400 bytes are cut.
  std::vector<std::string> last_lines(int rank, size_t count) const;
  // Returns what was lost first because a file or the console could not be written (a full disk), or "". The
  // loss is shown when it happens, and copying goes on. A console without a reader counts as no loss.
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
