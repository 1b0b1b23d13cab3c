// The contract of GradManager, one test per clause: attach, callbacks, record, backward, release, several
// managers, in-place edits. Expected gradients are derivatives by hand in f64.
#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }
Tensor f64(std::initializer_list<double> v) { return tensor(v); }

// --- attach ---

TEST(GradManagerAttach, TakesOneTensorOrAList) {
  const Tensor a = f64({1}), b = f64({2}), c = f64({3});
  GradManager gm;
  gm.attach(a).attach({b, c});
  {
    auto recording = gm.record();
    gm.backward(a * b * c);
  }
  EXPECT_THAT(values(a.grad()), ElementsAre(6));
  EXPECT_THAT(values(b.grad()), ElementsAre(3));
  EXPECT_THAT(values(c.grad()), ElementsAre(2));
}

TEST(GradManagerAttach, MayBeChainedFromATemporary) {
  const Tensor w = scalar(3), v = scalar(2);
  GradManager gm =
      GradManager().attach(w, [](const Tensor&, const Tensor& grad) { return grad * 10; }).attach({v});
  EXPECT_EQ(gm.attached_tensors().size(), 2u);
  EXPECT_EQ(&gm.attach(w), &gm);
  auto recording = gm.record();
  gm.backward(w * v);
  EXPECT_EQ(w.grad().item<float>(), 20);
  EXPECT_EQ(v.grad().item<float>(), 3);
}

TEST(GradManagerAttach, AnUndefinedTensorIsAnErrorThatSaysWhich) {
  GradManager gm;
  const Tensor a = f64({1});
  EXPECT_ERROR(StateError, gm.attach(Tensor()), "[attach] tensor 0 of 1 is undefined");
  EXPECT_ERROR(StateError, gm.attach({a, Tensor()}), "[attach] tensor 1 of 2 is undefined");
  EXPECT_TRUE(gm.attached_tensors().empty()) << "nothing is attached when one cannot be";
  gm.attach(a);
  EXPECT_THAT(error_of<StateError>([&] { auto r = gm.record({.only = Tensor()}); }), HasSubstr("[record]"));
  EXPECT_THAT(error_of<StateError>([&] {
                auto recording = gm.record();
                gm.backward(Tensor());
              }),
              HasSubstr("[backward] the loss is undefined"));
  EXPECT_THAT(error_of<StateError>([&] {
                auto recording = gm.record();
                gm.backward({sum(a), Tensor()});
              }),
              HasSubstr("[backward] root 1 of 2 is undefined"));
  EXPECT_ERROR(StateError, autograd::grad([](const Tensor& x) { return sum(x); }, Tensor()), "[grad]");
}

TEST(GradManagerAttach, HoldsTensorsWeakly) {
  GradManager gm;
  const Tensor kept = f64({1});
  const int64_t before = memory_stats().live_bytes;
  {
    const Tensor temporary = f64({1, 2, 3, 4});
    gm.attach({temporary, kept});
    EXPECT_EQ(gm.attached_tensors().size(), 2u);
  }
  ASSERT_EQ(gm.attached_tensors().size(), 1u);
  EXPECT_TRUE(gm.attached_tensors()[0].is_same(kept));
  EXPECT_EQ(memory_stats().live_bytes, before);
}

TEST(GradManagerAttach, ATensorThatIsDroppedWhileRecordingDoesNoHarm) {
  GradManager gm;
  const Tensor x = f64({2});
  auto recording = gm.record();
  Tensor y;
  {
    const Tensor w = f64({3});
    gm.attach({x, w});
    y = x * w;
  }
  gm.backward(y);
  EXPECT_THAT(values(x.grad()), ElementsAre(3));
}

TEST(GradManagerAttach, ListsTensorsInOrderOfAttachingWithoutRepeats) {
  const Tensor a = f64({1}), b = f64({2}), c = f64({3});
  GradManager gm;
  gm.attach({b, a}).attach(c).attach({a, b});
  const std::vector<Tensor> all = gm.attached_tensors();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_TRUE(all[0].is_same(b));
  EXPECT_TRUE(all[1].is_same(a));
  EXPECT_TRUE(all[2].is_same(c));
}

TEST(GradManagerAttach, RefusesDtypesWithoutGradients) {
  GradManager gm;
  for (DType t : {DType::kI64, DType::kI32, DType::kI16, DType::kI8, DType::kU8, DType::kBool}) {
    const Tensor x = empty({2}, {.dtype = t});
    EXPECT_ERROR(DTypeError, gm.attach(x), std::string(name_of(t)));
  }
  EXPECT_TRUE(gm.attached_tensors().empty());
}

TEST(GradManagerAttach, AcceptsEveryFloatingDtype) {
  std::vector<Tensor> all;
  for (DType t : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16})
    all.push_back(empty({2}, {.dtype = t}));
  GradManager gm;
  gm.attach(all);
  EXPECT_EQ(gm.attached_tensors().size(), 4u);
}

TEST(GradManagerAttach, WhileRecordingFollowsFromThatMomentOn) {
  const Tensor x = f64({3});
  GradManager gm;
  auto recording = gm.record();
  const Tensor unseen = x * x;
  gm.attach(x);
  gm.backward(unseen + 5 * x);
  EXPECT_THAT(values(x.grad()), ElementsAre(5));
}

TEST(GradManagerAttach, AComputedTensorIsALeafAndPassesTheGradientOn) {
  const Tensor x = f64({3});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  const Tensor h = x * x;
  gm.attach(h);
  gm.backward(h * h);
  EXPECT_THAT(values(h.grad()), ElementsAre(18));
  EXPECT_THAT(values(x.grad()), ElementsAre(108));
}

TEST(GradManagerAttach, AgainAddsCallbacks) {
  const Tensor x = f64({1});
  std::string order;
  const auto note = [&](char c) {
    return [&order, c](const Tensor&, const Tensor& g) {
      order += c;
      return g;
    };
  };
  GradManager gm;
  gm.attach(x, note('a'));
  gm.attach(x, note('b'), note('c'));
  auto recording = gm.record();
  gm.backward(2 * x);
  EXPECT_EQ(order, "abc");
}

// --- callbacks ---

TEST(GradManagerCallback, ReplacesTheGradientInOrderOfAttaching) {
  const Tensor x = f64({1, 2});
  GradManager gm;
  gm.attach(
      x, [](const Tensor&, const Tensor& g) { return g + 1; },
      [](const Tensor&, const Tensor& g) { return 10 * g; });
  auto recording = gm.record();
  gm.backward(sum(3 * x));
  EXPECT_THAT(values(x.grad()), ElementsAre(40, 40));
}

TEST(GradManagerCallback, GetsTheTensorItWasAttachedTo) {
  const Tensor a = f64({1}), b = f64({2});
  GradManager gm;
  gm.attach({a, b}, [&](const Tensor& param, const Tensor& g) {
    EXPECT_TRUE(param.is_same(a) || param.is_same(b));
    EXPECT_THAT(values(g), ElementsAre(param.is_same(a) ? 2 : 1));
    return g;
  });
  auto recording = gm.record();
  gm.backward(a * b);
}

TEST(GradManagerCallback, SeesTheWholeGradientOfATensorUsedTwice) {
  const Tensor x = f64({3});
  int calls = 0;
  GradManager gm;
  gm.attach(x, [&](const Tensor&, const Tensor& g) {
    ++calls;
    EXPECT_THAT(values(g), ElementsAre(11));
    return g;
  });
  auto recording = gm.record();
  gm.backward(x * x + 5 * x);
  EXPECT_EQ(calls, 1);
}

TEST(GradManagerCallback, RunsInReverseOrderOfUse) {
  std::vector<Tensor> w;
  for (int i = 0; i < 4; ++i) w.push_back(f64({1.0 + i}));
  std::vector<double> order;
  GradManager gm;
  gm.attach(w, [&](const Tensor& param, const Tensor& g) {
    order.push_back(values(param)[0]);
    return g;
  });
  auto recording = gm.record();
  Tensor h = f64({1});
  for (const Tensor& p : w) h = h * p;
  gm.backward(h);
  EXPECT_THAT(order, ElementsAre(4, 3, 2, 1));
}

// Doubles its input and logs when its backward runs.
struct Marked : autograd::Function {
  explicit Marked(std::string* log) : log(log) {}
  std::vector<Tensor> forward(const std::vector<Tensor>& x) override { return {2 * x[0]}; }
  std::vector<Tensor> backward(std::vector<Tensor> dys) override {
    *log += " rule";
    return {2 * dys[0]};
  }
  std::string* log;
};

TEST(GradManagerCallback, RunsAsSoonAsItsGradientIsCompleteBeforeEarlierOpsRules) {
  const Tensor early = f64({2}), late = f64({3});
  std::string log;
  GradManager gm;
  gm.attach(early, [&](const Tensor&, const Tensor& g) {
    log += " early";
    return g;
  });
  gm.attach(late, [&](const Tensor&, const Tensor& g) {
    log += " late";
    return g;
  });
  auto recording = gm.record();
  const Tensor h = autograd::apply(std::make_shared<Marked>(&log), {early})[0];
  gm.backward(h * late);
  EXPECT_EQ(log, " late rule early");
  EXPECT_THAT(values(early.grad()), ElementsAre(6));
}

// `g` is the root's initial gradient of 1: writing it must not change what the next backward starts from.
TEST(GradManagerCallback, MayWriteIntoWhatTheyAreGiven) {
  const Tensor x = f64({3});
  GradManager gm;
  gm.attach(x, [](const Tensor&, const Tensor& g) {
    mul_(g, 5);
    return g;
  });
  for (int i = 0; i < 3; ++i) {
    auto recording = gm.record();
    gm.backward(x);
    EXPECT_THAT(values(x.grad()), ElementsAre(5));
    x.set_grad({});
  }
}

TEST(GradManagerCallback, MayComputeWithTensors) {
  const Tensor x = f64({3, 4});
  GradManager gm;
  gm.attach(x, [](const Tensor&, const Tensor& g) { return g / norm(g); });
  auto recording = gm.record();
  gm.backward(sum(x * x));
  EXPECT_NEAR(values(x.grad())[0], 0.6, 1e-15);
  EXPECT_NEAR(values(x.grad())[1], 0.8, 1e-15);
}

TEST(GradManagerCallback, IsNotCalledWithoutAGradient) {
  const Tensor x = f64({1}), unused = f64({2});
  bool called = false;
  GradManager gm;
  gm.attach(x);
  gm.attach(unused, [&](const Tensor&, const Tensor& g) {
    called = true;
    return g;
  });
  auto recording = gm.record();
  gm.backward(2 * x);
  EXPECT_FALSE(called);
  EXPECT_FALSE(unused.grad().defined());
}

// Withholds every gradient and delivers it doubled from finish(), or unchanged from landed() if `lands`. Logs
// all calls; "begin101": the loss reaches the first and third attached tensor.
class Pack : public GradCallback, public std::enable_shared_from_this<Pack> {
 public:
  void begin(const std::vector<Tensor>& attached, const std::vector<bool>& reached) override {
    log += "begin";
    for (size_t i = 0; i < attached.size(); ++i) log += reached[i] ? '1' : '0';
  }
  std::optional<Tensor> ready(const Tensor& param, const Tensor& grad) override {
    log += grad.defined() ? " ready" : " none";
    if (grad.defined()) (lands ? come : pending).push_back({param, grad});
    return std::nullopt;
  }
  std::vector<Delivery> landed() override { return std::exchange(come, {}); }
  std::vector<Delivery> finish() override {
    log += " finish";
    for (Delivery& d : pending) d.grad = 2 * d.grad;
    if (extra.defined()) pending.push_back({extra, ones_like(extra)});
    return std::exchange(pending, {});
  }
  void abandon(std::exception_ptr error) noexcept override {
    log += error ? " failed" : " abandon";
    pending.clear();
  }
  void recording_opened(GradManager& gm) override {
    log += "open ";
    if (late.defined()) gm.attach(late, shared_from_this());
  }

  std::string log;
  std::vector<Delivery> pending, come;
  bool lands = false;
  Tensor late;   // attached when a recording opens
  Tensor extra;  // finish() also delivers ones for it
};

TEST(GradManagerCallback, AsAnObjectSeesTheWholeBackward) {
  const Tensor a = f64({2}), unused = f64({5}), b = f64({3});
  auto pack = std::make_shared<Pack>();
  GradManager gm;
  gm.attach({a, unused, b}, pack);
  auto recording = gm.record();
  gm.backward(a * b);
  EXPECT_EQ(pack->log, "open begin101 none ready ready finish");
  EXPECT_THAT(values(a.grad()), ElementsAre(6));
  EXPECT_THAT(values(b.grad()), ElementsAre(4));
  EXPECT_FALSE(unused.grad().defined());
}

TEST(GradManagerCallback, AsAnObjectMayDeliverForATensorThatWasNotReached) {
  const Tensor a = f64({2}), unused = f64({5});
  auto pack = std::make_shared<Pack>();
  pack->extra = unused;
  GradManager gm;
  gm.attach({a, unused}, pack);
  auto recording = gm.record();
  gm.backward(3 * a);
  EXPECT_THAT(values(unused.grad()), ElementsAre(1));
}

TEST(GradManagerCallback, ChainedAfterAnObjectRunsWhenItDelivers) {
  const Tensor a = f64({2});
  auto pack = std::make_shared<Pack>();
  GradManager gm;
  gm.attach(a, pack, [&](const Tensor&, const Tensor& g) {
    EXPECT_THAT(pack->log, HasSubstr("finish"));
    return g + 1;
  });
  auto recording = gm.record();
  gm.backward(3 * a);
  EXPECT_THAT(values(a.grad()), ElementsAre(7));
}

TEST(GradManagerCallback, AsAnObjectIsToldOfARecordingThatEndsWithoutBackward) {
  const Tensor a = f64({2});
  auto pack = std::make_shared<Pack>();
  GradManager gm;
  gm.attach(a, pack);
  {
    auto recording = gm.record();
    const Tensor y = 3 * a;
  }
  EXPECT_EQ(pack->log, "open  abandon");
}

TEST(GradManagerCallback, AsAnObjectIsToldOnceHoweverTheRecordingEnds) {
  const Tensor a = f64({2}), b = f64({3, 4});
  auto pack = std::make_shared<Pack>();
  GradManager gm;
  gm.attach({a, b}, pack);
  const auto log_of = [&](auto&& f) {
    pack->log.clear();
    {
      auto recording = gm.record();
      f(recording);
    }
    return pack->log;
  };
  EXPECT_EQ(log_of([](Recording& r) { r.release(), r.release(); }), "open  abandon");
  EXPECT_EQ(log_of([&](Recording&) { gm.release(); }), "open  abandon");
  // Errors before the backward begins (two), and in the delivery after finish().
  EXPECT_EQ(log_of([&](Recording& r) { EXPECT_THROW(r.backward(3 * b), ShapeError); }), "open  failed");
  EXPECT_EQ(log_of([&](Recording& r) { EXPECT_THROW(r.backward(f64({1})), StateError); }), "open  failed");
  EXPECT_EQ(log_of([&](Recording& r) {
              pack->extra = f64({1});  // not attached, so its delivery is an error
              EXPECT_THROW(r.backward(a * sum(b)), StateError);
              EXPECT_THROW(r.backward(a * sum(b)), StateError);
            }),
            "open begin11 ready ready finish failed");
}

TEST(GradManagerCallback, AsAnObjectIsAbandonedWhenARuleThrowsInTheMiddle) {
  const Tensor a = f64({2}), b = f64({3});
  auto pack = std::make_shared<Pack>();
  GradManager gm;
  gm.attach({a, b}, pack);
  gm.attach(a, [](const Tensor&, const Tensor&) -> Tensor { throw ValueError("test", "no"); });
  pack->lands = true;
  auto recording = gm.record();
  EXPECT_THROW(gm.backward(a * b), ValueError);
  EXPECT_THAT(pack->log, testing::EndsWith("ready failed"));
  EXPECT_FALSE(b.grad().defined());
}

TEST(GradManagerCallback, IsDestroyedWithItsManagerAfterAFailedBackward) {
  auto owned = std::make_shared<int>();
  const std::weak_ptr<int> weak = owned;
  const Tensor x = f64({2});
  {
    GradManager gm;
    gm.attach(x, [owned = std::move(owned)](const Tensor&, const Tensor&) -> Tensor {
      throw ValueError("test", "no");
    });
    auto recording = gm.record();
    EXPECT_THROW(gm.backward(x * x), ValueError);
  }
  EXPECT_TRUE(weak.expired());
}

TEST(GradManagerCallback, AsAnObjectIsNotCalledForRecordingsThatFollowNoneOfItsTensors) {
  const Tensor d = f64({2}), g = f64({3});
  auto of_d = std::make_shared<Pack>(), of_g = std::make_shared<Pack>();
  GradManager gm;
  gm.attach(d, of_d);
  gm.attach(g, of_g);
  {
    auto recording = gm.record({.only = d});
    gm.backward(d * g);
  }
  { auto dropped = gm.record({.only = d}); }
  EXPECT_EQ(of_d->log, "open begin1 ready finishopen  abandon");
  EXPECT_EQ(of_g->log, "open open ");
}

TEST(GradManagerCallback, AsAnObjectMayAttachMoreWhenARecordingOpens) {
  const Tensor a = f64({2}), late = f64({3});
  auto pack = std::make_shared<Pack>();
  pack->late = late;
  GradManager gm, other;
  gm.attach(a, pack);
  gm.attach(a, pack);  // again: it is called once all the same
  {
    auto recording = gm.record();
    gm.backward(a * late);
  }
  EXPECT_EQ(pack->log, "open begin11 ready ready finish");
  EXPECT_THAT(values(late.grad()), ElementsAre(4));
  pack->log.clear();
  other.attach(a);
  auto recordings = (gm | other).record();
  EXPECT_EQ(pack->log, "open ");
}

TEST(GradManagerCallback, ChainedAfterAnObjectRunsAsSoonAsTheGradientLands) {
  const Tensor early = f64({2}), late = f64({3});
  auto pack = std::make_shared<Pack>();
  pack->lands = true;
  GradManager gm;
  gm.attach({early, late}, pack);
  gm.attach(late, [&](const Tensor&, const Tensor& g) {
    pack->log += " chained";
    return g + 1;
  });
  auto recording = gm.record();
  gm.backward(exp(early) * 0 * late + late);
  EXPECT_EQ(pack->log, "open begin11 ready chained ready finish");
  EXPECT_THAT(values(late.grad()), ElementsAre(2));
}

// Delivers gradients that are views of one buffer: element 0 is 7, the others 0. `may_alias`: leaves may keep
// the views as their gradients instead of copies.
class Shared : public GradCallback {
 public:
  explicit Shared(bool may_alias) : may_alias(may_alias) {}
  void begin(const std::vector<Tensor>&, const std::vector<bool>&) override { held.clear(); }
  std::optional<Tensor> ready(const Tensor& param, const Tensor&) override {
    held.push_back({param, Tensor(), may_alias});
    return std::nullopt;
  }
  std::vector<Delivery> finish() override {
    memory = zeros({int64_t(held.size())}, {DType::kF64});
    for (size_t i = 0; i < held.size(); ++i) held[i].grad = view_as_strided(memory, {1}, {1}, i);
    memory.mutable_data<double>()[0] = 7;
    return held;
  }
  const bool may_alias;
  std::vector<Delivery> held;
  Tensor memory;
};

TEST(GradManagerCallback, AsAnObjectMayDeliverPartsOfOnePieceOfMemory) {
  for (bool may_alias : {false, true}) {
    const Tensor a = f64({2}), b = f64({3}), changed = f64({4});
    auto shared = std::make_shared<Shared>(may_alias);
    GradManager gm;
    gm.attach({a, b, changed}, shared);
    gm.attach(changed, [](const Tensor&, const Tensor& g) { return detach(g); });
    const auto shares = [&](const Tensor& x) { return x.grad().storage() == shared->memory.storage(); };
    for (int step = 1; step <= 2; ++step) {
      auto recording = gm.record();
      gm.backward(changed * a * b);
      EXPECT_EQ(shares(a), may_alias) << step;
      EXPECT_EQ(shares(b), may_alias) << step;
      EXPECT_FALSE(shares(changed)) << "a callback's own tensor that is not its alone";
      EXPECT_EQ(values(a.grad())[0] + values(b.grad())[0] + values(changed.grad())[0], 7 * step);
    }
  }
}

// --- record ---

TEST(GradManagerRecord, EndsWithItsScope) {
  const Tensor x = f64({2});
  GradManager gm;
  gm.attach(x);
  Tensor y;
  {
    auto recording = gm.record();
    y = x * x;
  }
  EXPECT_ERROR(StateError, gm.backward(y), "record");
  EXPECT_FALSE(x.grad().defined());
}

TEST(GradManagerRecord, TwiceGivesTwoRecordingsAndBackwardTakesTheInnermost) {
  const Tensor x = f64({2});
  GradManager gm;
  gm.attach(x);
  auto outer = gm.record();
  const Tensor before = x * x;
  auto inner = gm.record();
  gm.backward(3 * x);
  EXPECT_THAT(values(x.grad()), ElementsAre(3));
  EXPECT_FALSE(inner.is_open());
  EXPECT_TRUE(outer.is_open());
  gm.backward(before);
  EXPECT_THAT(values(x.grad()), ElementsAre(7));
}

TEST(GradManagerRecord, ATensorOfAFinishedRecordingIsAConstant) {
  const Tensor x = f64({2});
  GradManager gm;
  gm.attach(x);
  Tensor carried;
  {
    auto recording = gm.record();
    carried = x * x;
    gm.backward(carried);
  }
  x.set_grad({});
  auto recording = gm.record();
  gm.backward(carried * x);
  EXPECT_THAT(values(x.grad()), ElementsAre(4));
}

TEST(GradManagerRecord, RecordsNothingUnderNoRecord) {
  const Tensor x = f64({2});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  Tensor constant;
  {
    auto off = no_record();
    constant = x * x;
  }
  gm.backward(constant + x + detach(5 * x));
  EXPECT_THAT(values(x.grad()), ElementsAre(1));
}

// --- backward ---

TEST(GradManagerBackward, WithoutARecordingIsAnErrorThatSaysSo) {
  const Tensor x = f64({2});
  GradManager gm;
  gm.attach(x);
  EXPECT_ERROR(StateError, gm.backward(x), "record()");
  EXPECT_ERROR(StateError, gm.backward(), "record()");
}

TEST(GradManagerBackward, WithoutRootsEndsTheRecording) {
  const Tensor x = f64({2});
  GradManager gm;
  gm.attach(x);
  for (int way = 0; way < 3; ++way) {
    auto recording = gm.record();
    const Tensor y = x * x;
    if (way == 0) gm.backward();
    if (way == 1) gm.backward({});
    if (way == 2) gm.backward(std::vector<Tensor>{});
    EXPECT_FALSE(recording.is_open());
    EXPECT_FALSE(x.grad().defined());
  }
}

TEST(GradManagerBackward, AddsUpSeveralRoots) {
  const Tensor x = f64({2});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  const Tensor y = x * x;
  gm.backward({y, 3 * x, y});
  EXPECT_THAT(values(x.grad()), ElementsAre(11));
}

TEST(GradManagerBackward, TakesDyForARootOfSeveralElements) {
  const Tensor x = f64({1, 2, 3});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  gm.backward(x * x, f64({1, 10, 100}));
  EXPECT_THAT(values(x.grad()), ElementsAre(2, 40, 600));
}

TEST(GradManagerBackward, TakesOneDyPerRoot) {
  const Tensor x = f64({1, 2});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  gm.backward({x * x, 3 * x}, {f64({1, 10}), f64({100, 1000})});
  EXPECT_THAT(values(x.grad()), ElementsAre(302, 3040));
}

TEST(GradManagerBackward, RefusesDysThatDoNotFit) {
  const Tensor x = f64({1, 2});
  GradManager gm;
  gm.attach(x);
  {
    auto recording = gm.record();
    EXPECT_ERROR(ShapeError, gm.backward(x * x), "[2]");
  }
  {
    auto recording = gm.record();
    const std::string text = error_of<ShapeError>([&] { gm.backward(x * x, f64({1, 2, 3})); });
    EXPECT_THAT(text, HasSubstr("[2]"));
    EXPECT_THAT(text, HasSubstr("[3]"));
  }
  {
    auto recording = gm.record();
    EXPECT_NE(error_of<Error>([&] {
                gm.backward({sum(x), sum(x)}, {scalar(1, {.dtype = DType::kF64})});
              }),
              "no error");
  }
}

TEST(GradManagerBackward, AccumulatesUntilCleared) {
  const Tensor x = f64({2});
  GradManager gm;
  gm.attach(x);
  for (double expected : {4.0, 8.0}) {
    auto recording = gm.record();
    gm.backward(x * x);
    EXPECT_THAT(values(x.grad()), ElementsAre(expected));
  }
  x.set_grad({});
  EXPECT_FALSE(x.grad().defined());
  auto recording = gm.record();
  gm.backward(x * x);
  EXPECT_THAT(values(x.grad()), ElementsAre(4));
}

TEST(GradManagerBackward, AGradientThatWasBroadcastHasAPlaceForEachElement) {
  const Tensor x = permute(zeros({2, 3}), {1, 0});
  GradManager gm;
  gm.attach(x);
  for (double expected : {1.0, 2.0}) {
    auto recording = gm.record();
    gm.backward(sum(x));
    EXPECT_TRUE(x.grad().is_dense());
    EXPECT_THAT(values(x.grad()), Each(expected));
  }
}

TEST(GradManagerBackward, DoesNotWriteIntoAGradientThatTheUserKept) {
  const Tensor x = f64({2});
  GradManager gm;
  gm.attach(x);
  Tensor kept;
  for (int step = 0; step < 2; ++step) {
    auto recording = gm.record();
    gm.backward(x * x);
    if (step == 0) kept = x.grad();
  }
  EXPECT_THAT(values(kept), ElementsAre(4));
  EXPECT_THAT(values(x.grad()), ElementsAre(8));
}

TEST(GradManagerBackward, LeavesTheGradientOfAnUnreachedTensorAlone) {
  const Tensor x = f64({2}), unused = f64({3}), old = f64({7});
  unused.set_grad(old);
  GradManager gm;
  gm.attach({x, unused});
  auto recording = gm.record();
  const Tensor tried = unused * 2;
  gm.backward(x * x);
  EXPECT_THAT(values(unused.grad()), ElementsAre(7));
}

TEST(GradManagerBackward, SkipsAnOpWhoseResultIsNotUsed) {
  const Tensor x = f64({1, 2}), w = f64({3, 4});
  GradManager gm;
  gm.attach({x, w});
  auto recording = gm.record();
  const Tensor h = 2 * x;
  const Tensor unused = h * w;
  gm.backward(sum(h + 1));
  EXPECT_THAT(values(x.grad()), ElementsAre(2, 2));
  EXPECT_FALSE(w.grad().defined());
}

TEST(GradManagerBackward, FillsInForOutputsOfOneOpThatAreNotUsed) {
  const Tensor x = f64({1, 2, 3, 4});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  const std::vector<Tensor> parts = split(x * x, 2, 0);
  gm.backward(sum(parts[1]));
  EXPECT_THAT(values(x.grad()), ElementsAre(0, 0, 6, 8));
}

TEST(GradManagerBackward, GivesALeafThatIsARootItsDy) {
  const Tensor x = f64({5});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  gm.backward(x);
  EXPECT_THAT(values(x.grad()), ElementsAre(1));
}

TEST(GradManagerBackward, ReleasesWhenACallbackThrows) {
  const Tensor x = f64({2});
  bool armed = true;
  GradManager gm;
  gm.attach(x, [&](const Tensor&, const Tensor& g) -> Tensor {
    if (armed) throw ValueError("callback", "refused");
    return g;
  });
  auto recording = gm.record();
  EXPECT_ERROR(ValueError, gm.backward(x * x), "refused");
  EXPECT_FALSE(recording.is_open());
  EXPECT_NE(error_of<StateError>([&] { gm.backward(x); }), "no error");
  armed = false;
  auto again = gm.record();
  gm.backward(x * x);
  EXPECT_THAT(values(x.grad()), ElementsAre(4));
}

TEST(GradManagerBackward, KeepsNoGraphInAKeptLoss) {
  const Tensor x = full({1000}, 1.0, {.dtype = DType::kF64});
  GradManager gm;
  gm.attach(x);
  std::vector<Tensor> losses;
  int64_t live[2] = {};
  for (int step = 0; step < 8; ++step) {
    auto recording = gm.record();
    losses.push_back(sum(exp(x * x)));
    gm.backward(losses.back());
    x.set_grad({});
    if (step == 1) live[0] = memory_stats().live_bytes;
    if (step == 7) live[1] = memory_stats().live_bytes;
  }
  EXPECT_LT(live[1] - live[0], 6 * 1024);
}

// --- release ---

TEST(GradManagerRelease, DropsTheHistory) {
  const Tensor x = f64({2});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  const Tensor y = x * x;
  gm.release();
  EXPECT_FALSE(recording.is_open());
  EXPECT_NE(error_of<StateError>([&] { gm.backward(y); }), "no error");
  EXPECT_FALSE(x.grad().defined());
}

TEST(GradManagerRelease, MayBeCalledAnyNumberOfTimes) {
  GradManager gm;
  gm.release();
  auto recording = gm.record();
  gm.release();
  gm.release();
  recording.release();
  EXPECT_FALSE(recording.is_open());
}

// --- several managers ---

TEST(SeveralManagers, DifferentiateOneForwardEachForItself) {
  const Tensor a = f64({2}), b = f64({3});
  GradManager gm_a, gm_b;
  gm_a.attach(a);
  gm_b.attach(b);
  auto ra = gm_a.record();
  auto rb = gm_b.record();
  const Tensor y = a * a * b;
  gm_b.backward(y);
  EXPECT_THAT(values(b.grad()), ElementsAre(4));
  EXPECT_FALSE(a.grad().defined());
  gm_a.backward(y);
  EXPECT_THAT(values(a.grad()), ElementsAre(12));
  EXPECT_THAT(values(b.grad()), ElementsAre(4));
}

TEST(SeveralManagers, CanFinishInEitherOrder) {
  const Tensor x = f64({2});
  GradManager first, second;
  first.attach(x);
  second.attach(x);
  auto r1 = first.record();
  auto r2 = second.record();
  const Tensor y = x * x;
  first.backward(y);
  EXPECT_THAT(values(x.grad()), ElementsAre(4));
  second.backward(y);
  EXPECT_THAT(values(x.grad()), ElementsAre(8));
}

TEST(SeveralManagers, TheInnerOneDoesNotSeeTheOuterBackward) {
  const Tensor x = f64({0.7});
  GradManager outer, inner;
  outer.attach(x);
  inner.attach(x);
  auto r1 = outer.record();
  auto r2 = inner.record();
  outer.backward(cos(x));
  const Tensor first = x.grad();
  x.set_grad({});
  EXPECT_ERROR(StateError, inner.backward(first), "depends on no attached tensor");
  EXPECT_FALSE(x.grad().defined());
}

TEST(GradManagerBackward, OfALossThatDependsOnNothingAttachedIsAnError) {
  const Tensor x = f64({2}), constant = f64({3});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  EXPECT_ERROR(StateError, gm.backward(constant * 2), "f64[1]");
}

TEST(SeveralManagers, GoToTheThirdOrder) {
  const Tensor x = f64({0.7});
  GradManager gm[3];
  for (GradManager& g : gm) g.attach(x);
  auto r0 = gm[0].record();
  auto r1 = gm[1].record();
  auto r2 = gm[2].record();
  Tensor y = sin(x);
  for (int k : {2, 1, 0}) {
    gm[k].backward(y);
    y = x.grad();
    x.set_grad({});
  }
  EXPECT_NEAR(values(y)[0], -std::cos(0.7), 1e-15);
}

TEST(SeveralManagers, InAGroupSeeEachOther) {
  for (bool swapped : {false, true}) {
    const Tensor x = f64({0.7});
    GradManager a, b;
    a.attach(x);
    b.attach(x);
    auto recordings = (a | b).record();
    GradManager& first = swapped ? b : a;
    GradManager& second = swapped ? a : b;
    first.backward(cos(x));
    const Tensor g = x.grad();
    x.set_grad({});
    second.backward(g);
    ASSERT_TRUE(x.grad().defined());
    EXPECT_NEAR(values(x.grad())[0], -std::cos(0.7), 1e-15);
  }
}

TEST(SeveralManagers, OutsideOfAGroupStillSeeByOrder) {
  const Tensor x = f64({0.7});
  GradManager outer, a, b;
  for (GradManager* g : {&outer, &a, &b}) g->attach(x);
  auto r = outer.record();
  auto recordings = (a | b).record();
  a.backward(sin(x));
  Tensor y = x.grad();
  x.set_grad({});
  b.backward(y);
  y = x.grad();
  x.set_grad({});
  outer.backward(y);
  EXPECT_NEAR(values(x.grad())[0], -std::cos(0.7), 1e-15);
}

TEST(SeveralManagers, EmulateForwardModeByTwoReverses) {
  const auto f = [](const Tensor& x) { return sin(x) * exp(x); };
  const Tensor x = f64({0.3, -0.4, 0.9}), v = f64({1, 2, -1});
  GradManager of_dy, of_x;
  of_x.attach(x);
  auto outer = of_dy.record();
  const Tensor dy = zeros({3}, {.dtype = DType::kF64});
  of_dy.attach(dy);
  {
    auto inner = of_x.record();
    of_x.backward(f(x), dy);
  }
  of_dy.backward(x.grad(), v);
  // x.grad() = J^T dy is linear in dy: its gradient along v is J v.
  for (int i = 0; i < 3; ++i) {
    const double at = values(x)[i];
    EXPECT_NEAR(values(dy.grad())[i], (std::cos(at) + std::sin(at)) * std::exp(at) * values(v)[i], 1e-14);
  }
}

// --- in-place edits ---

TEST(InPlaceEdits, OfATrackedTensorAreRefused) {
  const Tensor x = f64({2, 3});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  const Tensor h = x * x;
  EXPECT_NE(error_of<StateError>([&] { fill_(h, 0); }), "no error");
  EXPECT_NE(error_of<StateError>([&] { copy_(x, h); }), "no error");
  gm.backward(sum(h));
  EXPECT_THAT(values(x.grad()), ElementsAre(4, 6));
}

TEST(InPlaceEdits, OfASavedTensorAreFoundInBackward) {
  const Tensor x = f64({2, 3}), c = f64({5, 7});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  const Tensor y = sum(x * c);
  fill_(c, 0);
  const std::string text = error_of<StateError>([&] { gm.backward(y); });
  EXPECT_THAT(text, HasSubstr("mul"));
}

TEST(InPlaceEdits, AfterTheBackwardAreFine) {
  const Tensor x = f64({2, 3});
  GradManager gm;
  gm.attach(x);
  for (int step = 0; step < 2; ++step) {
    auto recording = gm.record();
    gm.backward(sum(x * x));
    fill_(x, 10);
  }
  EXPECT_THAT(values(x.grad()), ElementsAre(24, 26));
}

}  // namespace
}  // namespace gradus
