// TorchrunStore: the key-value store that torchrun hosts at MASTER_PORT for the ranks that it starts. Only
// ranks of the same torchrun find the job's store through it, whatever else runs on this host.
#pragma once

#include <string>
#include <string_view>

#include "gradus/distributed/store/socket.h"

namespace gradus::dist::internal {

class TorchrunStore {
 public:
  // Connects; retries until the store answers or the deadline passes. `op` is the name in errors. The
  // deadline also limits get(). Not thread-safe.
  // Errors: ConnectionError.
  TorchrunStore(const char* op, const std::string& host, int port, const Deadline& deadline);

  // Errors: ConnectionError if the store does not have the key afterward.
  void set(std::string_view key, std::string_view value);
  // Waits until the key has a value of at most 1000 bytes.
  // Errors: TimeoutError that names rank 0, which sets the key; ConnectionError for an answer that does not
  // follow PyTorch's protocol.
  std::string get(std::string_view key);

 private:
  void send(std::string_view bytes);
  std::string receive(size_t bytes);
  bool has(std::string_view key);
  [[noreturn]] void fail(std::string_view why) const;

  const char* const op_;
  const std::string address_;
  const Deadline deadline_;
  FileDescriptor socket_;
  std::string received_;
};

}  // namespace gradus::dist::internal
