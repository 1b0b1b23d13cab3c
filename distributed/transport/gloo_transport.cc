#include "gradus/distributed/transport/gloo_transport.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <mutex>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/health/waiting.h"
#include "gradus/distributed/transport/gloo_mesh.h"
#include "gradus/distributed/transport/internal/gloo_link.h"

namespace gradus::dist::internal {
namespace {

// How often a wait looks whether its peers' connections still work. kTroubleInterval: after one
// has stopped working.
constexpr Milliseconds kProbeInterval{500};
constexpr Milliseconds kTroubleInterval{20};
// How long it may take after a connection broke until the job's failure, or the peer's
// leaving, becomes known.
constexpr Milliseconds kTruthLimit{1000};
// How long messages of a peer that has left may take to arrive, unless its connection ends earlier.
constexpr Milliseconds kRemainderLimit{2000};
// How long a rank that ends waits for its messages to arrive.
constexpr Milliseconds kFlushLimit{2000};

// A payload between its sender's memory and its receiver's.
struct Moving {
  class GlooRequest* request;
  GlooBuffer buffer;
  std::vector<std::byte> scratch;  // where the payload goes if its receive has failed
};
// The key is the peer and the sender's number of the payload.
using MovingTable = std::map<std::pair<int, uint64_t>, Moving>;

// A message without a receive.
struct Arrived {
  int source;
  uint64_t tag;
  uint64_t bytes;
  uint64_t id;  // of a payload that waits at its sender; 0: `payload` has all
  std::vector<std::byte> header, payload;
};

class GlooTransport;

class GlooRequest final : public Request {
 public:
  GlooRequest(std::shared_ptr<GlooTransport> transport, std::vector<int> peers)
      : transport(std::move(transport)), peers(std::move(peers)) {}
  ~GlooRequest() override;
  bool done() override;
  int source() const override { return from; }
  bool fits(int source, uint64_t message_tag) const {
    return tag == message_tag && std::ranges::find(peers, source) != peers.end();
  }

  const std::shared_ptr<GlooTransport> transport;
  const std::vector<int> peers;  // the request waits for one of them
  std::atomic<bool> finished{false};
  // All below under the transport's lock, until it is finished.
  int from = -1;
  std::exception_ptr error;
  uint64_t tag = 0;
  Accept accept;
  MovingTable* moving = nullptr;  // the table and key of its payload under way
  MovingTable::key_type key;
};

// The messages of this rank that have arrived, and the receives that wait for one. Requests keep the transport
// alive, but its user's end shuts it down.
class GlooTransport final : public Transport,
                            public GlooLink::Listener,
                            public std::enable_shared_from_this<GlooTransport> {
 public:
  GlooTransport(const GlooSetup& setup, const Watch& watch)
      : rank_(setup.rank),
        size_(setup.size),
        membership_(setup.membership),
        mesh_(setup, watch),
        greeted_(size_),
        left_at_(size_) {}
  ~GlooTransport() override { shut_down(); }

  // Sends a greeting to all other ranks, and waits for theirs.
  void start(const Watch& watch) {
    for (int peer = 0; peer < size_; ++peer)
      links_.push_back(peer == rank_ ? nullptr
                                     : std::make_unique<GlooLink>(mesh_.outgoing(peer), mesh_.incoming(peer),
                                                                  peer, *this));
    for_links([&](int peer, GlooLink& link) {
      link.start();
      link.send({.kind = Frame::Kind::kHello}, std::as_bytes(std::span(mesh_.my_secret(peer))));
    });
    for_links([&](int peer, GlooLink&) {
      const auto greeted = [&] { return greeted_[peer].load(std::memory_order_acquire); };
      wait_until(greeted, {peer}, watch, "init_process_group");
    });
  }

  Ref<Request> send(int peer, Tag tag, std::span<const std::byte> header,
                    std::span<const std::byte> payload) override {
    if (header.size() > kMaxHeaderBytes) throw InternalError("message header of ", header.size(), " bytes");
    auto request = make_ref<GlooRequest>(shared_from_this(), std::vector{peer});
    Frame frame{.kind = Frame::Kind::kMessage, .tag = tag.bits(), .payload_bytes = payload.size()};
    if (peer == rank_) {
      const auto copy = [](std::span<const std::byte> bytes) {
        return std::vector(bytes.begin(), bytes.end());
      };
      arrive({rank_, frame.tag, payload.size(), 0, copy(header), copy(payload)});
      request->finished = true;
      return request;
    }
    GlooLink& link = *links_[peer];
    if (payload.size() <= kInlineBytes) {
      link.send(frame, header, payload);
      request->finished = !link.broken();
      return request;
    }
    frame.kind = Frame::Kind::kAnnounce;
    frame.id = link.next_payload_id();
    const GlooBuffer buffer =
        mesh_.outgoing(peer).createUnboundBuffer(const_cast<std::byte*>(payload.data()), payload.size());
    {
      std::lock_guard lock(mutex_);
      set_moving(*request, outgoing_, {peer, frame.id});
      outgoing_[request->key] = {request.get(), buffer, {}};
    }
    link.send_payload(frame.id, buffer);
    link.send(frame, header);
    return request;
  }

  Ref<Request> receive(int peer, Tag tag, Accept accept, std::vector<int> sources) override {
    if (peer != kAnySource) sources = {peer};
    for (int rank = 0; sources.empty() && rank < size_; ++rank) sources.push_back(rank);
    auto request = make_ref<GlooRequest>(shared_from_this(), std::move(sources));
    request->tag = tag.bits();
    request->accept = std::move(accept);
    Arrived message;
    GlooBuffer buffer;
    {
      std::lock_guard lock(mutex_);
      const auto fits = [&](const Arrived& one) { return request->fits(one.source, one.tag); };
      const auto found = std::ranges::find_if(arrived_, fits);
      if (found == arrived_.end()) {
        posted_.push_back(request.get());
        return request;
      }
      message = std::move(*found);
      arrived_.erase(found);
      buffer = deliver(message, *request);
    }
    if (buffer) links_[message.source]->receive_payload(message.id, buffer);
    return request;
  }

  int probe(Tag tag, const std::vector<int>& sources) override {
    std::lock_guard lock(mutex_);
    const auto fits = [&](const Arrived& one) {
      return one.tag == tag.bits() && std::ranges::find(sources, one.source) != sources.end();
    };
    const auto found = std::ranges::find_if(arrived_, fits);
    return found == arrived_.end() ? kAnySource : found->source;
  }

  void progress_in_background() override {}  // the links' threads and gloo's do that

  void wait(Request& any, const Watch& watch, const char* op) override {
    auto& request = static_cast<GlooRequest&>(any);
    try {
      wait_until([&] { return request.finished.load(std::memory_order_acquire); }, request.peers, watch, op);
    } catch (...) {
      forget(request);
      throw;
    }
    if (request.error) std::rethrow_exception(request.error);
  }

  bool done(GlooRequest& request) {
    if (!request.finished.load(std::memory_order_acquire)) {
      try {
        const Watch watch{membership_.get(), Deadline::after(std::chrono::hours(1))};
        check(request.peers, watch, "wait");
        return false;
      } catch (...) {
        forget(request);
        if (!request.finished.load(std::memory_order_acquire)) throw;
      }
    }
    if (request.error) std::rethrow_exception(request.error);
    return true;
  }

  // Gives up a request. Nothing waits for it any more, and its memory may go away.
  void forget(GlooRequest& request) {
    bool is_moving;
    {
      std::lock_guard lock(mutex_);
      if (request.finished.load(std::memory_order_relaxed)) return;
      posted_.remove(&request);
      is_moving = request.moving;
    }
    if (!is_moving) return;
    shut_down();
    std::lock_guard lock(mutex_);
    if (request.moving) request.moving->erase(request.key);
    request.moving = nullptr;
  }

  // Waits until what was sent has arrived. Stops early if the job has failed or the peer is gone.
  void flush() {
    const Watch watch{membership_.get(), Deadline::after(kFlushLimit)};
    for_links([&](int, GlooLink& link) {
      const uint64_t sent = link.sent();
      link.send({.kind = Frame::Kind::kCount, .wants_ack = true});
      signal_.wait(
          watch, [&] { return link.broken() || link.all_arrived(sent); }, "gloo flush");
    });
  }

  // Ends all communication. From now on gloo leaves our memory alone, and nothing more comes.
  void shut_down() {
    std::lock_guard lock(shut_down_mutex_);
    if (std::exchange(is_shut_down_, true)) return;
    for_links([](int, GlooLink& link) { link.stop(); });
    mesh_.close();
  }

  void on_frame(int peer, const Frame& frame, std::span<const std::byte> header,
                std::span<const std::byte> payload) override {
    const bool first = !greeted_[peer].load(std::memory_order_relaxed);
    if (first != (frame.kind == Frame::Kind::kHello)) throw ConnectionError("gloo", peer, "no greeting");
    switch (frame.kind) {
      case Frame::Kind::kHello:
        if (!std::ranges::equal(header, std::as_bytes(std::span(mesh_.secret_of(peer)))))
          throw ConnectionError("gloo", peer, "somebody else came in place of rank ", peer);
        greeted_[peer].store(true, std::memory_order_release);
        break;
      case Frame::Kind::kMessage:
      case Frame::Kind::kAnnounce:
        arrive({peer,
                frame.tag,
                frame.payload_bytes,
                frame.kind == Frame::Kind::kAnnounce ? frame.id : 0,
                {header.begin(), header.end()},
                {payload.begin(), payload.end()}});
        break;
      case Frame::Kind::kTaken:
        finish_moving(outgoing_, {peer, frame.id});
        break;
      case Frame::Kind::kCount:
        break;
    }
    signal_.notify();
  }

  void on_payload(int peer, uint64_t id) override {
    links_[peer]->send({.kind = Frame::Kind::kTaken, .id = id});  // first: this rank may end when it has all
    finish_moving(incoming_, {peer, id});
    signal_.notify();
  }

  void on_broken(int) override { signal_.notify(); }

 private:
  template <class F> void for_links(F&& f) const {
    for (int peer = 0; peer < int(links_.size()); ++peer)
      if (links_[peer]) f(peer, *links_[peer]);
  }

  // ---- waiting

  bool is_broken(int peer) const { return links_[peer] && links_[peer]->broken(); }
  bool has_left(int peer) const { return membership_->has_left(peer); }
  // Returns whether something is wrong with the peers that a wait is for: one is gone, or all have left.
  bool in_trouble(const std::vector<int>& peers) const {
    return std::ranges::any_of(peers, [&](int peer) { return is_broken(peer) && !has_left(peer); }) ||
           std::ranges::all_of(peers, [&](int peer) { return has_left(peer); });
  }

  template <class Ended>
  void wait_until(Ended&& ended, const std::vector<int>& peers, const Watch& watch, const char* op) {
    if (ended()) return;
    const WaitScope waiting(*watch.membership, Wait::for_any_rank([&] { return peers; }));
    while (!ended()) {
      const bool trouble = in_trouble(peers);
      const auto slice =
          Deadline::after(std::min(watch.deadline.left(), trouble ? kTroubleInterval : kProbeInterval));
      const auto changed = [&] { return ended() || (!trouble && in_trouble(peers)); };
      // Does not spin: gloo's thread and the link's thread need the core before anything can come.
      const WaitResult outcome = signal_.wait({watch.membership, slice}, changed, op, 0);
      if (outcome == WaitResult::kReady) continue;
      check(peers, watch, op);
      for (int peer : peers)
        if (links_[peer]) links_[peer]->probe();
    }
  }

  // Throws when nothing more can come from the peers in time.
  void check(const std::vector<int>& peers, const Watch& watch, const char* op) {
    if (watch.membership->failed()) throw_wait(op, WaitResult::kFailed, watch, peers);
    for (int peer : peers) {
      if (!is_broken(peer) || has_left(peer) || now() - links_[peer]->broken_at() < kTruthLimit) continue;
      const std::string text = concat("connection to rank ", peer, " broke: ", links_[peer]->trouble());
      throw_failure(op, watch.membership->report({Failure::Kind::kDied, peer, text}));
    }
    const auto is_gone = [&](int peer) {
      if (!has_left(peer)) return false;
      TimePoint never{};
      left_at_[peer].compare_exchange_strong(never, now());
      return peer == rank_ || is_broken(peer) || now() - left_at_[peer].load() > kRemainderLimit;
    };
    if (std::ranges::all_of(peers, is_gone)) throw_left(op, watch, peers[0]);
    if (watch.deadline.passed()) throw_wait(op, WaitResult::kTimeout, watch, peers);
  }

  // ---- matching

  void arrive(Arrived message) {
    GlooBuffer buffer;
    {
      std::lock_guard lock(mutex_);
      const auto fits = [&](const GlooRequest* one) { return one->fits(message.source, message.tag); };
      const auto found = std::ranges::find_if(posted_, fits);
      if (found == posted_.end()) {
        arrived_.push_back(std::move(message));
        return;
      }
      GlooRequest& request = **found;
      posted_.erase(found);
      buffer = deliver(message, request);
    }
    if (buffer) links_[message.source]->receive_payload(message.id, buffer);
    signal_.notify();
  }

  // Gives a message to a receive. Returns where the payload goes, or null if it is here already. Call it
  // under the lock.
  GlooBuffer deliver(const Arrived& message, GlooRequest& request) {
    request.from = message.source;
    void* to = nullptr;
    try {
      to = request.accept(message.source, message.header, message.bytes);
    } catch (...) {
      request.error = std::current_exception();
    }
    if (message.id == 0) {
      if (!request.error && message.bytes) std::memcpy(to, message.payload.data(), message.bytes);
      finish(request);
      return nullptr;
    }
    // A refused payload must still come, so that its sender gets its memory back.
    Moving moving{.request = &request, .buffer = nullptr, .scratch = {}};
    if (request.error) {
      moving.scratch.resize(message.bytes);
      to = moving.scratch.data();
    }
    const GlooBuffer buffer = moving.buffer =
        mesh_.incoming(message.source).createUnboundBuffer(to, message.bytes);
    set_moving(request, incoming_, {message.source, message.id});
    incoming_[request.key] = std::move(moving);
    return buffer;
  }

  static void set_moving(GlooRequest& request, MovingTable& table, const MovingTable::key_type& key) {
    request.moving = &table;
    request.key = key;
  }
  static void finish(GlooRequest& request) {
    request.moving = nullptr;
    request.finished.store(true, std::memory_order_release);  // from here on it may be gone
  }
  void finish_moving(MovingTable& table, const MovingTable::key_type& key) {
    MovingTable::node_type ended;  // destroyed after the lock is released
    std::lock_guard lock(mutex_);
    ended = table.extract(key);
    if (ended) finish(*ended.mapped().request);
  }

  const int rank_, size_;
  const std::shared_ptr<Membership> membership_;
  GlooMesh mesh_;
  std::vector<std::atomic<bool>> greeted_;
  std::vector<std::atomic<TimePoint>> left_at_;  // when it was first seen that the peer has left
  Futex signal_;                                 // something has come, or broken

  std::mutex shut_down_mutex_;
  bool is_shut_down_ = false;

  std::mutex mutex_;
  std::list<GlooRequest*> posted_;  // receives without a message, oldest first
  std::list<Arrived> arrived_;      // messages without a receive, oldest first
  MovingTable incoming_, outgoing_;
  std::vector<std::unique_ptr<GlooLink>> links_;  // by rank; ends first
};

GlooRequest::~GlooRequest() { transport->forget(*this); }
bool GlooRequest::done() { return transport->done(*this); }

}  // namespace

std::shared_ptr<Transport> make_gloo_transport(const GlooSetup& setup, const Watch& watch) {
  const auto transport = std::make_shared<GlooTransport>(setup, watch);
  transport->start(watch);
  return {transport.get(), [transport](GlooTransport*) {
            transport->flush();
            transport->shut_down();
          }};
}

}  // namespace gradus::dist::internal
