// Bytes that a training step sends through the transport: each activation once forward, its gradient once
// backward, each parameter's gradient once among its replicas. The step record's counters must agree.
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/group/world.h"
#include "gradus/distributed/pipeline/pipeline.h"
#include "gradus/distributed/pipeline/pipeline_report.h"
#include "gradus/nn/nn.h"
#include "gradus/tests/ops/values.h"

namespace gradus::dist {
namespace {

using internal::Channel;

// Counts what this rank sends. All else is the inner transport's.
class CountingTransport final : public internal::Transport {
 public:
  struct Count {
    int64_t messages = 0, header_bytes = 0, bytes = 0;
  };
  explicit CountingTransport(std::shared_ptr<Transport> inner) : inner_(std::move(inner)) {}

  Ref<internal::Request> send(int peer, internal::Tag tag, std::span<const std::byte> header,
                              std::span<const std::byte> payload) override {
    {
      // A collective's messages have its name in their headers.
      const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
      const bool is_backward = tag.channel == Channel::kCollective && text.find("backward") != text.npos;
      const std::lock_guard lock(mutex_);
      for (Count* c : {&counts_[{peer, tag.channel}], is_backward ? &backward_ : nullptr}) {
        if (!c) continue;
        ++c->messages;
        c->header_bytes += int64_t(header.size());
        c->bytes += int64_t(payload.size());
      }
    }
    return inner_->send(peer, tag, header, payload);
  }
  Ref<internal::Request> receive(int peer, internal::Tag tag, internal::ProvideBuffer provide_buffer,
                                 std::vector<int> sources) override {
    return inner_->receive(peer, tag, std::move(provide_buffer), std::move(sources));
  }
  void wait(internal::Request& request, const internal::WaitLimits& watch, const char* op) override {
    inner_->wait(request, watch, op);
  }
  void progress_in_background() override { inner_->progress_in_background(); }

  void reset() {
    const std::lock_guard lock(mutex_);
    counts_.clear();
    backward_ = {};
  }
  Count count(int peer, Channel channel) {
    const std::lock_guard lock(mutex_);
    return counts_[{peer, channel}];
  }
  Count backward() {
    const std::lock_guard lock(mutex_);
    return backward_;
  }
  int64_t all_bytes() {
    const std::lock_guard lock(mutex_);
    int64_t sum = 0;
    for (const auto& [key, c] : counts_) sum += c.bytes;
    return sum;
  }

 private:
  const std::shared_ptr<Transport> inner_;
  std::mutex mutex_;
  std::map<std::pair<int, Channel>, Count> counts_;
  Count backward_;  // of collectives that add up gradients
};

// Two layers, so wide that the gradients of each are many times all else.
// Shapes: x [N,width] -> [N,width].
struct TwoLayers : nn::Layer {
  nn::Linear a, b;
  explicit TwoLayers(int64_t width)
      : a(this, "a", {.in = width, .out = width}), b(this, "b", {.in = width, .out = width}) {}
  Tensor forward(const Tensor& x) override { return b(relu(a(x))); }
};

void expect_bytes(int64_t width, Schedule schedule) {
  constexpr int kMicroBatches = 4;
  constexpr int64_t kRows = 10;  // of a replica: 3, 3, 2 and 2
  // Bytes allowed besides gradients: kMaxSaid for the part sizes of a sum in one message; kMaxAgreed for the
  // row counts, the loss, and the call records exchanged before each sum.
  constexpr int64_t kMaxSaid = 16, kMaxAgreed = 8192;
  run_ranks(4,
            [&] {
              auto& transport = internal::World::current()->transport;
              const auto counting = std::make_shared<CountingTransport>(transport);
              transport = counting;
              Pipeline<TwoLayers> pipe(
                  [&] { return std::make_unique<TwoLayers>(width); }, zeros({1, width}),
                  {.stages = 2, .schedule = schedule, .micro_batches = kMicroBatches, .cut_after = {"a"}});
              GradManager gm;
              pipe.attach(gm);
              const Tensor x = random_tensor({kRows, width}), y = random_tensor({kRows, width});
              pipe.step(gm, x, y, nn::mse_loss);
              barrier();
              counting->reset();
              barrier();
              counting->reset();
              pipe.record_steps(1);
              pipe.step(gm, x, y, nn::mse_loss);

              const int me = get_rank(), neighbor = me ^ 1, replica = me ^ 2, nobody = me ^ 3;
              // nobody: the other stage of the other replica
              const bool is_last = me % 2 == 1;
              // An activation, or its gradient, has as many bytes; the last stage also sends the loss.
              const int64_t crossing = kRows * width * 4, loss = is_last ? 8 : 0;
              const auto messages = counting->count(neighbor, Channel::kMailbox);
              EXPECT_EQ(messages.bytes, crossing + loss);
              EXPECT_EQ(messages.messages, kMicroBatches + (is_last ? 1 : 0));
              EXPECT_LE(messages.header_bytes, messages.messages * int64_t(internal::kMaxHeaderBytes));

              // A ring of two moves each gradient once from each: 2 (n - 1) / n of their bytes.
              const int64_t gradients = (width * width + width) * 4;
              const auto sums = counting->count(replica, Channel::kCollective);
              EXPECT_GE(counting->backward().bytes, gradients);
              EXPECT_LE(counting->backward().bytes, gradients + kMaxSaid);
              EXPECT_LE(sums.bytes, gradients + kMaxAgreed);
              EXPECT_LE(sums.header_bytes, sums.messages * int64_t(internal::kMaxHeaderBytes));

              for (const Channel channel :
                   {Channel::kUser, Channel::kRemote, Channel::kCollective, Channel::kMailbox})
                EXPECT_EQ(counting->count(nobody, channel).messages, 0);
              EXPECT_EQ(counting->all_bytes(), messages.bytes + sums.bytes);

              const auto record = pipe.gather_records();
              if (!record) return;
              const PipelineReport report = make_report(*record);
              for (const RankReport& r : report.ranks) {
                EXPECT_EQ(r.sent_bytes, double(crossing)) << r.rank;
                EXPECT_EQ(r.all_reduce_bytes, double(gradients)) << r.rank;
              }
            },
            {.messages_only = true});
}

TEST(Bytes, OfAStepOfTwoStagesAndTwoReplicas) {
  for (const Schedule schedule : {Schedule::kGPipe, Schedule::k1F1B, Schedule::kZeroBubbleH1})
    for (const int64_t width : {16, 300}) expect_bytes(width, schedule);
}

}  // namespace
}  // namespace gradus::dist
