// What ranks write: to the console with a prefix, to files, and its end for the report of a failure.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gradus/distributed/base/deadline.h"

namespace gradus::dist::internal {

// Where one stream of one rank goes.
struct StreamOptions {
  int console = -1;    // 1 or 2: this process's stdout or stderr; -1: not there
  std::string prefix;  // before every line on the console
  std::string file;    // "": none
};

// Writes to stdout (1) or stderr (2) of this process; gives up after so long when nobody reads.
void write_console(int fd, std::string_view text, Milliseconds limit);

// Copies what comes through the ranks' pipes, in a thread of its own: a console that nobody reads holds up
// the ranks that write to it, not their supervision.
class LogMultiplexer {
 public:
  LogMultiplexer();
  ~LogMultiplexer();  // what was not copied is lost
  LogMultiplexer(const LogMultiplexer&) = delete;
  LogMultiplexer& operator=(const LogMultiplexer&) = delete;

  // Returns the end to write to; the caller closes it.
  // Errors: FileError.
  // `keep`: for last_lines.
  int add(int rank, bool keep, const StreamOptions& options);
  // Waits until all writers have closed their ends and all is copied, at most so long. The rest is lost.
  void finish(Milliseconds limit);
  // The last lines that this rank has written to the streams kept, oldest first. Lines longer than
  // 400 bytes are cut.
  std::vector<std::string> last_lines(int rank, size_t count) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradus::dist::internal
