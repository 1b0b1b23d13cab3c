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
  // Creates the file, or overwrites it. `op` is the name in errors, and must outlive the object. The object
  // must be destroyed on the same thread (BlockedSignals).
  // Errors: FileError naming the file, here and in close().
  TraceFile(const char* op, const std::filesystem::path& path);

  // Writes an event. `fields` are the members of its JSON object: "\"ph\":\"X\",\"pid\":0,...".
  void event(const std::string& fields);
  // Write the metadata events that name a process (pid) or a thread (tid).
  void name_process(int64_t process, const std::string& name);
  void name_thread(int64_t process, int64_t thread, const std::string& name);
  // Completes and closes the file. Without close() the file is not valid JSON.
  void close();

  // Returns `text` as a JSON string. Invalid UTF-8 is replaced.
  static std::string quoted(const std::string& text);
  // Returns `ns` >= 0 in microseconds, exactly (three decimals), so that nested ranges stay nested.
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
