// StoreConnection: a client's connection to a StoreServer. Both sides have proven that they know the job's
// token. One thread may send while another receives. Io is the outcome of an operation (socket.h).
#pragma once

#include <optional>
#include <string>

#include "gradus/distributed/store/socket.h"
#include "gradus/distributed/store/store_protocol.h"
#include "gradus/distributed/store/tcp_store.h"

namespace gradus::dist::internal {

class StoreConnection {
 public:
  // Connects to the server; with `retry`, retries until the deadline, unless the server refuses for good or
  // is no store of this job. `who` has the client's role, attempt and, of a member, its rank; nonce and
  // job_id are set here.
  // Errors: ValueError for a port outside of 1 to 65535; ConnectionError, as for connect_tcp_store.
  static StoreConnection open(const char* op, const StoreAddress& address, Hello who,
                              const Deadline& deadline, bool retry = true);

  // Both set `why` when they fail.
  Io send(std::string_view frame, const Deadline& deadline, std::string* why);
  // Waits for the next message. Its texts are valid until the next call. Malformed bytes count as kClosed.
  // Once a part of the message has arrived, each further part may take `patience`, even beyond the deadline.
  Io receive(Message* message, const Deadline& deadline, std::string* why,
             Milliseconds patience = Milliseconds(0));
  // Returns the next message that has been read completely; nullopt if there is none.
  std::optional<Message> next();
  // Reads the bytes that have arrived; waits until `deadline` for the first. Malformed bytes: kClosed.
  Io read(std::string* why, const Deadline& deadline = Deadline::after(Milliseconds(0)));
  int fd() const { return socket_.fd(); }

 private:
  struct GreetingFailure;
  // Makes one attempt at one address. Returns nothing and sets `failure` if the server refuses.
  static std::optional<StoreConnection> greet(const SocketAddress& address, std::string_view token, Hello who,
                                              const Deadline& deadline, GreetingFailure& failure);
  explicit StoreConnection(FileDescriptor socket) : socket_(std::move(socket)) {}

  FileDescriptor socket_;
  FrameReader in_;
  bool protocol_error_ = false;
};

}  // namespace gradus::dist::internal
