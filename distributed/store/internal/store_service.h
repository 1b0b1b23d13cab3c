// StoreService: the server of a job's key-value store, without sockets and threads. A connection is a stream
// of bytes. The service authenticates the client (store_protocol.h), answers a client's requests, and sends
// ranks (members) and launchers the job's failures. An attempt is one run of all ranks. The caller moves the
// bytes and passes the time. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/distributed/health/roster.h"
#include "gradus/distributed/store/store_protocol.h"
#include "gradus/distributed/store/store_table.h"

namespace gradus::dist::internal {

struct StoreServiceOptions {
  std::string job_id, token, launcher_token;  // no launcher_token: launchers are refused
  size_t max_connections = 4096;
  size_t max_greeting = 256;           // maximum number of connections whose handshake is not complete
  Milliseconds greeting_limit{5'000};  // time limit of the handshake
  Milliseconds stall_limit{30'000};    // time limit for a client to receive or send a part of a message
  bool known_by_port_alone = false;    // as in StoreServerOptions
  std::function<std::string()> nonce = random_nonce;
};

class StoreService {
 public:
  using Id = uint64_t;

  explicit StoreService(StoreServiceOptions options) : options_(std::move(options)) {}

  // Adds a new connection and returns its id. All other functions take ids that are not disconnected.
  Id connect(TimePoint now);
  // Handles received bytes. After a violation of the protocol, should_close() is true.
  void receive(Id id, std::string_view bytes, TimePoint now);
  // Returns whether to read from the connection: not while it has output, nor when it is to be closed.
  bool can_receive(Id id) const;
  // output returns the bytes to send, valid until the next call; mark_sent records how many were sent.
  std::string_view output(Id id) const;
  void mark_sent(Id id, size_t bytes, TimePoint now);
  // Returns whether to close the connection, once output() is empty.
  bool should_close(Id id) const;
  // Removes a connection that is closed. If its member or launcher has not left, that is a failure with the
  // text `why` ("died: its connection closed").
  void disconnect(Id id, std::string_view why, TimePoint now);

  // Ends waits for keys, handshakes and messages whose time is over. To call when next_deadline() has passed.
  void expire(TimePoint now);
  std::optional<TimePoint> next_deadline() const;
  // Returns the connections whose output, can_receive or should_close may have changed since the last call.
  std::vector<Id> pop_changed();

  // Reports of the launcher in this process: the attempt has failed; a rank's process has exited with code 0.
  void report(const Failure& failure);
  void rank_exited(int rank, TimePoint now);
  const std::optional<Failure>& failure() const {
    return roster_.failure();
  }  // of the attempt; nullopt: none
  // Discards keys (except launchers'), ranks and failure, and closes earlier attempts' connections.
  void begin_attempt(int attempt, TimePoint now);
  size_t connections() const { return connections_.size(); }
  std::string refusals() const;  // as StoreServer's
  int launchers() const;         // how many are connected and have not left

 private:
  enum class State { kHello, kProof, kOpen, kClosing };
  struct Connection {
    State state = State::kHello;
    FrameReader in;
    std::string out;
    size_t sent = 0;
    Hello hello;
    std::string hello_frame, challenge_frame;  // as they were on the wire, since their bytes are signed
    bool registered = false;                   // a member or launcher that has not left
    std::string why;                           // why it was dropped
    std::optional<TimePoint> deadline;         // when to drop it
  };

  const std::string& token_of(const Hello& hello) const;
  void handle(Id id, Connection& c, std::string_view body, TimePoint now);
  void greet(Id id, Connection& c, std::string_view body);
  void check_proof(Id id, Connection& c, std::string_view body, TimePoint now);
  void handle_notice(Id id, Connection& c, const Message& message, TimePoint now);
  void refuse(Id id, Connection& c, Refusal refusal, std::string_view why);
  void drop(Id id, Connection& c, std::string_view why);
  void close(Id id, Connection& c);
  void send(Id id, Connection& c, std::string frame);
  void send_answers(const StoreTable::Answers& answers, TimePoint now);
  void send_failure();
  void query_heartbeats();
  void send_left(int rank);
  void set_deadline(Id id, Connection& c, std::optional<TimePoint> deadline);
  void update_deadline(Id id, Connection& c, TimePoint now);

  const StoreServiceOptions options_;
  StoreTable table_;
  Roster roster_;
  int attempt_ = 0;
  bool sent_failure_ = false;
  bool refused_token_ = false, refused_job_ = false;
  Id last_id_ = 0;
  std::map<Id, Connection> connections_;
  std::set<Id> greeting_;  // oldest first
  std::set<std::pair<TimePoint, Id>> deadlines_;
  std::set<Id> changed_;
};

}  // namespace gradus::dist::internal
