// Implementation of PlainGloo: calls of gloo's collectives and messages over TCP.
#include "benchmarks/plain_gloo.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>

namespace gradus::bench {
namespace {

// Adapts a dist::Store to gloo's rendezvous interface.
class Rendezvous : public gloo::rendezvous::Store {
 public:
  Rendezvous(dist::Store& store, std::string prefix) : store_(store), prefix_(std::move(prefix)) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(prefix_ + key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_.get(prefix_ + key);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, kDefaultTimeout); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    std::vector<std::string> prefixed_keys;
    for (const std::string& key : keys) prefixed_keys.push_back(prefix_ + key);
    store_.wait(prefixed_keys, timeout);
  }

 private:
  dist::Store& store_;
  const std::string prefix_;
};

}  // namespace

class PlainGloo::Impl {
 public:
  using Context = std::shared_ptr<gloo::rendezvous::Context>;

  Impl(int rank, int size, dist::Store& store)
      : rank_(rank),
        size_(size),
        store_(store),
        device_(gloo::transport::tcp::CreateDevice("127.0.0.1")),
        context(connect()) {}

  // Creates separate connections: different algorithms on the same connections may deadlock.
  Context connect() {
    auto context = std::make_shared<gloo::rendezvous::Context>(rank_, size_);
    Rendezvous rendezvous(store_, "plain_gloo/" + std::to_string(connected_++) + "/");
    context->connectFullMesh(rendezvous, device_);
    return context;
  }
  // Returns a new tag per call, so that messages of a rank that is ahead do not match receives of the previous
  // call.
  uint32_t next_tag() { return tag_ = (tag_ + 1) % (1 << 24); }

 private:
  const int rank_, size_;
  dist::Store& store_;
  std::shared_ptr<gloo::transport::Device> device_;
  int connected_ = 0;
  uint32_t tag_ = 0;

 public:
  const Context context;
};

PlainGloo::PlainGloo(int rank, int size, dist::Store& store)
    : impl_(std::make_unique<Impl>(rank, size, store)) {}
PlainGloo::~PlainGloo() = default;

std::vector<PlainGloo::AllReduce> PlainGloo::all_reduces(float* x, size_t n) {
  std::vector<AllReduce> ways;
  const auto add_option = [&](const std::string& name, gloo::AllreduceOptions::Algorithm algorithm) {
    ways.push_back({name, [=, impl = impl_.get(), context = impl_->connect()] {
                      gloo::AllreduceOptions options(context);
                      options.setTag(impl->next_tag());
                      options.setAlgorithm(algorithm);
                      options.setOutput(x, n);
                      options.setReduceFunction(
                          static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
                      gloo::allreduce(options);
                    }});
  };
  const auto add_prepared = [&](const std::string& name, std::shared_ptr<gloo::Algorithm> algorithm) {
    ways.push_back({name, [algorithm] { algorithm->run(); }});
  };
  add_option("ring", gloo::AllreduceOptions::Algorithm::RING);
  add_option("bcube", gloo::AllreduceOptions::Algorithm::BCUBE);
  const int count = static_cast<int>(n);
  const std::vector<float*> buffers = {x};
  add_prepared("prepared halving-doubling",
               std::make_shared<gloo::AllreduceHalvingDoubling<float>>(impl_->connect(), buffers, count));
  add_prepared("prepared chunked ring",
               std::make_shared<gloo::AllreduceRingChunked<float>>(impl_->connect(), buffers, count));
  return ways;
}

void PlainGloo::broadcast(float* x, size_t n) {
  gloo::BroadcastOptions options(impl_->context);
  options.setTag(impl_->next_tag());
  options.setOutput(x, n);
  options.setRoot(0);
  gloo::broadcast(options);
}

void PlainGloo::all_gather(float* x, size_t n, float* all) {
  gloo::AllgatherOptions options(impl_->context);
  options.setTag(impl_->next_tag());
  options.setInput(x, n);
  options.setOutput(all, n * static_cast<size_t>(impl_->context->size));
  gloo::allgather(options);
}

void PlainGloo::barrier() {
  gloo::BarrierOptions options(impl_->context);
  options.setTag(impl_->next_tag());
  gloo::barrier(options);
}

void PlainGloo::send(int peer, float* x, size_t n) {
  auto buffer = impl_->context->createUnboundBuffer(x, n * sizeof(float));
  buffer->send(peer, /*slot=*/1 << 20);
  buffer->waitSend();
}

void PlainGloo::recv(int peer, float* x, size_t n) {
  auto buffer = impl_->context->createUnboundBuffer(x, n * sizeof(float));
  buffer->recv(peer, /*slot=*/1 << 20);
  buffer->waitRecv();
}

}  // namespace gradus::bench
