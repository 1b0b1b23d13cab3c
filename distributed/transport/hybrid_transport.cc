#include "gradus/distributed/transport/hybrid_transport.h"

#include <algorithm>
#include <mutex>
#include <thread>

#include "gradus/distributed/health/waiting.h"

namespace gradus::dist::internal {
namespace {

// A receive from ranks of this host and of others looks at both transports in turn, and sleeps in between:
// kShortNap at first, kLongNap at most.
constexpr std::chrono::microseconds kShortNap{20}, kLongNap{1000};

// The two transports, and which rank each one reaches.
struct Ways {
  std::shared_ptr<Transport> within, across;
  std::vector<int> host_of;
  int rank;
  std::mutex mutex;  // no other receive may take a message between probe and receive

  bool near(int peer) const { return host_of[peer] == host_of[rank]; }
  Transport& to(int peer) const { return near(peer) ? *within : *across; }

  int probe(Tag tag, const std::vector<int>& sources) const {
    std::vector<int> inner, outer;
    for (int source : sources) (near(source) ? inner : outer).push_back(source);
    const int found = inner.empty() ? kAnySource : within->probe(tag, inner);
    return found != kAnySource || outer.empty() ? found : across->probe(tag, outer);
  }
};

// A message on one of the two transports.
class HybridRequest : public Request {
 public:
  HybridRequest(Transport* way, Ref<Request> request) : way_(way), request_(std::move(request)) {}
  bool done() override { return find_way() && request_->done(); }
  int source() const override { return request_ ? request_->source() : kAnySource; }
  // Returns whether the message's transport is known.
  virtual bool find_way() { return true; }

  Transport& way() const { return *way_; }
  Request& request() const { return *request_; }

 protected:
  Transport* way_;
  Ref<Request> request_;
};

// A receive from ranks of this host and of others. It chooses its transport when a message is there.
class AnyWayRequest final : public HybridRequest {
 public:
  AnyWayRequest(std::shared_ptr<Ways> ways, Tag tag, Accept accept, std::vector<int> sources)
      : HybridRequest(nullptr, {}),
        ways_(std::move(ways)),
        tag_(tag),
        accept_(std::move(accept)),
        sources_(std::move(sources)) {}

  bool find_way() override {
    std::lock_guard lock(ways_->mutex);
    if (way_) return true;
    const int source = ways_->probe(tag_, sources_);
    if (source == kAnySource) return false;
    request_ = ways_->to(source).receive(source, tag_, accept_);
    way_ = &ways_->to(source);
    return true;
  }
  void wait_for_way(const Watch& watch, const char* op) {
    if (find_way()) return;
    const WaitScope waiting(*watch.membership, Wait::for_any_rank([this] { return sources_; }));
    std::chrono::microseconds nap = kShortNap;
    while (!find_way()) {
      if (watch.membership->failed()) throw_wait(op, WaitResult::kFailed, watch, sources_);
      if (watch.deadline.passed()) throw_wait(op, WaitResult::kTimeout, watch, sources_);
      const auto left = [&](int source) { return watch.membership->has_left(source); };
      if (std::ranges::all_of(sources_, left) && !find_way()) throw_left(op, watch, sources_[0]);
      std::this_thread::sleep_for(nap);
      nap = std::min(2 * nap, kLongNap);
    }
  }

 private:
  const std::shared_ptr<Ways> ways_;
  const Tag tag_;
  const Accept accept_;
  const std::vector<int> sources_;
};

class HybridTransport final : public Transport {
 public:
  explicit HybridTransport(std::shared_ptr<Ways> ways) : ways_(std::move(ways)) {}

  Ref<Request> send(int peer, Tag tag, std::span<const std::byte> header,
                    std::span<const std::byte> payload) override {
    Transport& way = ways_->to(peer);
    return make_ref<HybridRequest>(&way, way.send(peer, tag, header, payload));
  }

  Ref<Request> receive(int peer, Tag tag, Accept accept, std::vector<int> sources) override {
    const auto near = std::ranges::count_if(sources, [&](int source) { return ways_->near(source); });
    if (peer == kAnySource && near != 0 && near != std::ssize(sources))
      return make_ref<AnyWayRequest>(ways_, tag, std::move(accept), std::move(sources));
    Transport& way = peer != kAnySource ? ways_->to(peer) : near ? *ways_->within : *ways_->across;
    std::lock_guard lock(ways_->mutex);
    return make_ref<HybridRequest>(&way, way.receive(peer, tag, std::move(accept), std::move(sources)));
  }

  void wait(Request& request, const Watch& watch, const char* op) override {
    if (auto* any = dynamic_cast<AnyWayRequest*>(&request)) any->wait_for_way(watch, op);
    auto& hybrid = static_cast<HybridRequest&>(request);
    hybrid.way().wait(hybrid.request(), watch, op);
  }

  int probe(Tag tag, const std::vector<int>& sources) override {
    std::lock_guard lock(ways_->mutex);
    return ways_->probe(tag, sources);
  }

  void progress_in_background() override {
    ways_->within->progress_in_background();
    ways_->across->progress_in_background();
  }

 private:
  const std::shared_ptr<Ways> ways_;
};

}  // namespace

std::shared_ptr<Transport> make_hybrid_transport(std::shared_ptr<Transport> within,
                                                 std::shared_ptr<Transport> across, std::vector<int> host_of,
                                                 int rank) {
  return std::make_shared<HybridTransport>(
      std::make_shared<Ways>(std::move(within), std::move(across), std::move(host_of), rank));
}

}  // namespace gradus::dist::internal
