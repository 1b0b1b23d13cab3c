// Text of the exception that ends a rank: for the other ranks (Failure), and for the launcher as a JSON error
// file in the format of torchrun (torch.distributed.elastic). Texts of both are cut to 64 KiB.
#include "gradus/distributed/base/rank_error.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/tensor/base/error.h"

namespace gradus::dist {
namespace {

constexpr size_t kMaxText = 64 << 10;  // maximal bytes of an error's text

// Returns the current time in whole seconds, the form that torchrun parses.
std::string seconds_since_epoch() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

// Returns the string at a path of keys ("/message/extraInfo"), or "".
std::string string_at(const nlohmann::json& json, const char* path) {
  const nlohmann::json::json_pointer pointer(path);
  if (!json.contains(pointer) || !json.at(pointer).is_string()) return "";
  return json.at(pointer).get<std::string>().substr(0, kMaxText);
}

// Returns the rank that a DistributedError blames; nothing for other exceptions.
std::optional<int> rank_at_fault(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const DistributedError& e) {
    return e.rank();
  } catch (...) {
    return {};
  }
}

}  // namespace

std::string short_name(const std::type_info& type) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 && demangled ? demangled : type.name();
  std::free(demangled);
  // Removes one of these prefixes, the longest first.
  for (const char* scope : {"gradus::dist::", "gradus::", "std::"})
    if (name.starts_with(scope)) return name.substr(std::string_view(scope).size());
  return name;
}

std::string error_text(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (const std::string& text) {
    return text;
  } catch (const char* text) {
    return text ? text : "";
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    return "an exception of type " + (type ? short_name(*type) : "unknown");
  }
}

std::string describe_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return concat(short_name(typeid(e)), ": ", e.what());
  } catch (...) {
    return error_text(error);
  }
}

Failure failure_of(int rank, const std::exception_ptr& error, std::string_view how) {
  return {Failure::Kind::kFailed, rank,
          concat("rank ", rank, ' ', how, ": ", describe_error(error).substr(0, kMaxText))};
}

void write_error_file(const std::exception_ptr& error, const std::string& traceback) noexcept {
  try {
    const char* path = std::getenv("GRADUS_ERROR_FILE");
    if (!path || !*path) path = std::getenv("TORCHELASTIC_ERROR_FILE");
    if (!path || !*path) return;
    nlohmann::json info = {{"text", error_text(error).substr(0, kMaxText)},
                           {"timestamp", seconds_since_epoch()}};
    if (const std::optional<int> rank = rank_at_fault(error)) info["rank"] = *rank;
    if (!traceback.empty()) info["py_callstack"] = traceback;
    const nlohmann::json content = {
        {"message", {{"message", describe_error(error).substr(0, kMaxText)}, {"extraInfo", info}}}};
    const internal::FileDescriptor file(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    struct stat status;
    if (fstat(file.fd(), &status) == 0 && status.st_size == 0)  // the first error counts
      internal::write_all(file.fd(), content.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } catch (...) {  // the caller still has the error itself
  }
}

std::optional<ErrorFile> parse_error_file(std::string_view content) {
  const nlohmann::json json = nlohmann::json::parse(content, nullptr, /*allow_exceptions=*/false);
  ErrorFile file;
  file.message = string_at(json, "/message/message");
  if (file.message.empty()) file.message = string_at(json, "/message");
  if (file.message.empty()) return {};
  file.traceback = string_at(json, "/message/extraInfo/py_callstack");
  const nlohmann::json::json_pointer rank("/message/extraInfo/rank");
  if (json.contains(rank) && json.at(rank).is_number_integer()) file.rank_at_fault = json.at(rank).get<int>();
  return file;
}

}  // namespace gradus::dist
