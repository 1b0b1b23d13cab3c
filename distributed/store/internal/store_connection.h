// StoreConnection: a client's connection to a StoreServer, over which both have proven who they are.
#pragma once

#include <optional>
#include <string>

#include "gradus/distributed/store/socket.h"
#include "gradus/distributed/store/store_protocol.h"
#include "gradus/distributed/store/tcp_store.h"

namespace gradus::dist::internal {

class StoreConnection {
 public:
  // Connects to the server at one of the address' ports, trying again until it is there or time is over. With
  // `retry` off, only once. `who` says in which role.
  // Errors: ConnectionError, as connect_tcp_store.
  static StoreConnection open(const char* op, const StoreAddress& address, Hello who,
                              const Deadline& deadline, bool retry = true);

  // Each says why it failed.
  Io send(std::string_view frame, const Deadline& deadline, std::string* why);
  // The next message; its texts are valid until the next call. Bytes that are no message count as
  // kClosed. Once it has begun to come, every further part of it may take `patience`, if that is later
  // than the deadline.
  Io receive(Message* message, const Deadline& deadline, std::string* why,
             Milliseconds patience = Milliseconds(0));
  // The next message among those that have come already.
  std::optional<Message> next();
  // Takes in what has come, waiting until `deadline` for the first byte; kClosed also after bytes that
  // are no message.
  Io read(std::string* why, const Deadline& deadline = Deadline::after(Milliseconds(0)));
  int fd() const { return socket_.fd(); }
  int port() const { return port_; }  // the server's

 private:
  friend class Greeting;
  explicit StoreConnection(Socket socket, int port) : socket_(std::move(socket)), port_(port) {}

  Socket socket_;
  int port_;
  FrameReader in_;
  bool bad_ = false;
};

}  // namespace gradus::dist::internal
