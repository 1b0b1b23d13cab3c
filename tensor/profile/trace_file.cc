// TraceFile: text output of the object {"traceEvents": [event, ...]}, one event per line. Write errors are
// kept in the state of the stream, and thrown by close().
#include "gradus/tensor/profile/trace_file.h"

#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>

#include "gradus/tensor/base/error.h"

namespace gradus::internal {

TraceFile::TraceFile(const char* op, const std::filesystem::path& path)
    : op_(op), path_(path), out_(path, std::ios::binary) {
  check();
  out_ << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
}

void TraceFile::check() const {
  if (!out_) throw FileError(op_, path_.string(), ": cannot write: ", std::generic_category().message(errno));
}

void TraceFile::close() {
  out_ << "\n]}\n";
  out_.close();
  check();
}

void TraceFile::event(const std::string& fields) {
  out_ << (first_ ? "\n{" : ",\n{") << fields << '}';
  first_ = false;
}

void TraceFile::name_process(int64_t process, const std::string& name) {
  event(concat("\"ph\":\"M\",\"name\":\"process_name\",\"pid\":", process,
               ",\"args\":{\"name\":", quoted(name), "}"));
}

void TraceFile::name_thread(int64_t process, int64_t thread, const std::string& name) {
  event(concat("\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":", process, ",\"tid\":", thread,
               ",\"args\":{\"name\":", quoted(name), "}"));
}

std::string TraceFile::quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string TraceFile::microseconds(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%" PRId64 ".%03d", ns / 1000, int(ns % 1000));
  return text;
}

}  // namespace gradus::internal
