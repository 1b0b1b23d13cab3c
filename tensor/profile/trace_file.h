// TraceFile: writes a file in Chrome's trace event format (JSON), for ui.perfetto.dev and chrome://tracing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "gradus/tensor/runtime/blocked_signals.h"

namespace gradus::internal {

class TraceFile {
 public:
  // Creates the file. `op` is the name in errors.
  // Errors: FileError naming the file, here and in close().
  TraceFile(const char* op, const std::filesystem::path& path);

  // Writes an event. `fields` are the members of its JSON object.
  void event(const std::string& fields);
  void name_process(int64_t process, const std::string& name);
  void name_thread(int64_t process, int64_t thread, const std::string& name);
  // Completes and closes the file.
  void close();

  // Returns `text` as a JSON string. Invalid UTF-8 is replaced.
  static std::string quoted(const std::string& text);
  // Returns microseconds with three decimals: exact, so that ranges nest.
  static std::string microseconds(int64_t ns);

 private:
  void check() const;

  const BlockedSignals blocked_;
  const char* op_;
  const std::filesystem::path path_;
  std::ofstream out_;
  bool first_ = true;
};

}  // namespace gradus::internal
