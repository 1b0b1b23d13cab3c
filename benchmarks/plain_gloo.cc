#include "benchmarks/plain_gloo.h"

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

// gloo finds its peers through our store.
class Rendezvous : public gloo::rendezvous::Store {
 public:
  explicit Rendezvous(dist::Store& store) : store_(store) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_.get(key);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { store_.wait(keys); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    store_.wait(keys, timeout);
  }

 private:
  dist::Store& store_;
};

}  // namespace

class PlainGloo::Impl {
 public:
  Impl(int rank, int size, dist::Store& store)
      : context(std::make_shared<gloo::rendezvous::Context>(rank, size)) {
    auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
    Rendezvous rendezvous(store);
    context->connectFullMesh(rendezvous, device);
  }

  std::shared_ptr<gloo::rendezvous::Context> context;
  std::vector<std::shared_ptr<gloo::Algorithm>> prepared;
};

PlainGloo::PlainGloo(int rank, int size, dist::Store& store)
    : impl_(std::make_unique<Impl>(rank, size, store)) {}
PlainGloo::~PlainGloo() = default;

std::vector<PlainGloo::AllReduce> PlainGloo::all_reduces(float* x, size_t n) {
  const auto& context = impl_->context;
  std::vector<AllReduce> ways;
  const auto add_option = [&](const std::string& name, gloo::AllreduceOptions::Algorithm algorithm) {
    ways.push_back({name, [=] {
                      gloo::AllreduceOptions options(context);
                      options.setAlgorithm(algorithm);
                      options.setOutput(x, n);
                      options.setReduceFunction(
                          static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
                      gloo::allreduce(options);
                    }});
  };
  const auto add_prepared = [&](const std::string& name, std::shared_ptr<gloo::Algorithm> algorithm) {
    impl_->prepared.push_back(algorithm);
    ways.push_back({name, [algorithm] { algorithm->run(); }});
  };
  add_option("ring", gloo::AllreduceOptions::Algorithm::RING);
  add_option("bcube", gloo::AllreduceOptions::Algorithm::BCUBE);
  const int count = static_cast<int>(n);
  add_prepared("prepared halving-doubling", std::make_shared<gloo::AllreduceHalvingDoubling<float>>(
                                                context, std::vector<float*>{x}, count));
  add_prepared("prepared chunked ring",
               std::make_shared<gloo::AllreduceRingChunked<float>>(context, std::vector<float*>{x}, count));
  return ways;
}

void PlainGloo::broadcast(float* x, size_t n) {
  gloo::BroadcastOptions options(impl_->context);
  options.setOutput(x, n);
  options.setRoot(0);
  gloo::broadcast(options);
}

void PlainGloo::all_gather(float* x, size_t n, float* all) {
  gloo::AllgatherOptions options(impl_->context);
  options.setInput(x, n);
  options.setOutput(all, n * static_cast<size_t>(impl_->context->size));
  gloo::allgather(options);
}

void PlainGloo::barrier() {
  gloo::BarrierOptions options(impl_->context);
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
