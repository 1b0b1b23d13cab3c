// TraceFile: trace events as JSON, one a line, for ui.perfetto.dev and chrome://tracing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "gradus/tensor/runtime/quiet_signals.h"

namespace gradus::internal {

class TraceFile {
 public:
  // Errors: FileError naming the file; also from close(). `op` comes before its text.
  TraceFile(const char* op, const std::filesystem::path& path);

  // Writes an event, given its JSON without braces.
  void event(const std::string& fields);
  void name_process(int64_t process, const std::string& name);
  void name_thread(int64_t process, int64_t thread, const std::string& name);
  // Writes the end. Without it the file is not whole.
  void close();

  // Returns a string in JSON. The text may have any characters.
  static std::string quoted(const std::string& text);
  // Returns microseconds, exact to the nanosecond, so that ranges nest.
  static std::string microseconds(int64_t ns);

 private:
  void check() const;

  const QuietSignals quiet_;
  const char* op_;
  const std::filesystem::path path_;
  std::ofstream out_;
  bool first_ = true;
};

}  // namespace gradus::internal
