// Graph nodes with {.required = true}: their recording keeps them alive, its backward runs them even if no
// gradient reaches them, newest first, and skipped() is called if the recording ends without running them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/graph/recording_state.h"
#include "gradus/autograd/ops/ops.h"

namespace gradus::autograd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Log = std::vector<std::string>;

// Logs its calls ("goes on": the recording stays open). Passes its gradient on, or 100 if none arrives.
class Witness final : public Node {
 public:
  Witness(std::string name, Log& log)
      : Node("witness", {.required = true}), name_(std::move(name)), log_(log) {
    ++alive;
  }
  ~Witness() override { --alive; }
  inline static int alive = 0;

  void run(const RuleArgs& args) override {
    const auto& [dys, needs, dxs, ending] = args;
    if (!ending) log_.push_back(name_ + " goes on");
    const bool has_gradient = !dys.empty() && dys[0].defined();
    log_.push_back(name_ + (has_gradient ? " with gradient" : " without"));
    if (!needs.empty() && needs[0]) dxs[0] = has_gradient ? dys[0] : scalar(100);
  }
  void skipped(const RecordingState&, std::exception_ptr error) noexcept override {
    log_.push_back(name_ + (error ? " skipped by an error" : " skipped"));
  }
  void drop(std::span<const char>) override {}

 private:
  const std::string name_;
  Log& log_;
};

Tensor witness(const std::string& name, const Tensor& x, Log& log) {
  const Tensor y = detach(x);
  std::vector<RecordingState*> open;
  for (const Ref<Counted>& r : open_recordings()) open.push_back(as_recording(r));
  Recorder recorder("witness", open);
  if (recorder) recorder.attach(Ref<Node>(new Witness(name, log)), {&y, 1}, {recorder.edge_to(x)});
  return y;
}

struct RequiredNodes : testing::Test {
  RequiredNodes() { gm.attach(x); }
  ~RequiredNodes() override { EXPECT_EQ(Witness::alive, 0); }
  Log log;
  Tensor x = scalar(2);
  GradManager gm;
};

TEST_F(RequiredNodes, NewestFirstWhetherTheirResultsAreUsedOrDropped) {
  {
    auto recording = gm.record();
    witness("a", x, log);
    const Tensor b = witness("b", x * 3, log);
    witness("c", x, log);
    EXPECT_EQ(Witness::alive, 3);
    gm.backward(b);
    EXPECT_EQ(Witness::alive, 1);  // b's tensor
  }
  EXPECT_THAT(log, ElementsAre("c without", "b with gradient", "a without"));
  EXPECT_EQ(x.grad().item<float>(), 100 + 3 + 100);
}

TEST_F(RequiredNodes, ABackwardWithoutRootsRunsThem) {
  auto recording = gm.record();
  witness("a", x * 2, log);
  gm.backward();
  EXPECT_THAT(log, ElementsAre("a without"));
  EXPECT_EQ(x.grad().item<float>(), 200);
}

TEST_F(RequiredNodes, AnotherRecordingsBackwardRunsThemForItAlone) {
  GradManager other;
  other.attach(x);
  auto outer = gm.record();
  auto inner = other.record();
  const Tensor a = witness("a", x, log);
  other.backward(a);
  EXPECT_THAT(log, ElementsAre("a with gradient"));
  gm.release();
  EXPECT_THAT(log, ElementsAre("a with gradient", "a skipped"));
}

TEST_F(RequiredNodes, ReleasedRecordingsSkipThem) {
  {
    auto recording = gm.record();
    witness("a", x, log);
    witness("b", x, log);
    EXPECT_THAT(log, IsEmpty());
  }
  EXPECT_THAT(log, ElementsAre("b skipped", "a skipped"));
}

TEST_F(RequiredNodes, ThoseThatAnErrorKeepsFromRunningAreTold) {
  auto recording = gm.record();
  witness("a", x, log);
  struct Bad : Function {
    std::vector<Tensor> forward(const std::vector<Tensor>& xs) override { return {clone(xs[0])}; }
    std::vector<Tensor> backward(std::vector<Tensor>) override { throw ValueError("bad", "no"); }
  };
  const Tensor y = apply(std::make_shared<Bad>(), {x})[0];
  const Tensor b = witness("b", y, log);
  EXPECT_THROW(gm.backward(b), ValueError);
  EXPECT_THAT(log, ElementsAre("b with gradient", "a skipped by an error"));
}

TEST_F(RequiredNodes, AMistakeBeforeThePassIsAnErrorToThem) {
  auto recording = gm.record();
  witness("a", x, log);
  EXPECT_THROW(gm.backward(scalar(1)), StateError);
  EXPECT_THAT(log, ElementsAre("a skipped by an error"));
}

TEST_F(RequiredNodes, AGradientThatLeavesTheRecordingOpenRunsWhatItReaches) {
  auto recording = gm.record();
  const Tensor a = witness("a", x, log);
  witness("b", x, log);
  EXPECT_EQ(grad(a, {x})[0].item<float>(), 1);
  EXPECT_THAT(log, ElementsAre("a goes on", "a with gradient"));
  gm.backward();
  EXPECT_THAT(log, ElementsAre("a goes on", "a with gradient", "b without", "a without"));
}

}  // namespace
}  // namespace gradus::autograd
