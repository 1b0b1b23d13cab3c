// StoreService: the protocol of a store's server as a state machine without sockets and threads. Each
// connection goes through kHello (greeting), kProof (HMAC over both sides' nonces, keyed by the job's token),
// kOpen and kClosing (store_protocol.h). An open connection is a client's (requests to the StoreTable, the
// keys), or a member's or launcher's (heartbeats, reports and exits for the Roster, the state of the ranks).
// The caller moves the bytes, passes the time, serializes all calls, and passes only ids of connections that
// it has not disconnected.
#include "gradus/distributed/store/internal/store_service.h"

#include <algorithm>

#include "gradus/distributed/store/internal/status_wire.h"

namespace gradus::dist::internal {
namespace {

constexpr std::string_view kBadMessage = "was dropped: its connection carried something that is no message";
// Bytes not sent yet, above which a member may not query the statuses again. Enough for one answer.
constexpr size_t kMaxUnsent = 1 << 20;

bool is_launcher(const Hello& hello) { return hello.role == Role::kLauncher || hello.attempt == kAnyAttempt; }

}  // namespace

StoreService::Id StoreService::connect(TimePoint now) {
  const Id id = ++last_id_;
  Connection& c = connections_[id];
  changed_.insert(id);
  // A new connection displaces the oldest of those that have not been authenticated.
  greeting_.insert(id);
  if (greeting_.size() > options_.max_greeting) {
    const Id oldest = *greeting_.begin();
    drop(oldest, connections_.at(oldest), "");
  }
  set_deadline(id, c, now + options_.greeting_limit);
  return id;
}

void StoreService::receive(Id id, std::string_view bytes, TimePoint now) {
  Connection& c = connections_.at(id);
  c.in.append(bytes);
  while (c.state != State::kClosing) {
    const size_t limit = c.state != State::kOpen         ? kMaxGreeting
                         : c.hello.role == Role::kClient ? kMaxFrame
                                                         : kMaxNotice;
    std::string_view body;
    const FrameReader::State state = c.in.next(limit, &body);
    if (state == FrameReader::State::kTooLong) return drop(id, c, kBadMessage);
    if (state == FrameReader::State::kPartial) return update_deadline(id, c, now);
    handle(id, c, body, now);
  }
}

// Handles one message: a part of the handshake, a notice of a member or launcher, or a client's request.
void StoreService::handle(Id id, Connection& c, std::string_view body, TimePoint now) {
  if (c.state == State::kHello) return greet(id, c, body);
  if (c.state == State::kProof) return check_proof(id, c, body, now);
  const std::optional<Message> message = parse(body);
  if (!message) return drop(id, c, kBadMessage);
  if (c.hello.role != Role::kClient) return handle_notice(id, c, *message, now);
  // A client may send one request at a time, which bounds the memory for answers.
  if (table_.is_waiting(id) || !c.out.empty()) return drop(id, c, kBadMessage);
  const bool has_keys_only = message->type == MessageType::kWait || message->type == MessageType::kCheck;
  const std::span keys(message->texts.begin(),
                       has_keys_only ? message->texts.size() : std::min<size_t>(message->texts.size(), 1));
  if (!is_launcher(c.hello) &&
      std::ranges::any_of(keys, [](std::string_view key) { return key.starts_with(kLauncherPrefix); }))
    return send(id, c,
                encode({MessageType::kInvalid, {}, {"keys that begin with 'launcher/' are the launchers'"}}));
  StoreTable::Answers answers;
  if (!table_.request(id, *message, now, &answers)) return drop(id, c, kBadMessage);
  send_answers(answers, now);
}

void StoreService::greet(Id id, Connection& c, std::string_view body) {
  const std::optional<Hello> hello = parse_hello(body);
  if (!hello) return drop(id, c, kBadMessage);
  if (hello->version != kProtocolVersion)
    return refuse(id, c, Refusal::kVersion,
                  concat("it speaks version ", kProtocolVersion, " of the protocol"));
  if (connections_.size() > options_.max_connections)
    return refuse(id, c, Refusal::kFull, concat("it has ", options_.max_connections, " connections already"));
  c.hello = *hello;
  c.hello_frame = body;
  const std::string challenge = encode({MessageType::kChallenge, {}, {options_.nonce()}});
  c.challenge_frame = challenge.substr(sizeof(uint32_t));
  c.state = State::kProof;
  send(id, c, challenge);
}

const std::string& StoreService::token_of(const Hello& hello) const {
  return is_launcher(hello) ? options_.launcher_token : options_.token;
}

// Opens the connection if the client has the token of its role, belongs to this job and to the current
// attempt (one run of all ranks), and, for a member, if no other process is this rank. Otherwise refuses it
// with the reason.
void StoreService::check_proof(Id id, Connection& c, std::string_view body, TimePoint now) {
  const std::optional<Message> message = parse(body);
  if (!message || message->type != MessageType::kProof) return drop(id, c, kBadMessage);
  const std::string& token = token_of(c.hello);
  if ((is_launcher(c.hello) && token.empty()) ||
      !equal_proofs(message->texts[0], make_proof(token, "client", c.hello_frame, c.challenge_frame))) {
    refused_token_ = true;
    return refuse(id, c, Refusal::kToken, "the token is not this job's");
  }
  // From here on the client is known to have the token.
  const Hello& hello = c.hello;
  if (hello.job_id != options_.job_id) {
    refused_job_ = true;
    return refuse(id, c, Refusal::kJob, concat("it belongs to job '", options_.job_id, "'"));
  }
  if (hello.attempt != kAnyAttempt && hello.attempt != attempt_)
    return refuse(id, c, hello.attempt < attempt_ ? Refusal::kAttemptOver : Refusal::kAttemptNotBegun,
                  concat("the job is in attempt ", attempt_, ", this is attempt ", hello.attempt));
  if (hello.role == Role::kMember)
    if (auto why = roster_.join(hello.rank, hello.world_size, now)) {
      if (options_.known_by_port_alone && roster_.is_contended(hello.rank, now)) {
        report(two_jobs_failure(hello.rank));
        why = two_jobs_failure(hello.rank).text;
      }
      return refuse(id, c, Refusal::kRank, *why);
    }
  const std::string mac = make_proof(token, "server", c.hello_frame, c.challenge_frame);
  c.state = State::kOpen;
  c.registered = hello.role != Role::kClient;
  greeting_.erase(id);
  send(id, c, encode({MessageType::kWelcome, {}, {mac}}));
  if (!c.registered) return;
  for (int rank = 0; rank < hello.world_size; ++rank)
    if (roster_.has_left(rank)) send(id, c, encode({MessageType::kLeft, {rank}, {}}));
  if (roster_.failure()) send(id, c, encode(MessageType::kFailed, attempt_, *roster_.failure()));
}

// Handles messages that are not requests. They come from members and launchers.
void StoreService::handle_notice(Id id, Connection& c, const Message& message, TimePoint now) {
  const bool member = c.hello.role == Role::kMember;
  switch (message.type) {
    case MessageType::kHeartbeat: {
      std::optional<RankStatus> status = decode_status(message.texts[0], c.hello.world_size);
      if (!member || !status) break;
      roster_.heartbeat(c.hello.rank, message.numbers[0], std::move(*status), now);
      query_heartbeats();
      return send_failure();
    }
    case MessageType::kLeave:
      if (member && c.registered) {
        roster_.leave(c.hello.rank);
        send_left(c.hello.rank);
      }
      c.registered = false;
      return;
    case MessageType::kReport: {
      const std::optional<AttemptFailure> report = parse_failure(message);
      if (!report) break;
      if (report->attempt != attempt_ || !c.registered) return;
      if (member)
        roster_.report(report->failure, now);
      else
        roster_.confirm_failure(report->failure);
      return send_failure();
    }
    case MessageType::kRankExited: {
      const int64_t rank = message.numbers[1];
      if (member || rank < 0 || rank >= kMaxWorldSize) break;
      if (message.numbers[0] == attempt_ && c.registered) rank_exited(static_cast<int>(rank), now);
      return;
    }
    case MessageType::kQueryStatuses: {
      if (!member || c.out.size() > kMaxUnsent) break;
      const std::vector<RankStatus> statuses = roster_.statuses(now);
      Message answer{MessageType::kStatuses, {}, {}};
      std::vector<std::string> encoded;
      for (const RankStatus& s : statuses) {
        answer.numbers.insert(answer.numbers.end(), {s.rank, s.has_left, s.silent.count()});
        encoded.push_back(encode_status(s));
      }
      answer.texts.assign(encoded.begin(), encoded.end());
      return send(id, c, encode(answer));
    }
    default:
      break;
  }
  drop(id, c, kBadMessage);
}

// Sends the attempt's failure, once, to all members and launchers.
void StoreService::send_failure() {
  if (sent_failure_ || !roster_.failure()) return;
  sent_failure_ = true;
  for (auto& [id, c] : connections_)
    if (c.state == State::kOpen && c.hello.role != Role::kClient)
      send(id, c, encode(MessageType::kFailed, attempt_, *roster_.failure()));
}

// Requests a heartbeat from the ranks that may be in a deadlock, to confirm that they still wait.
void StoreService::query_heartbeats() {
  const std::optional<Roster::Query> query = roster_.take_query();
  if (!query) return;
  for (auto& [id, c] : connections_)
    if (c.state == State::kOpen && c.hello.role == Role::kMember && query->ranks.contains(c.hello.rank))
      send(id, c, encode({MessageType::kQueryHeartbeat, {query->number}, {}}));
}

void StoreService::send_left(int rank) {
  for (auto& [id, c] : connections_)
    if (c.state == State::kOpen && c.hello.role == Role::kMember)
      send(id, c, encode({MessageType::kLeft, {rank}, {}}));
}

void StoreService::send_answers(const StoreTable::Answers& answers, TimePoint now) {
  for (const auto& [id, frame] : answers) {
    Connection& c = connections_.at(id);
    send(id, c, frame);
    update_deadline(id, c, now);
  }
}

// Refuses a client that keeps to the protocol: sends the reason, and then closes the connection.
void StoreService::refuse(Id id, Connection& c, Refusal refusal, std::string_view why) {
  send(id, c, encode({MessageType::kRefused, {static_cast<int64_t>(refusal)}, {why}}));
  close(id, c);
}

// Closes a connection without sending its output. `why` is for the death of its member or launcher; "": the
// caller's.
void StoreService::drop(Id id, Connection& c, std::string_view why) {
  c.out.clear();
  c.sent = 0;
  c.why = why;
  close(id, c);
}

// Stops reading from the connection. What is still to be sent may take until the connection's deadline.
void StoreService::close(Id id, Connection& c) {
  c.state = State::kClosing;
  greeting_.erase(id);
  table_.cancel_wait(id);
  changed_.insert(id);
}

void StoreService::send(Id id, Connection& c, std::string frame) {
  if (c.out.empty())
    c.out = std::move(frame);
  else
    c.out += frame;
  changed_.insert(id);
}

bool StoreService::can_receive(Id id) const {
  const Connection& c = connections_.at(id);
  return c.state != State::kClosing && c.out.empty();
}

std::string_view StoreService::output(Id id) const {
  const Connection& c = connections_.at(id);
  return std::string_view(c.out).substr(c.sent);
}

void StoreService::mark_sent(Id id, size_t bytes, TimePoint now) {
  Connection& c = connections_.at(id);
  c.sent += bytes;
  if (c.sent == c.out.size()) {
    c.out = std::string();
    c.sent = 0;
    changed_.insert(id);
  }
  if (bytes > 0) update_deadline(id, c, now);
}

bool StoreService::should_close(Id id) const { return connections_.at(id).state == State::kClosing; }

// An authenticated client must finish a frame that it has begun to send or to receive within stall_limit.
void StoreService::update_deadline(Id id, Connection& c, TimePoint now) {
  if (c.state != State::kOpen) return;
  const bool busy = !c.out.empty() || c.in.pending() > 0;
  set_deadline(id, c, busy ? std::optional(now + options_.stall_limit) : std::nullopt);
}

void StoreService::set_deadline(Id id, Connection& c, std::optional<TimePoint> deadline) {
  if (c.deadline) deadlines_.erase({*c.deadline, id});
  c.deadline = deadline;
  if (deadline) deadlines_.emplace(*deadline, id);
}

void StoreService::disconnect(Id id, std::string_view why, TimePoint now) {
  const auto it = connections_.find(id);
  Connection& c = it->second;
  const std::string_view reason = c.why.empty() ? why : c.why;
  if (c.registered && c.hello.role == Role::kMember) roster_.connection_lost(c.hello.rank, reason, now);
  if (c.registered && c.hello.role == Role::kLauncher)
    roster_.launcher_connection_lost(c.hello.name, reason, now);
  set_deadline(id, c, {});
  greeting_.erase(id);
  table_.cancel_wait(id);
  changed_.erase(id);
  connections_.erase(it);
}

void StoreService::expire(TimePoint now) {
  StoreTable::Answers answers;
  table_.expire(now, &answers);
  send_answers(answers, now);
  roster_.expire(now);
  send_failure();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const Id id = deadlines_.begin()->second;
    Connection& c = connections_.at(id);
    set_deadline(id, c, {});
    drop(id, c, "is out of reach: its connection stalled in the middle of a message");
  }
}

std::optional<TimePoint> StoreService::next_deadline() const {
  std::optional<TimePoint> next = table_.next_deadline();
  const auto sooner = [&](TimePoint time) { next = next ? std::min(*next, time) : time; };
  if (const auto roster = roster_.next_deadline()) sooner(*roster);
  if (!deadlines_.empty()) sooner(deadlines_.begin()->first);
  return next;
}

std::vector<StoreService::Id> StoreService::pop_changed() {
  const std::vector<Id> ids(changed_.begin(), changed_.end());
  changed_.clear();
  return ids;
}

void StoreService::report(const Failure& failure) {
  roster_.confirm_failure(failure);
  send_failure();
}

void StoreService::rank_exited(int rank, TimePoint now) {
  roster_.process_ended(rank, now);
  if (roster_.has_left(rank)) send_left(rank);
  send_failure();
}

std::string StoreService::refusals() const {
  return concat(refused_token_ ? "; somebody who came was refused: the token was not this job's" : "",
                refused_job_ ? "; somebody who came was refused: the job's name was another" : "");
}

int StoreService::launchers() const {
  return static_cast<int>(std::ranges::count_if(connections_, [](const auto& entry) {
    return entry.second.registered && entry.second.hello.role == Role::kLauncher;
  }));
}

// Resets keys and ranks, and closes the connections of the previous attempt. Those of launchers, and of
// clients with kAnyAttempt, stay open.
void StoreService::begin_attempt(int attempt, TimePoint now) {
  attempt_ = attempt;
  sent_failure_ = false;
  table_.begin_attempt();
  roster_.begin_attempt();
  for (auto& [id, c] : connections_) {
    if (c.state != State::kOpen || c.hello.role == Role::kLauncher || c.hello.attempt == kAnyAttempt)
      continue;
    c.registered = false;
    close(id, c);
    set_deadline(id, c, now + options_.greeting_limit);
  }
}

}  // namespace gradus::dist::internal
