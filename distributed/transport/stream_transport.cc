// StreamTransport: tagged point-to-point messages over byte streams, shared-memory rings between ranks of one
// host and TCP between hosts. The state is guarded by one mutex; any thread may call. A member is an index in
// members_: first the ranks of this host, then those with a connection. A segment of zeros is a valid set of
// empty rings.
#include "gradus/distributed/transport/stream_transport.h"

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>

#include "gradus/distributed/health/still_threads.h"
#include "gradus/distributed/health/waiting.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::dist::internal {
namespace {

// Note [Streams]
// A message is a MessageHead, the sender's header and the payload, written to the stream in pieces as there
// is room. Each ordered pair of ranks of a host has a ring of bytes in shared memory, with one writer and one
// reader. Each rank has a doorbell. Others ring it after they wrote to one of the rank's rings, or made room
// in a ring that the rank waits to write to. Two ranks of different hosts have a TCP connection. A thread
// (the poller) waits until connections can be read or written, and then moves messages.
//
// Every thread that waits for a message moves all messages of its rank (progress), one thread at a time. A
// message without a matching receive stays in its stream, so the sender blocks (flow control). Only if a
// posted receive may match a later message of the stream, the first message moves to the heap (an unexpected
// message, as in MPI).

constexpr size_t kLine = 64;
constexpr size_t kAllRingsBytes = size_t(64) << 20;
// A ring has the largest power of two so that all rings fit into kAllRingsBytes, within these limits.
constexpr size_t kMinRingBytes = size_t(16) << 10, kMaxRingBytes = size_t(256) << 10;
constexpr uint64_t kMaxPayloadBytes = uint64_t(1) << 47;
// The most that is moved through a connection at a time, so that all connections make progress.
constexpr size_t kSocketStep = size_t(256) << 10;
// How long the job's failure, or the peer's exit, may take to become known after a connection broke. After
// that, the broken connection is reported as the failure.
constexpr Milliseconds kFailureDelay{1000};
// How long messages of a peer that has left may take to arrive, unless its connection ends earlier.
constexpr Milliseconds kRemainderLimit{2000};
// How long a transport that ends waits for its messages to arrive.
constexpr Milliseconds kFlushLimit{2000};
constexpr uint64_t kWake = ~uint64_t(0);  // the epoll id of the eventfd

struct alignas(kLine) Doorbell {
  void ring() {
    events.fetch_add(1, std::memory_order_seq_cst);
    signal.notify();
  }
  Futex signal;
  std::atomic<uint32_t> events{0};
};

struct Ring {
  alignas(kLine) std::atomic<uint64_t> written{0};  // bytes ever written
  alignas(kLine) std::atomic<uint64_t> read{0};     // bytes ever read
  std::atomic<uint32_t> writer_waits{0};            // the writer waits for room
};

// The fixed part of a message in the stream, in the host's byte order.
struct MessageHead {
  uint64_t tag;
  uint64_t payload_bytes;
  int64_t visible_at;  // in a simulation: when the message arrives
  uint32_t header_bytes;
  uint32_t zero;  // detects corrupt streams
};

// Returns the bytes of one ring.
size_t capacity(size_t members) {
  return std::clamp(std::bit_floor(kAllRingsBytes / (members * members)), kMinRingBytes, kMaxRingBytes);
}
size_t head_bytes(size_t members) {
  const size_t bytes = members * sizeof(Doorbell) + members * members * sizeof(Ring);
  return (bytes + 4095) / 4096 * 4096;
}

class StreamTransport;

// A send or receive in progress. The caller's reference owns it; the transport has plain pointers to it until
// it has finished or is forgotten.
struct StreamRequest : Request {
  explicit StreamRequest(std::shared_ptr<StreamTransport> transport) : transport(std::move(transport)) {}
  bool done() override;
  int source() const override { return from; }

  const std::shared_ptr<StreamTransport> transport;
  std::vector<int> peers;  // the members that it waits for, by index
  int from = -1;           // of a receive: the sender's rank
  // Set once, after given_up (forgotten before completion) and error.
  std::atomic<bool> finished{false};
  bool given_up = false;
  std::exception_ptr error;

 protected:
  // Makes the transport forget the request before any part of it is destroyed: another thread
  // may be moving it.
  void dispose() override;
};

struct SendRequest : StreamRequest {
  using StreamRequest::StreamRequest;
  std::vector<std::byte> head;  // MessageHead and header
  std::span<const std::byte> payload;
  size_t sent = 0;  // bytes sent, of head and payload
};

struct ReceiveRequest : StreamRequest {
  using StreamRequest::StreamRequest;
  bool fits(size_t source, uint64_t message_tag) const {
    return tag == message_tag && std::ranges::find(peers, int(source)) != peers.end();
  }
  uint64_t tag = 0;
  ProvideBuffer provide_buffer;
};

// A message that has moved to the heap.
struct Unexpected {
  size_t source;
  uint64_t tag;
  std::vector<std::byte> header, payload;
  bool complete = false;
  ReceiveRequest* taker = nullptr;  // a receive that got it before it was complete
};

// The message that the reader of a stream is reading.
struct Incoming {
  enum class Stage { kHead, kMatch, kPayload } stage = Stage::kHead;
  std::vector<std::byte> head;  // the bytes of MessageHead and header received so far
  MessageHead message{};
  uint64_t left = 0;  // of the payload
  // Where the payload goes: to a receive's buffer, to the heap, or nowhere.
  ReceiveRequest* receive = nullptr;
  std::byte* to = nullptr;
  Unexpected* unexpected = nullptr;
};

// The TCP connection to a rank of another host.
struct Connection {
  FileDescriptor socket;
  // Whether the socket may be read or written (edge-triggered epoll). The poller sets them; a read or write
  // that would block clears them.
  bool readable = true, writable = true;
  bool drained = false;                    // nothing more can be read
  TimePoint broken_at = TimePoint::max();  // max: it works
  std::string error = {};                  // why it broke
  TimePoint left_at = TimePoint::max();    // when it was first seen that the peer has left
};

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK; }

class StreamTransport final : public Transport, public std::enable_shared_from_this<StreamTransport> {
 public:
  StreamTransport(std::shared_ptr<Segment> segment, std::shared_ptr<Membership> membership,
                  std::vector<int> members, int index, std::map<int, FileDescriptor> sockets)
      : segment_(std::move(segment)),
        membership_(std::move(membership)),
        ring_count_(members.size()),
        index_(index),
        members_(std::move(members)),
        capacity_(capacity(ring_count_)),
        doorbells_(reinterpret_cast<Doorbell*>(segment_->data())),
        rings_(reinterpret_cast<Ring*>(doorbells_ + ring_count_)),
        bytes_(segment_->data() + head_bytes(ring_count_)),
        outgoing_(ring_count_ + sockets.size()),
        incoming_(ring_count_ + sockets.size()),
        written_(ring_count_),
        read_(ring_count_) {
    if (segment_->bytes() < ring_bytes(int(ring_count_)))
      throw InternalError("rings of ", ring_count_, " members in ", segment_->bytes(), " bytes");
    if (!sockets.empty()) start_poller(std::move(sockets));
  }

  ~StreamTransport() override {
    close_connections();
    if (!background_.joinable()) return;
    stopping_.store(true, std::memory_order_seq_cst);
    local_doorbell().ring();
    join_thread(background_);
  }

  // If there are connections, waits up to kFlushLimit until all sent bytes are acknowledged, closes them, and
  // stops all messages, also those of rings. Otherwise does nothing.
  void close_connections() {
    if (!poller_.joinable()) return;
    for (const Deadline limit = Deadline::after(kFlushLimit); is_sending() && !limit.passed();)
      std::this_thread::sleep_for(Milliseconds(1));
    stopping_.store(true, std::memory_order_seq_cst);
    wake_poller();
    poller_.join();
    std::lock_guard lock(mutex_);
    broken_ = true;
    for (Connection& c : connections_) c.socket.close();
  }

  Ref<Request> send(int peer, Tag tag, std::span<const std::byte> header,
                    std::span<const std::byte> payload) override {
    if (header.size() > kMaxHeaderBytes) throw InternalError("message header of ", header.size(), " bytes");
    MessageHead head{tag.bits(), payload.size(), 0, uint32_t(header.size()), 0};
    auto request = make_ref<SendRequest>(shared_from_this());
    request->peers = {member(peer)};
    request->payload = payload;
    if (Simulation* simulation = Simulation::current()) {
      simulation->step("send");
      if (simulation->drops_message(members_[index_], peer)) {
        request->finished = true;
        return request;
      }
      head.visible_at = simulation->arrival_time(members_[index_], peer).time_since_epoch().count();
    }
    request->head.resize(sizeof head + header.size());
    std::memcpy(request->head.data(), &head, sizeof head);
    if (!header.empty()) std::memcpy(request->head.data() + sizeof head, header.data(), header.size());
    std::lock_guard lock(mutex_);
    outgoing_[request->peers[0]].push_back(request.get());
    progress();
    wake_background(*request);
    return request;
  }

  Ref<Request> receive(int peer, Tag tag, ProvideBuffer provide_buffer, std::vector<int> sources) override {
    auto request = make_ref<ReceiveRequest>(shared_from_this());
    request->tag = tag.bits();
    request->provide_buffer = std::move(provide_buffer);
    if (peer != kAnySource) sources = {peer};
    if (sources.empty()) sources = members_;
    for (int source : sources) request->peers.push_back(member(source));
    std::lock_guard lock(mutex_);
    const auto fits = [&](const Unexpected& message) {
      return !message.taker && request->fits(message.source, message.tag);
    };
    const auto message = std::ranges::find_if(unexpected_, fits);
    if (message == unexpected_.end()) {
      posted_.push_back(request.get());
    } else {
      message->taker = request.get();
      if (message->complete) deliver(*message);
    }
    progress();
    wake_background(*request);
    return request;
  }

  void wait(Request& any, const WaitLimits& watch, const char* op) override {
    StreamRequest& request = static_cast<StreamRequest&>(any);
    std::optional<WaitScope> waiting;
    const auto sleeps = [&] {
      if (!waiting) waiting.emplace(*watch.membership, Wait::for_any_rank([&] { return ranks(request); }));
    };
    // A wait for a connection does not spin: the poller may need this core.
    const int spins = std::ranges::any_of(request.peers, [&](int peer) { return is_remote(peer); })
                          ? 0
                          : Futex::spin_limit();
    while (!finished(request, op)) {
      uint32_t seen = 0;
      bool left = false;
      End end;
      std::optional<TimePoint> next;
      {
        std::lock_guard lock(mutex_);
        const TimePoint time = time_for_connections();
        seen = local_doorbell().events.load(std::memory_order_seq_cst);
        left = all_left(request);
        end = advance(request, time);
        if (request.finished) continue;
        if (end.kind != End::Kind::kNone) forget_locked(request);
        next = next_change(request, time);
        ++sleepers_;
      }
      WaitResult outcome = WaitResult::kReady;
      if (end.kind == End::Kind::kNone) {
        const auto changed = [&] {
          return local_doorbell().events.load(std::memory_order_seq_cst) != seen ||
                 (!left && all_left(request));
        };
        outcome = local_doorbell().signal.wait({watch.membership, earlier(watch.deadline, next)}, changed, op,
                                               spins, sleeps);
      }
      --sleepers_;
      throw_end(end, request, watch, op);
      if (outcome == WaitResult::kFailed || (outcome == WaitResult::kTimeout && watch.deadline.passed())) {
        forget(request);
        throw_wait(op, outcome, watch, ranks(request));
      }
    }
  }

  // Moves messages without blocking. Returns whether the request has finished; throws if it can never finish.
  bool done(StreamRequest& request, const char* op) {
    if (finished(request, op)) return true;
    End end;
    {
      std::lock_guard lock(mutex_);
      end = advance(request, time_for_connections());
      if (!request.finished && end.kind == End::Kind::kNone && !membership_->failed()) return false;
      forget_locked(request);
    }
    if (!request.given_up) return finished(request, op);
    membership_->check(op);
    throw_end(end, request, {membership_.get(), Deadline::after(Milliseconds(0))}, op);
    return false;
  }

  void progress_in_background() override {
    {
      std::lock_guard lock(mutex_);
      if (std::exchange(has_background_, true)) return;
    }
    // Uses an empty context: the caller's would keep alive the world that owns this transport.
    Context context;
    ContextScope scope(context);
    background_ = start_thread([this] {
      name_framework_thread("messages");
      run_background();
    });
  }

  void forget(StreamRequest& request) {
    std::lock_guard lock(mutex_);
    forget_locked(request);
  }

 private:
  size_t size() const { return members_.size(); }
  bool is_remote(size_t member) const { return member >= ring_count_; }
  Connection& connection(size_t member) { return connections_[member - ring_count_]; }
  const Connection& connection(size_t member) const { return connections_[member - ring_count_]; }
  Doorbell& local_doorbell() const { return doorbells_[index_]; }
  Ring& ring(size_t from, size_t to) const { return rings_[from * ring_count_ + to]; }
  std::byte* ring_data(size_t from, size_t to) const {
    return bytes_ + (from * ring_count_ + to) * capacity_;
  }
  int member(int rank) const {
    const auto found = std::ranges::find(members_, rank);
    if (found == members_.end()) throw InternalError("rank ", rank, " is no peer of this transport");
    return int(found - members_.begin());
  }
  std::vector<int> ranks(const StreamRequest& request) const {
    std::vector<int> ranks;
    for (int peer : request.peers)
      if (!membership_->has_left(members_[peer])) ranks.push_back(members_[peer]);
    return ranks;
  }
  bool all_left(const StreamRequest& request) const {
    return std::ranges::all_of(request.peers,
                               [&](int peer) { return membership_->has_left(members_[peer]); });
  }
  bool finished(const StreamRequest& request, const char* op) const {
    if (!request.finished.load(std::memory_order_acquire)) return false;
    if (request.given_up) membership_->check(op);  // throws the job's failure
    if (request.error) std::rethrow_exception(request.error);
    return true;
  }

  // Why a request can never finish. kLeft: all its peers have left. kFailed: a peer has corrupted a ring, or
  // its connection broke.
  struct End {
    enum class Kind { kNone, kLeft, kFailed } kind = Kind::kNone;
    Failure failure = {};  // of kFailed
  };
  void throw_end(const End& end, const StreamRequest& request, const WaitLimits& watch,
                 const char* op) const {
    if (end.kind == End::Kind::kLeft) throw_left(op, watch, members_[request.peers[0]]);
    if (end.kind == End::Kind::kFailed) throw_failure(op, watch.membership->report(end.failure));
  }

  // ---- the functions below are called with mutex_ locked, except those of the threads

  void finish(StreamRequest& request) {
    request.finished.store(true, std::memory_order_release);
    someone_finished_ = true;
  }

  // Returns the current time, which only the time limits of connections need.
  TimePoint time_for_connections() const { return connections_.empty() ? TimePoint() : now(); }

  // Moves messages until the request is finished or nothing moves. Returns why it can never finish, if so.
  End advance(StreamRequest& request, TimePoint time) {
    // Checks first whether all peers have left, so that everything that they sent has been seen.
    const bool gone = std::ranges::all_of(request.peers, [&](int peer) { return is_gone(peer, time); });
    while (!request.finished && progress()) {
    }
    if (request.finished) return {};
    if (corrupt_ >= 0)
      return {End::Kind::kFailed,
              {Failure::Kind::kFailed, corrupt_,
               concat("rank ", corrupt_, " corrupted the shared-memory message ring")}};
    for (int peer : request.peers) {
      const int rank = members_[peer];
      if (!is_remote(peer) || membership_->has_left(rank) ||
          time - connection(peer).broken_at < kFailureDelay)
        continue;
      return {End::Kind::kFailed,
              {Failure::Kind::kDied, rank,
               concat("connection to rank ", rank, " broke: ", connection(peer).error)}};
    }
    return {gone && !next_visible() ? End::Kind::kLeft : End::Kind::kNone};
  }
  // Returns whether a peer has left, and everything that it sent has arrived or the time for that is over.
  bool is_gone(int peer, TimePoint time) {
    if (!membership_->has_left(members_[peer])) return false;
    if (!is_remote(peer)) return true;
    Connection& c = connection(peer);
    if (c.left_at == TimePoint::max()) c.left_at = time;
    return c.drained || time - c.left_at >= kRemainderLimit;
  }
  // Returns when to advance a request again, if nothing happens before.
  std::optional<TimePoint> next_change(const StreamRequest& request, TimePoint time) const {
    std::optional<TimePoint> next = next_visible();
    const auto consider = [&](TimePoint since, Milliseconds limit) {
      if (since != TimePoint::max() && since + limit > time)
        next = std::min(next.value_or(TimePoint::max()), since + limit);
    };
    for (int peer : request.peers) {
      if (!is_remote(peer)) continue;
      consider(connection(peer).broken_at, kFailureDelay);
      consider(connection(peer).left_at, kRemainderLimit);
    }
    return next;
  }

  // Moves a bounded amount of what can be moved. Returns whether anything moved.
  bool progress() {
    if (broken_ || corrupt_ >= 0 || membership_->failed()) return false;
    bool moved = false;
    for (size_t peer = 0; peer < size(); ++peer) {
      moved |= write(peer);
      moved |= read(peer);
    }
    // Other threads of this rank may wait for requests that this thread has finished.
    if (std::exchange(someone_finished_, false) && sleepers_ > 0) local_doorbell().ring();
    return moved;
  }

  // Copies to or from a ring at a position that counts from its beginning.
  void copy_in(std::byte* ring, uint64_t position, const std::byte* from, size_t n) const {
    const size_t at = position % capacity_, first = std::min(n, capacity_ - at);
    std::memcpy(ring + at, from, first);
    if (n > first) std::memcpy(ring, from + first, n - first);
  }
  void copy_out(std::byte* to, const std::byte* ring, uint64_t position, size_t n) const {
    const size_t at = position % capacity_, first = std::min(n, capacity_ - at);
    std::memcpy(to, ring + at, first);
    if (n > first) std::memcpy(to + first, ring, n - first);
  }
  // The most that is copied at a time, so that writer and reader work in parallel.
  size_t step_bytes() const { return capacity_ / 4; }

  // Writes queued messages to the peer's stream, one step at most. Returns whether any byte moved.
  bool write(size_t peer) {
    std::deque<SendRequest*>& queue = outgoing_[peer];
    if (queue.empty()) return false;
    uint64_t room = is_remote(peer) ? room_in(connection(peer)) : room_in(ring(index_, peer), peer);
    bool moved = false;
    while (room > 0 && !queue.empty()) {
      SendRequest& request = *queue.front();
      const size_t head_left = request.sent < request.head.size() ? request.head.size() - request.sent : 0;
      const std::span<const std::byte> source =
          head_left ? std::span<const std::byte>(request.head).last(head_left)
                    : request.payload.subspan(request.sent - request.head.size());
      const auto part = source.first(std::min<uint64_t>(source.size(), room));
      const size_t n = put(peer, part, /*more=*/head_left && !request.payload.empty());
      moved = moved || n > 0;
      request.sent += n;
      room -= n;
      if (n < part.size()) break;
      if (request.sent < request.head.size() + request.payload.size()) continue;
      queue.pop_front();
      finish(request);
    }
    if (moved && !is_remote(peer)) {
      ring(index_, peer).written.store(written_[peer], std::memory_order_seq_cst);
      doorbells_[peer].ring();
    }
    return moved;
  }
  // Writes to the stream. Returns the number of bytes written. `more`: the message continues at once.
  size_t put(size_t peer, std::span<const std::byte> bytes, bool more) {
    if (!is_remote(peer)) {
      copy_in(ring_data(index_, peer), written_[peer], bytes.data(), bytes.size());
      written_[peer] += bytes.size();
      return bytes.size();
    }
    Connection& c = connection(peer);
    const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0);
    ssize_t n = 0;
    do {
      n = ::send(c.socket.fd(), bytes.data(), bytes.size(), flags);
    } while (n < 0 && errno == EINTR);
    if (n >= 0) return size_t(n);
    c.writable = false;
    if (!would_block()) break_connection(c, errno_text());
    return 0;
  }
  static size_t room_in(const Connection& c) {
    return c.writable && c.broken_at == TimePoint::max() ? kSocketStep : 0;
  }
  // Returns how much may be written to a ring now. If it is full, the reader will ring when there is room.
  uint64_t room_in(Ring& ring, size_t peer) {
    uint64_t room = free_bytes(ring, peer);
    if (room == 0) {
      ring.writer_waits.store(1, std::memory_order_seq_cst);
      room = free_bytes(ring, peer);  // again: the reader may have missed writer_waits
    }
    return std::min<uint64_t>(room, step_bytes());
  }
  uint64_t free_bytes(const Ring& ring, size_t peer) {
    const uint64_t unread = written_[peer] - ring.read.load(std::memory_order_seq_cst);
    if (unread > capacity_) corrupt_ = members_[peer];
    return unread > capacity_ ? 0 : capacity_ - unread;
  }

  // Marks a connection as not writable any more. Received bytes can still be read.
  void break_connection(Connection& c, const std::string& error) {
    if (c.broken_at != TimePoint::max()) return;
    c.broken_at = now();
    c.error = error;
    c.readable = true;         // looks for the end of the stream
    someone_finished_ = true;  // waiting threads look again
  }
  void end_reading(Connection& c, const std::string& error) {
    c.drained = true;
    break_connection(c, error);
  }

  bool read_connection(size_t source) {
    Connection& c = connection(source);
    // A message without payload may have waited for its receive: of that nothing is left in the connection.
    const bool matched = read_pieces(source, 0);
    if (!c.readable || c.drained) return matched;
    int available = 0;
    (void)::ioctl(c.socket.fd(), FIONREAD, &available);
    if (available <= 0) {
      std::byte next;
      const ssize_t n = ::recv(c.socket.fd(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
      if (n > 0 || (n < 0 && errno == EINTR)) return true;  // data has come meanwhile
      c.readable = false;
      if (n == 0 || !would_block()) end_reading(c, n == 0 ? "connection closed" : errno_text());
      return matched;
    }
    return read_pieces(source, std::min<size_t>(size_t(available), kSocketStep)) || matched;
  }
  // Reads from a stream that has `ready` bytes. Returns whether a message advanced.
  bool read_pieces(size_t source, uint64_t ready) {
    bool moved = false;
    while (read_piece(source, ready)) moved = true;
    return moved;
  }

  // Reads one step of the source's stream. Returns whether anything moved.
  bool read(size_t source) {
    if (is_remote(source)) return read_connection(source);
    Ring& ring = this->ring(source, index_);
    const uint64_t start = read_[source];
    const uint64_t ready = ring.written.load(std::memory_order_seq_cst) - start;
    if (ready > capacity_) {
      corrupt_ = members_[source];
      return false;
    }
    const bool moved = read_pieces(source, std::min<uint64_t>(ready, step_bytes()));
    if (read_[source] != start) {
      ring.read.store(read_[source], std::memory_order_seq_cst);
      if (ring.writer_waits.load(std::memory_order_seq_cst) && ring.writer_waits.exchange(0))
        doorbells_[source].ring();
    }
    return moved;
  }

  // Takes n of the `ready` bytes out of the stream, and drops them if there is no `to`. Returns false if the
  // connection fails.
  bool take(size_t source, std::byte* to, size_t n, uint64_t& ready) {
    ready -= n;
    if (!is_remote(source)) {
      if (to && n) copy_out(to, ring_data(source, index_), read_[source], n);
      read_[source] += n;
      return true;
    }
    Connection& c = connection(source);
    while (n > 0) {
      const ssize_t taken = ::recv(c.socket.fd(), to, n, MSG_DONTWAIT | (to ? 0 : MSG_TRUNC));
      if (taken < 0 && errno == EINTR) continue;
      if (taken <= 0) {
        end_reading(c, taken == 0 ? "connection closed" : errno_text());
        return false;
      }
      n -= size_t(taken);
      if (to) to += taken;
    }
    return true;
  }

  // Reads one step of a message, with `ready` bytes in the stream. Returns whether there was a step.
  bool read_piece(size_t source, uint64_t& ready) {
    Incoming& incoming = incoming_[source];
    switch (incoming.stage) {
      case Incoming::Stage::kHead: {
        const size_t have = incoming.head.size();
        const bool fixed = have >= sizeof(MessageHead);
        const size_t whole = sizeof(MessageHead) + (fixed ? incoming.message.header_bytes : 0);
        const size_t n = std::min<uint64_t>(whole - have, ready);
        if (n == 0) return false;
        incoming.head.resize(have + n);
        if (!take(source, incoming.head.data() + have, n, ready)) return false;
        if (have + n < whole) return true;
        if (!fixed) {
          std::memcpy(&incoming.message, incoming.head.data(), sizeof(MessageHead));
          const MessageHead& message = incoming.message;
          if (message.header_bytes > kMaxHeaderBytes || message.payload_bytes > kMaxPayloadBytes ||
              message.zero != 0) {
            if (is_remote(source))
              end_reading(connection(source), concat("rank ", members_[source], " sent what is no message"));
            else
              corrupt_ = members_[source];
            return false;
          }
          if (message.header_bytes > 0) return true;
        }
        incoming.stage = Incoming::Stage::kMatch;
        return true;
      }
      case Incoming::Stage::kMatch:
        return match(source);
      case Incoming::Stage::kPayload: {
        const size_t n = std::min(incoming.left, ready);
        if (n == 0 && incoming.left > 0) return false;
        if (incoming.unexpected) {
          std::vector<std::byte>& payload = incoming.unexpected->payload;
          payload.resize(payload.size() + n);
          if (!take(source, payload.data() + payload.size() - n, n, ready)) return false;
        } else {
          if (!take(source, incoming.to, n, ready)) return false;
          if (incoming.to) incoming.to += n;
        }
        incoming.left -= n;
        if (incoming.left == 0) complete(incoming);
        return true;
      }
    }
    return false;
  }

  // Chooses the destination of the message whose header has arrived: the oldest matching receive, or the
  // heap. Returns false if the message stays in the stream.
  bool match(size_t source) {
    Incoming& incoming = incoming_[source];
    if (!is_held(incoming)) return false;
    const std::span<const std::byte> header =
        std::span<const std::byte>(incoming.head).subspan(sizeof(MessageHead));
    const auto posted = std::ranges::find_if(
        posted_, [&](const ReceiveRequest* request) { return request->fits(source, incoming.message.tag); });
    if (posted != posted_.end()) {
      ReceiveRequest& request = **posted;
      posted_.erase(posted);
      incoming.to = request_buffer(request, source, header, incoming.message.payload_bytes);
      incoming.receive = request.finished ? nullptr : &request;
    } else if (is_in_the_way(source)) {
      incoming.unexpected = &unexpected_.emplace_back(source, incoming.message.tag,
                                                      std::vector<std::byte>(header.begin(), header.end()));
    } else {
      return false;
    }
    incoming.left = incoming.message.payload_bytes;
    incoming.stage = Incoming::Stage::kPayload;
    return true;
  }
  // Returns whether a receive may be for a message behind this one, which has no receive.
  bool is_in_the_way(size_t source) const {
    return std::ranges::any_of(posted_, [&](const ReceiveRequest* request) {
      return std::ranges::find(request->peers, int(source)) != request->peers.end();
    });
  }
  // Returns the buffer for the payload. If the receive's callback throws, the receive fails and null is
  // returned: the payload is dropped.
  std::byte* request_buffer(ReceiveRequest& request, size_t source, std::span<const std::byte> header,
                            size_t bytes) {
    request.from = members_[source];
    try {
      return static_cast<std::byte*>(request.provide_buffer(request.from, header, bytes));
    } catch (...) {
      request.error = std::current_exception();
      finish(request);
      return nullptr;
    }
  }
  void complete(Incoming& incoming) {
    if (incoming.receive) finish(*incoming.receive);
    if (incoming.unexpected) {
      incoming.unexpected->complete = true;
      if (incoming.unexpected->taker) deliver(*incoming.unexpected);
    }
    incoming = {};
  }
  // Gives a complete message on the heap to its receive.
  void deliver(Unexpected& message) {
    ReceiveRequest& request = *message.taker;
    std::byte* to = request_buffer(request, message.source, message.header, message.payload.size());
    if (to && !message.payload.empty()) std::memcpy(to, message.payload.data(), message.payload.size());
    finish(request);
    unexpected_.remove_if([&](const Unexpected& other) { return &other == &message; });
  }

  // Gives up a request. From here on its memory must not be touched.
  void forget_locked(StreamRequest& request) {
    if (request.finished) return;
    request.given_up = true;
    request.error = std::make_exception_ptr(InternalError("a message that was given up"));
    request.finished.store(true, std::memory_order_release);
    std::erase_if(posted_, [&](const ReceiveRequest* other) { return other == &request; });
    for (Incoming& incoming : incoming_)
      if (incoming.receive == &request) incoming.receive = nullptr, incoming.to = nullptr;
    for (Unexpected& message : unexpected_)
      if (message.taker == &request) message.taker = nullptr;
    for (std::deque<SendRequest*>& queue : outgoing_)
      std::erase_if(queue, [&](const SendRequest* other) {
        // The message is partly sent: the reader would read the next message as the rest of this one.
        if (other == &request && other->sent > 0) broken_ = true;
        return other == &request;
      });
  }

  // ---- delays of a simulation
  static TimePoint visible_at(const Incoming& incoming) {
    return TimePoint(TimePoint::duration(incoming.message.visible_at));
  }
  static bool is_visible(const Incoming& incoming) {
    return incoming.message.visible_at == 0 || visible_at(incoming) <= now();
  }
  // Returns whether a message is held in its stream until it has a receive.
  static bool is_held(const Incoming& incoming) {
    return incoming.stage == Incoming::Stage::kMatch && is_visible(incoming);
  }
  // Returns when the next message under way arrives, if there is one.
  std::optional<TimePoint> next_visible() const {
    std::optional<TimePoint> next;
    for (const Incoming& incoming : incoming_)
      if (incoming.stage == Incoming::Stage::kMatch && !is_visible(incoming))
        next = std::min(next.value_or(TimePoint::max()), visible_at(incoming));
    return next;
  }
  static Deadline earlier(const Deadline& deadline, std::optional<TimePoint> visible) {
    if (!visible || *visible >= deadline.time()) return deadline;
    return Deadline::after(std::chrono::ceil<Milliseconds>(*visible - now()));
  }

  // ---- the threads

  // Lets a thread continue with what is left to be moved for the request.
  void wake_background(const StreamRequest& request) {
    if (has_background_) local_doorbell().ring();
    const auto can_move = [&](int peer) {
      return is_remote(peer) &&
             (connection(peer).readable || (connection(peer).writable && !outgoing_[size_t(peer)].empty()));
    };
    if (!request.finished && std::ranges::any_of(request.peers, can_move)) wake_poller();
  }
  void wake_poller() { (void)!::eventfd_write(wake_.fd(), 1); }

  void start_poller(std::map<int, FileDescriptor> sockets) {
    epoll_ = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
    wake_ = FileDescriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    const auto watch = [&](const FileDescriptor& file, uint64_t id, uint32_t events) {
      epoll_event event{.events = events, .data = {.u64 = id}};
      if (::epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, file.fd(), &event) != 0)
        throw ConnectionError("init_process_group", -1, "cannot watch connections: ", errno_text());
    };
    watch(wake_, kWake, EPOLLIN);
    for (auto& [rank, socket] : sockets) {
      watch(socket, connections_.size(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
      members_.push_back(rank);
      connections_.push_back({.socket = std::move(socket)});
    }
    poller_ = std::thread([this] {
      name_framework_thread("sockets");
      poll_connections();
    });
  }
  void poll_connections() {
    epoll_event events[64];
    while (!stopping_.load(std::memory_order_seq_cst)) {
      const int count = ::epoll_wait(epoll_.fd(), events, int(std::size(events)), -1);
      std::unique_lock lock(mutex_);
      for (int i = 0; i < count; ++i) {
        eventfd_t wakes;
        if (events[i].data.u64 == kWake) {
          (void)!::eventfd_read(wake_.fd(), &wakes);
          continue;
        }
        Connection& c = connections_[events[i].data.u64];
        c.readable = c.readable || (events[i].events & ~uint32_t(EPOLLOUT));
        c.writable = c.writable || (events[i].events & ~uint32_t(EPOLLIN | EPOLLRDHUP));
      }
      while (!stopping_.load(std::memory_order_seq_cst) && progress()) {
        lock.unlock();  // other threads of this rank move messages too
        lock.lock();
      }
    }
  }
  // Returns whether messages to ranks of other hosts are still on their way.
  bool is_sending() {
    std::lock_guard lock(mutex_);
    if (broken_ || membership_->failed()) return false;
    for (size_t peer = ring_count_; peer < size(); ++peer) {
      int unacknowledged = 0;
      if (connection(peer).broken_at != TimePoint::max()) continue;
      (void)::ioctl(connection(peer).socket.fd(), SIOCOUTQ, &unacknowledged);
      if (!outgoing_[peer].empty() || unacknowledged > 0) return true;
    }
    return false;
  }

  void run_background() {
    while (!stopping_.load(std::memory_order_seq_cst)) {
      uint32_t seen = 0;
      std::optional<TimePoint> visible;
      {
        std::lock_guard lock(mutex_);
        seen = local_doorbell().events.load(std::memory_order_seq_cst);
        while (progress()) {
        }
        visible = next_visible();
      }
      const Deadline limit = earlier(Deadline::after(std::chrono::hours(24)), visible);
      const auto changed = [&] {
        return local_doorbell().events.load(std::memory_order_seq_cst) != seen ||
               stopping_.load(std::memory_order_seq_cst);
      };
      if (local_doorbell().signal.wait({membership_.get(), limit}, changed, "messages in the background") ==
          WaitResult::kFailed)
        return;
    }
  }

  const std::shared_ptr<Segment> segment_;
  const std::shared_ptr<Membership> membership_;
  const size_t ring_count_;  // number of ranks of this host
  const size_t index_;
  std::vector<int> members_;  // the ranks of this host, then those with a connection; set by the constructor
  const size_t capacity_;
  Doorbell* const doorbells_;
  Ring* const rings_;
  std::byte* const bytes_;

  std::mutex mutex_;
  std::vector<std::deque<SendRequest*>> outgoing_;  // per member
  std::vector<Incoming> incoming_;                  // per member
  std::vector<uint64_t> written_, read_;  // positions in the rings to and from each member of this host
  std::vector<Connection> connections_;   // per member of another host
  std::list<ReceiveRequest*> posted_;
  std::list<Unexpected> unexpected_;  // in order of arrival
  bool someone_finished_ = false;
  bool broken_ = false;  // nothing moves any more: a half-sent message was given up, or connections closed
  std::atomic<int> sleepers_ = 0;  // threads of this rank that wait for a message
  bool has_background_ = false;
  std::atomic<int> corrupt_{-1};  // the rank that wrote malformed data to a ring
  std::atomic<bool> stopping_{false};
  std::thread background_;
  FileDescriptor epoll_, wake_;
  std::thread poller_;
};

void StreamRequest::dispose() {
  transport->forget(*this);
  delete this;
}
bool StreamRequest::done() { return transport->done(*this, "a message"); }

}  // namespace

size_t ring_bytes(int members) {
  const size_t n = members;
  return head_bytes(n) + n * n * capacity(n);
}

std::shared_ptr<Transport> make_stream_transport(std::shared_ptr<Segment> segment,
                                                 std::shared_ptr<Membership> membership,
                                                 std::vector<int> members, int index,
                                                 std::map<int, FileDescriptor> sockets) {
  const auto transport = std::make_shared<StreamTransport>(std::move(segment), std::move(membership),
                                                           std::move(members), index, std::move(sockets));
  // Requests keep the transport alive, but its user's end closes the connections.
  return {transport.get(), [transport](StreamTransport*) { transport->close_connections(); }};
}

}  // namespace gradus::dist::internal
