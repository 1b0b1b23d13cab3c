#include "gradus/tests/distributed/data_parallel/throwing_training.h"

#include <memory>
#include <optional>
#include <random>
#include <stdexcept>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/distributed/data_parallel/sync_batch_norm.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::dist {
namespace {

constexpr int kSteps = 6;
constexpr const char* kText = "thrown on purpose";

struct Strange {};  // no std::exception

struct Net : nn::Layer {
  nn::Linear first{this, "first", {.in = 3, .out = 4}};
  nn::BatchNorm1d norm{this, "norm", {.features = 4}};
  nn::Linear last{this, "last", {.in = 4, .out = 1}};
  Tensor forward(const Tensor& x) override { return last(relu(norm(first(x)))); }
};

// The identity; its gradient is a call.
struct InBackward : autograd::Function {
  explicit InBackward(std::function<void()> called) : called(std::move(called)) {}
  std::vector<Tensor> forward(const std::vector<Tensor>& x) override { return {x[0] + 0}; }
  std::vector<Tensor> backward(std::vector<Tensor> dy) override {
    called();
    return dy;
  }
  std::function<void()> called;
};

template <class... Names> std::string name_in(size_t i, Names... names) {
  const char* const all[] = {names...};
  return all[i];
}

}  // namespace

ThrowingTraining ThrowingTraining::random(uint64_t seed, int world) {
  std::mt19937_64 random(seed * 7919 + uint64_t(world));
  const auto below = [&](int n) { return int(random() % uint64_t(n)); };
  ThrowingTraining t;
  t.world = world;
  t.wrapper = Wrapper(below(kWrappers));
  t.sync_batch_norm = below(2);
  t.metric = below(2);
  t.victim = below(world);
  t.step = below(kSteps);
  t.place = Place(below(kPlaces));
  t.thrown = Thrown(below(kThrowns));
  t.caught = Caught(below(kCaughts));
  // Weights that one rank did not update are found by check_divergence_every.
  // And a rank that has run fewer backwards is known when it leaves.
  if ((t.place == kStep || t.place == kLoading) && t.caught == kGoesOn) t.caught = kInStep;
  return t;
}

std::string ThrowingTraining::text() const {
  return concat(world, " ranks, ", name_in(wrapper, "whole", "separate", "callback"),
                sync_batch_norm ? ", SyncBatchNorm" : "", metric ? ", metric" : "", ": rank ", victim,
                " throws ", name_in(thrown, "ShapeError", "runtime_error", "a strange type"), " in ",
                name_in(place, "loading", "forward", "loss", "before backward", "backward", "a callback",
                        "the optimizer"),
                " of step ", step, ", ",
                name_in(caught, "not caught", "thrown again in the step", "thrown again outside",
                        "caught to go on", "caught to return"));
}

void ThrowingTraining::run_with(void (*on_fault)(void*), void* argument) const {
  if (caught != kOutside && caught != kReturns) return train(on_fault, argument);
  try {
    train(on_fault, argument);
  } catch (const Error&) {
    if (caught == kOutside || get_rank() != victim) throw;
  } catch (...) {
    if (caught == kOutside) throw;
  }
}

void ThrowingTraining::train(void (*on_fault)(void*), void* argument) const {
  Net net;
  if (sync_batch_norm) convert_sync_batchnorm(net);
  GradManager gm;
  int now = 0;
  const auto perhaps = [&](Place here) {
    if (here != place || now != step || get_rank() != victim) return;
    on_fault(argument);
    if (thrown == kShapeError) throw ShapeError("training", kText);
    if (thrown == kRuntimeError) throw std::runtime_error(kText);
    throw Strange();
  };
  const Callback late = [&](const Tensor&, const Tensor& g) {
    perhaps(kGradCallback);
    return g;
  };
  std::optional<DistributedDataParallel<Net>> whole;
  std::optional<SeparateDistributedDataParallel<Net>> separate;
  if (wrapper == kWhole) {
    whole.emplace(net);
    whole->attach(gm, late);
  } else if (wrapper == kSeparate) {
    separate.emplace(net);
    separate->attach(gm, late);
  } else {
    gm.attach(net.parameters(), {make_allreduce_cb("mean"), late});
  }
  optim::SGD opt(net.parameters(), {.lr = 0.1});

  const auto one_step = [&] {
    perhaps(kLoading);
    const Tensor x = full({2 + get_rank(), 3}, now + 1);
    auto recording = gm.record();
    // A batch with one feature too many is what a user's exception looks like most of the time.
    perhaps(kForward);
    const auto in_backward = std::make_shared<InBackward>([&] { perhaps(kBackward); });
    const Tensor y = autograd::apply(in_backward, {net(x)})[0];
    perhaps(kLoss);
    const Tensor loss = mean(square(y));
    if (metric) all_reduce(detach(loss) * 1, {.op = ReduceOp::kAvg});
    perhaps(kBeforeBackward);
    gm.backward(loss);
    perhaps(kStep);
    opt.step().clear_grad();
  };
  for (; now < kSteps; ++now) {
    if (caught != kInStep && caught != kGoesOn) {
      one_step();
      continue;
    }
    try {
      one_step();
    } catch (...) {
      if (caught == kInStep || get_rank() != victim || now != step) throw;
    }
  }
  // In order: then all have the same weights.
  std::string mine;
  for (const Tensor& p : net.parameters())
    for (const double v : p.to_vector<double>()) mine += concat(v, ' ');
  for (const std::string& theirs : all_gather_object(mine))
    if (theirs != mine) throw StateError("training", "the ranks' weights differ");
}

std::string ThrowingTraining::judge(int named, const std::string& text) const {
  // Where no other call depends on it, a step that one rank drops is dropped by all.
  const bool may_end_well =
      caught == kGoesOn && !in_backward() && !sync_batch_norm && (!metric || place == kBeforeBackward);
  if (text.empty()) return may_end_well ? "" : "no error";
  if (named != victim) return concat("names rank ", named);
  const std::string rank = concat("rank ", victim);
  const auto says = [&](const std::string& part) { return text.find(part) != std::string::npos; };
  if (!says(rank)) return "does not name the rank";
  const bool known = in_backward() || caught == kNot || caught == kInStep || caught == kOutside;
  if (!known) return "";
  const std::string type = name_in(thrown, "ShapeError", "runtime_error", "Strange");
  if (!says(type)) return "does not name the type";
  if (thrown != kOther && !says(kText)) return "does not tell the exception's text";
  return "";
}

}  // namespace gradus::dist
