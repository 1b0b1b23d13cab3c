// StoreConnection: a client's connection to a StoreServer. Both sides have proven that they know
// the job's token.
#pragma once

#include <optional>
#include <string>

#include "gradus/distributed/store/socket.h"
#include "gradus/distributed/store/store_protocol.h"
#include "gradus/distributed/store/tcp_store.h"

namespace gradus::dist::internal {

class StoreConnection {
 public:
  // Connects to the server. Tries again until the server is there or time is
  // over; without `retry`, tries once. `who` gives the client's role.
  // Errors: ConnectionError, as for connect_tcp_store.
  static StoreConnection open(const char* op, const StoreAddress& address, Hello who,
                              const Deadline& deadline, bool retry = true);

  // Both set `why` when they fail.
  Io send(std::string_view frame, const Deadline& deadline, std::string* why);
  // Waits for the next message. Its texts are valid until the next call. Bytes that are no message
  // count as kClosed. Once the message has begun to come, each further part may take `patience`, even
  // beyond the deadline.
  Io receive(Message* message, const Deadline& deadline, std::string* why,
             Milliseconds patience = Milliseconds(0));
  // Returns the next message among those that have come already.
  std::optional<Message> next();
  // Reads what has come. Waits until `deadline` for the first byte. Returns kClosed also after bytes that
  // are no message.
  Io read(std::string* why, const Deadline& deadline = Deadline::after(Milliseconds(0)));
  int fd() const { return socket_.fd(); }

 private:
  struct GreetingFailure;
  // Makes one attempt at one address. Returns nothing and sets `failure` if the server does not accept the client.
  static std::optional<StoreConnection> greet(const SocketAddress& address, std::string_view token, Hello who,
                                              const Deadline& deadline, GreetingFailure& failure);
  explicit StoreConnection(FileDescriptor socket) : socket_(std::move(socket)) {}

  FileDescriptor socket_;
  FrameReader in_;
  bool protocol_error_ = false;
};

}  // namespace gradus::dist::internal
