#include "gradus/distributed/transport/ring_transport.h"

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

// Note [Rings]
// Each ordered pair of members has a ring of bytes, with one writer and one reader. A message is a
// MessageHead, the sender's header and the payload, written in pieces as there is room. Each member has a
// doorbell. Others ring it after they wrote to one of the member's rings, or made room in a ring that the
// member waits to write to.
//
// No thread of its own is needed. A thread that waits for a message moves all messages of its rank on
// (progress), one thread at a time. A message without a receive stays in the ring and holds its sender back.
// If a receive may be for a message behind it, it moves to the heap.

constexpr size_t kLine = 64;
constexpr size_t kAllRingsBytes = size_t(64) << 20;
constexpr size_t kMinRingBytes = size_t(16) << 10, kMaxRingBytes = size_t(256) << 10;
constexpr uint64_t kMaxPayloadBytes = uint64_t(1) << 47;

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

struct MessageHead {
  uint64_t tag;
  uint64_t payload_bytes;
  int64_t visible_at;  // in a simulation: when the message arrives
  uint32_t header_bytes;
  uint32_t zero;
};

size_t capacity(size_t members) {
  return std::clamp(std::bit_floor(kAllRingsBytes / (members * members)), kMinRingBytes, kMaxRingBytes);
}
size_t head_bytes(size_t members) {
  const size_t bytes = members * sizeof(Doorbell) + members * members * sizeof(Ring);
  return (bytes + 4095) / 4096 * 4096;
}

class RingTransport;

struct RingRequest : Request {
  explicit RingRequest(std::shared_ptr<RingTransport> transport) : transport(std::move(transport)) {}
  bool done() override;
  int source() const override { return from; }

  const std::shared_ptr<RingTransport> transport;
  std::vector<int> peers;  // the members that it waits for, by index
  int from = -1;           // of a receive: the sender's rank
  // All below is protected by the transport's lock.
  bool finished = false;
  bool given_up = false;
  std::exception_ptr error;

 protected:
  // Makes the transport forget the request before any part of it is destroyed: another thread
  // may be moving it.
  void dispose() override;
};

struct SendRequest : RingRequest {
  using RingRequest::RingRequest;
  std::vector<std::byte> head;  // MessageHead and header
  std::span<const std::byte> payload;
  size_t sent = 0;  // bytes sent, of head and payload
};

struct ReceiveRequest : RingRequest {
  using RingRequest::RingRequest;
  bool fits(size_t source, uint64_t message_tag) const {
    return tag == message_tag && std::ranges::find(peers, int(source)) != peers.end();
  }
  uint64_t tag = 0;
  Accept accept;
};

// A message that has moved to the heap.
struct Unexpected {
  size_t source;
  uint64_t tag;
  std::vector<std::byte> header, payload;
  bool complete = false;
  ReceiveRequest* taker = nullptr;  // a receive that got it before it was complete
};

// The message that the reader of a ring is reading.
struct Incoming {
  enum class Stage { kHead, kMatch, kPayload } stage = Stage::kHead;
  std::vector<std::byte> head;  // the part of MessageHead and header that has come
  MessageHead message{};
  uint64_t left = 0;  // of the payload
  // Where the payload goes: to a receive's buffer, to the heap, or nowhere.
  ReceiveRequest* receive = nullptr;
  std::byte* to = nullptr;
  Unexpected* unexpected = nullptr;
};

class RingTransport final : public Transport, public std::enable_shared_from_this<RingTransport> {
 public:
  RingTransport(std::shared_ptr<Segment> segment, std::shared_ptr<Membership> membership,
                std::vector<int> members, int index)
      : segment_(std::move(segment)),
        membership_(std::move(membership)),
        members_(std::move(members)),
        me_(index),
        capacity_(capacity(size())),
        doorbells_(reinterpret_cast<Doorbell*>(segment_->data())),
        rings_(reinterpret_cast<Ring*>(doorbells_ + size())),
        bytes_(segment_->data() + head_bytes(size())),
        outgoing_(size()),
        incoming_(size()),
        written_(size()),
        read_(size()) {
    if (segment_->bytes() < ring_bytes(int(size())))
      throw InternalError("rings of ", size(), " members in ", segment_->bytes(), " bytes");
  }

  ~RingTransport() override {
    if (!background_.joinable()) return;
    stopping_.store(true, std::memory_order_seq_cst);
    mine().ring();
    join_thread(background_);
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
      if (simulation->drops(members_[me_], peer)) {
        request->finished = true;
        return request;
      }
      head.visible_at = simulation->arrival(members_[me_], peer).time_since_epoch().count();
    }
    request->head.resize(sizeof head + header.size());
    std::memcpy(request->head.data(), &head, sizeof head);
    if (!header.empty()) std::memcpy(request->head.data() + sizeof head, header.data(), header.size());

    std::lock_guard lock(mutex_);
    outgoing_[request->peers[0]].push_back(request.get());
    progress();
    wake_background();
    return request;
  }

  Ref<Request> receive(int peer, Tag tag, Accept accept, std::vector<int> sources) override {
    auto request = make_ref<ReceiveRequest>(shared_from_this());
    request->tag = tag.bits();
    request->accept = std::move(accept);
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
    wake_background();
    return request;
  }

  void wait(Request& any, const Watch& watch, const char* op) override {
    RingRequest& request = static_cast<RingRequest&>(any);
    std::optional<WaitScope> waiting;
    const auto sleeps = [&] {
      if (!waiting) waiting.emplace(*watch.membership, Wait::for_any_rank([&] { return ranks(request); }));
    };
    for (;;) {
      uint32_t seen = 0;
      bool gone = false;
      std::optional<TimePoint> visible;
      {
        std::lock_guard lock(mutex_);
        // Looks whether all have left before it moves messages: so everything that they sent has been seen.
        gone = all_left(request);
        seen = mine().events.load(std::memory_order_seq_cst);
        while (!request.finished && progress()) {
        }
        if (finished(request, op)) return;
        visible = next_visible();
        gone = gone && !visible && corrupt_ < 0;
        if (gone) forget_locked(request);
        ++sleepers_;
      }
      WaitResult outcome = WaitResult::kReady;
      if (!gone && corrupt_ < 0) {
        const auto changed = [&] {
          return mine().events.load(std::memory_order_seq_cst) != seen || (!visible && all_left(request));
        };
        outcome = mine().signal.wait({watch.membership, earlier(watch.deadline, visible)}, changed, op,
                                     Futex::spin_limit(), sleeps);
      }
      {
        std::lock_guard lock(mutex_);
        --sleepers_;
      }
      if (gone) throw_left(op, watch, members_[request.peers[0]]);
      check_corrupt(op);
      if (outcome == WaitResult::kFailed || (outcome == WaitResult::kTimeout && watch.deadline.passed())) {
        forget(request);
        throw_wait(op, outcome, watch, ranks(request));
      }
    }
  }

  bool done(RingRequest& request, const char* op) {
    {
      std::lock_guard lock(mutex_);
      const bool gone = all_left(request);
      while (!request.finished && progress()) {
      }
      if (finished(request, op)) return true;
      if (!gone || next_visible()) {
        if (!membership_->failed() && corrupt_ < 0) return false;
      }
      forget_locked(request);
    }
    check_corrupt(op);
    membership_->check(op);
    throw_left(op, {membership_.get(), Deadline::after(Milliseconds(0))}, members_[request.peers[0]]);
  }

  int probe(Tag tag, const std::vector<int>& sources) override {
    std::vector<int> members;
    for (int source : sources) members.push_back(member(source));
    const auto asks_for = [&](size_t source, uint64_t message_tag) {
      return message_tag == tag.bits() && std::ranges::find(members, int(source)) != members.end();
    };
    std::lock_guard lock(mutex_);
    probe_ = {tag.bits(), members};
    while (progress()) {
    }
    probe_ = {};
    for (const Unexpected& message : unexpected_)
      if (!message.taker && asks_for(message.source, message.tag)) return members_[message.source];
    for (size_t source = 0; source < size(); ++source)
      if (is_held(incoming_[source]) && asks_for(source, incoming_[source].message.tag))
        return members_[source];
    return kAnySource;
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
      name_own_thread("messages");
      run_background();
    });
  }

  void forget(RingRequest& request) {
    std::lock_guard lock(mutex_);
    forget_locked(request);
  }

 private:
  size_t size() const { return members_.size(); }
  Doorbell& mine() const { return doorbells_[me_]; }
  Ring& ring(size_t from, size_t to) const { return rings_[from * size() + to]; }
  std::byte* ring_data(size_t from, size_t to) const { return bytes_ + (from * size() + to) * capacity_; }
  int member(int rank) const {
    const auto found = std::ranges::find(members_, rank);
    if (found == members_.end()) throw InternalError("rank ", rank, " is not on this host");
    return int(found - members_.begin());
  }
  std::vector<int> ranks(const RingRequest& request) const {
    std::vector<int> ranks;
    for (int peer : request.peers)
      if (!membership_->has_left(members_[peer])) ranks.push_back(members_[peer]);
    return ranks;
  }
  bool all_left(const RingRequest& request) const {
    return std::ranges::all_of(request.peers,
                               [&](int peer) { return membership_->has_left(members_[peer]); });
  }
  bool finished(const RingRequest& request, const char* op) const {
    if (request.given_up) membership_->check(op);  // throws the job's failure
    if (request.finished && request.error) std::rethrow_exception(request.error);
    return request.finished;
  }
  void check_corrupt(const char* op) {
    const int rank = corrupt_;
    if (rank < 0) return;
    const std::string text = concat("rank ", rank, " corrupted the shared-memory message ring");
    throw_failure(op, membership_->report({Failure::Kind::kFailed, rank, text}));
  }

  // ---- under the lock

  void finish(RingRequest& request) {
    request.finished = true;
    someone_finished_ = true;
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
    if (std::exchange(someone_finished_, false) && sleepers_ > 0) mine().ring();
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

  bool write(size_t peer) {
    std::deque<SendRequest*>& queue = outgoing_[peer];
    if (queue.empty()) return false;
    Ring& ring = this->ring(me_, peer);
    uint64_t room = room_in(ring, peer);
    if (room == 0) {
      ring.writer_waits.store(1, std::memory_order_seq_cst);
      room = room_in(ring, peer);  // again: the reader may have missed writer_waits
    }
    room = std::min<uint64_t>(room, step_bytes());
    if (room == 0) return false;

    while (room > 0 && !queue.empty()) {
      SendRequest& request = *queue.front();
      const size_t head_left = request.sent < request.head.size() ? request.head.size() - request.sent : 0;
      const std::span<const std::byte> source =
          head_left ? std::span<const std::byte>(request.head).last(head_left)
                    : request.payload.subspan(request.sent - request.head.size());
      const size_t n = std::min<uint64_t>(source.size(), room);
      if (n) copy_in(ring_data(me_, peer), written_[peer], source.data(), n);
      written_[peer] += n;
      request.sent += n;
      room -= n;
      if (request.sent < request.head.size() + request.payload.size()) continue;
      queue.pop_front();
      finish(request);
    }
    ring.written.store(written_[peer], std::memory_order_seq_cst);
    doorbells_[peer].ring();
    return true;
  }
  uint64_t room_in(const Ring& ring, size_t peer) {
    const uint64_t unread = written_[peer] - ring.read.load(std::memory_order_seq_cst);
    if (unread > capacity_) corrupt_ = members_[peer];
    return unread > capacity_ ? 0 : capacity_ - unread;
  }

  bool read(size_t source) {
    Ring& ring = this->ring(source, me_);
    const uint64_t start = read_[source];
    uint64_t ready = ring.written.load(std::memory_order_seq_cst) - start;
    if (ready > capacity_) {
      corrupt_ = members_[source];
      return false;
    }
    ready = std::min<uint64_t>(ready, step_bytes());
    bool moved = false;
    while (read_piece(source, ready)) moved = true;
    if (read_[source] != start) {
      ring.read.store(read_[source], std::memory_order_seq_cst);
      if (ring.writer_waits.load(std::memory_order_seq_cst) && ring.writer_waits.exchange(0))
        doorbells_[source].ring();
    }
    return moved;
  }

  // Reads one step of a message, with `ready` bytes in the ring. Returns whether there was a step.
  bool read_piece(size_t source, uint64_t& ready) {
    Incoming& incoming = incoming_[source];
    const auto take = [&](std::byte* to, size_t n) {
      if (to && n) copy_out(to, ring_data(source, me_), read_[source], n);
      read_[source] += n;
      ready -= n;
    };
    switch (incoming.stage) {
      case Incoming::Stage::kHead: {
        const size_t have = incoming.head.size();
        const bool fixed = have >= sizeof(MessageHead);
        const size_t whole = sizeof(MessageHead) + (fixed ? incoming.message.header_bytes : 0);
        const size_t n = std::min<uint64_t>(whole - have, ready);
        if (n == 0) return false;
        incoming.head.resize(have + n);
        take(incoming.head.data() + have, n);
        if (have + n < whole) return true;
        if (!fixed) {
          std::memcpy(&incoming.message, incoming.head.data(), sizeof(MessageHead));
          const MessageHead& message = incoming.message;
          if (message.header_bytes > kMaxHeaderBytes || message.payload_bytes > kMaxPayloadBytes ||
              message.zero != 0) {
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
          take(payload.data() + payload.size() - n, n);
        } else {
          take(incoming.to, n);
          if (incoming.to) incoming.to += n;
        }
        incoming.left -= n;
        if (incoming.left == 0) complete(incoming);
        return true;
      }
    }
    return false;
  }

  // Finds out where a message goes, once its header is there.
  bool match(size_t source) {
    Incoming& incoming = incoming_[source];
    if (!is_held(incoming)) return false;
    const std::span<const std::byte> header =
        std::span<const std::byte>(incoming.head).subspan(sizeof(MessageHead));
    const auto asked = std::ranges::find_if(
        posted_, [&](const ReceiveRequest* request) { return request->fits(source, incoming.message.tag); });
    if (asked != posted_.end()) {
      ReceiveRequest& request = **asked;
      posted_.erase(asked);
      incoming.to = accept(request, source, header, incoming.message.payload_bytes);
      incoming.receive = request.finished ? nullptr : &request;
    } else if (is_in_the_way(source, incoming.message.tag)) {
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
  bool is_in_the_way(size_t source, uint64_t tag) const {
    const auto names = [&](const std::vector<int>& peers) {
      return std::ranges::find(peers, int(source)) != peers.end();
    };
    if (names(probe_.members) && probe_.tag != tag) return true;
    return std::ranges::any_of(posted_, [&](const ReceiveRequest* request) { return names(request->peers); });
  }
  // Returns the room for the payload. If the receive refuses the message, the receive fails and the
  // payload is dropped.
  std::byte* accept(ReceiveRequest& request, size_t source, std::span<const std::byte> header, size_t bytes) {
    request.from = members_[source];
    try {
      return static_cast<std::byte*>(request.accept(request.from, header, bytes));
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
    std::byte* to = accept(request, message.source, message.header, message.payload.size());
    if (to && !message.payload.empty()) std::memcpy(to, message.payload.data(), message.payload.size());
    finish(request);
    unexpected_.remove_if([&](const Unexpected& other) { return &other == &message; });
  }

  // Gives up a request. From here on its memory must not be touched.
  void forget_locked(RingRequest& request) {
    if (request.finished) return;
    request.finished = request.given_up = true;
    request.error = std::make_exception_ptr(InternalError("a message that was given up"));
    std::erase_if(posted_, [&](const ReceiveRequest* other) { return other == &request; });
    for (Incoming& incoming : incoming_)
      if (incoming.receive == &request) incoming.receive = nullptr, incoming.to = nullptr;
    for (Unexpected& message : unexpected_)
      if (message.taker == &request) message.taker = nullptr;
    for (std::deque<SendRequest*>& queue : outgoing_)
      std::erase_if(queue, [&](const SendRequest* other) {
        // The message is half sent. The reader would take the next message for its rest.
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
  // Returns whether a message waits in the ring for its receive.
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

  // ---- the thread
  void wake_background() {
    if (has_background_) mine().ring();
  }
  void run_background() {
    while (!stopping_.load(std::memory_order_seq_cst)) {
      uint32_t seen = 0;
      std::optional<TimePoint> visible;
      {
        std::lock_guard lock(mutex_);
        seen = mine().events.load(std::memory_order_seq_cst);
        while (progress()) {
        }
        visible = next_visible();
      }
      const Deadline limit = earlier(Deadline::after(std::chrono::hours(24)), visible);
      const auto changed = [&] {
        return mine().events.load(std::memory_order_seq_cst) != seen ||
               stopping_.load(std::memory_order_seq_cst);
      };
      if (mine().signal.wait({membership_.get(), limit}, changed, "messages in the background") ==
          WaitResult::kFailed)
        return;
    }
  }

  const std::shared_ptr<Segment> segment_;
  const std::shared_ptr<Membership> membership_;
  const std::vector<int> members_;
  const size_t me_;
  const size_t capacity_;
  Doorbell* const doorbells_;
  Ring* const rings_;
  std::byte* const bytes_;

  std::mutex mutex_;
  std::vector<std::deque<SendRequest*>> outgoing_;  // per member
  std::vector<Incoming> incoming_;                  // per member
  std::vector<uint64_t> written_, read_;            // positions in the rings to and from each member
  std::list<ReceiveRequest*> posted_;
  std::list<Unexpected> unexpected_;  // in order of arrival
  struct {
    uint64_t tag = 0;
    std::vector<int> members;
  } probe_;  // while probe looks for a message
  bool someone_finished_ = false;
  bool broken_ = false;  // a half-sent message was given up: nothing moves any more
  int sleepers_ = 0;     // threads of this rank that wait for a message
  bool has_background_ = false;
  std::atomic<int> corrupt_{-1};  // the rank that wrote malformed data
  std::atomic<bool> stopping_{false};
  std::thread background_;
};

void RingRequest::dispose() {
  transport->forget(*this);
  delete this;
}
bool RingRequest::done() { return transport->done(*this, "a message"); }

}  // namespace

size_t ring_bytes(int members) {
  const size_t n = members;
  return head_bytes(n) + n * n * capacity(n);
}

std::shared_ptr<Transport> make_ring_transport(std::shared_ptr<Segment> segment,
                                               std::shared_ptr<Membership> membership,
                                               std::vector<int> members, int index) {
  Futex::set_ranks_on_host(int(members.size()));
  return std::make_shared<RingTransport>(std::move(segment), std::move(membership), std::move(members),
                                         index);
}

}  // namespace gradus::dist::internal
