// DistributedDataParallel (one reducer for the model) and SeparateDistributedDataParallel (one for each
// child): initial checks and broadcasts, every option, models that grow, names of parameters, and groups of
// one rank. Ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/distributed/group/object.h"
#include "gradus/nn/layers/batch_norm.h"
#include "gradus/nn/layers/linear.h"
#include "gradus/optim/optimizer_dict.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/distributed/threads.h"
#include "gradus/tests/ops/values.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using Options = DistributedDataParallelOptions;
using Values = std::vector<float>;

Values values(const Tensor& x) { return x.to_vector<float>(); }

// All weights are `value`, by default the rank + 1: a value of 1 after wrapping came from rank 0.
struct Net : nn::Layer {
  nn::Linear fc{this, "fc", {.in = 2, .out = 2, .bias = false}};
  nn::Linear head{this, "head", {.in = 2, .out = 1}};
  std::unique_ptr<nn::Linear> grown;
  std::unique_ptr<nn::BatchNorm1d> norm;

  explicit Net(double value = get_rank() + 1) {
    for (const Tensor& p : parameters()) raw::fill_(p, value);
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = fc(x);
    if (grown) h = (*grown)(h);
    if (norm) h = (*norm)(h);
    return head(h);
  }
  void grow(double value = get_rank() + 1) {
    grown = std::make_unique<nn::Linear>(this, "grown", nn::LinearOptions{.in = 2, .out = 2});
    for (const Tensor& p : grown->parameters()) raw::fill_(p, value);
  }
  void grow_norm(double value) {
    norm = std::make_unique<nn::BatchNorm1d>(this, "norm", nn::BatchNormOptions{.features = 2});
    raw::fill_(norm->running_mean, value);
  }
};

// The gradient of head.bias is rank + 1: the mean over two ranks is 1.5, the sum 3.
Tensor loss_of_rank(nn::Layer& net) { return sum(net(ones({1, 2}))) * (get_rank() + 1); }

void backward(GradManager& gm, Net& net) {
  auto recording = gm.record();
  gm.backward(loss_of_rank(net));
}

void forget_gradients(Net& net) {
  for (const Tensor& p : net.parameters()) p.set_grad({});
}

// --- initial checks and broadcasts ---

TEST(DistributedDataParallel, MakesParametersAndBuffersThoseOfTheFirstRank) {
  for (const bool broadcast_buffers : {false, true})
    run_ranks(3, [&] {
      Net net;
      net.grow_norm(get_rank() + 1);
      DistributedDataParallel ddp(net, {.broadcast_buffers = broadcast_buffers});
      EXPECT_THAT(values(ddp->fc.weight), Each(1));
      EXPECT_THAT(values(ddp->norm->running_mean), Each(1));
    });
}

TEST(DistributedDataParallel, LeavesThemAloneWithoutInitSync) {
  run_ranks(2, [] {
    Net net;
    DistributedDataParallel ddp(net, {.init_sync = false});
    GradManager gm;
    ddp.attach(gm);
    EXPECT_THAT(values(net.fc.weight), Each(get_rank() + 1));
    net.grow();
    backward(gm, net);
    EXPECT_THAT(values(net.grown->weight), Each(get_rank() + 1));
    EXPECT_THAT(values(net.head.bias.grad()), ElementsAre(1.5));
  });
}

TEST(DistributedDataParallel, NamesTheParameterAndTheRankWhoseModelDiffers) {
  struct Other : nn::Layer {
    nn::Linear a;
    Other(std::string name, int64_t out, bool bias) : a(this, name, {.in = 2, .out = out, .bias = bias}) {}
    Tensor forward(const Tensor& x) override { return a(x); }
  };
  const auto errors = [](std::string name, int64_t out, bool bias, DType dtype) {
    return errors_of(3, [=] {
      const bool last = get_rank() == 2;
      Other net(last ? name : "a", last ? out : 3, last ? bias : true);
      if (last) net.to(dtype);
      DistributedDataParallel ddp(net, {.init_sync = false});
    });
  };
  EXPECT_THAT(errors("a", 4, true, DType::kF32),
              Each(AllOf(HasSubstr("'a.weight' f32[3,2]"), HasSubstr("rank 2"), HasSubstr("f32[4,2]"))));
  EXPECT_THAT(errors("b", 3, true, DType::kF32),
              Each(AllOf(HasSubstr("'a.weight'"), HasSubstr("'b.weight'"))));
  EXPECT_THAT(errors("a", 3, false, DType::kF32), Each(AllOf(HasSubstr("'a.bias'"), HasSubstr("rank 2"))));
  EXPECT_THAT(errors("a", 3, true, DType::kF64), Each(AllOf(HasSubstr("f32[3,2]"), HasSubstr("f64[3,2]"))));
}

TEST(DistributedDataParallel, RanksMustAgreeOnTheOptions) {
  EXPECT_THAT(errors_of(2,
                        [] {
                          Net net;
                          DistributedDataParallel ddp(net, {.bucket_cap_mb = get_rank() ? 25.0 : 1.0});
                        }),
              Each(HasSubstr("bucket_cap_mb = 1, rank 1 has bucket_cap_mb = 25")));
}

TEST(DistributedDataParallel, RefusesWhatCannotBe) {
  Net net;
  struct Empty : nn::Module {
  } empty;
  EXPECT_ERROR(ValueError, DistributedDataParallel ddp(empty), "no parameters");
  EXPECT_ERROR(ValueError, SeparateDistributedDataParallel ddp(empty), "no parameters");
  const Device cpu1 = Device::parse("cpu:1");
  EXPECT_ERROR(ValueError, DistributedDataParallel ddp(net, {.device_ids = {kCPU, cpu1}}), "at most one",
               "got 2");
  EXPECT_ERROR(ValueError, DistributedDataParallel ddp(net, {.device_ids = {cpu1}}), "'fc.weight'", "on cpu,",
               "cpu:1");
  for (const double cap : {0.0, -1.0, double(NAN)})
    EXPECT_ERROR(ValueError, DistributedDataParallel ddp(net, {.bucket_cap_mb = cap}), "bucket_cap_mb");
  EXPECT_THROW(DistributedDataParallel(net, {.check_divergence_every = -1}), ValueError);
  EXPECT_THAT(errors_of(2,
                        [] {
                          const Group first = new_group({0});
                          Net net;
                          if (get_rank() == 1) DistributedDataParallel ddp(net, {.process_group = first});
                        })[1],
              HasSubstr("no member of process_group"));
}

// --- managers that it was not attached to ---

TEST(DistributedDataParallel, ARecordingWithoutItsCallbackIsRefusedByName) {
  const auto first_recording = [](const auto& attach) {
    return errors_of(2, [&] {
      Net net;
      GradManager gm, before;
      before.attach(net.parameters());  // earlier than the wrapper
      DistributedDataParallel ddp(net);
      EXPECT_THROW((void)before.record(), StateError);
      attach(gm, net, ddp);
    });
  };
  const auto refuses =
      Each(AllOf(HasSubstr("[record] 'fc.weight' is a parameter of a DistributedDataParallel"),
                 HasSubstr("Call ddp.attach(gm)")));
  EXPECT_THAT(first_recording([](GradManager& gm, Net& net, auto&) {
                gm.attach(net.parameters());
                backward(gm, net);
              }),
              refuses);
  EXPECT_THAT(first_recording([](GradManager& gm, Net& net, auto&) {
                auto recording = gm.record();
                gm.attach(net.parameters());  // while it records
              }),
              refuses);
  EXPECT_THAT(first_recording([](GradManager& gm, Net& net, auto&) {
                gm.attach(net.parameters()).attach(zeros({1}));
                auto recording = gm.record({.only = net.fc.weight});
              }),
              refuses);
  EXPECT_THAT(errors_of(2,
                        [] {
                          Net net;
                          SeparateDistributedDataParallel ddp(net);
                          GradManager gm;
                          ddp.attach(gm, net.fc);
                          gm.attach(net.parameters());
                          backward(gm, net);
                        }),
              Each(HasSubstr("'head.weight' is a parameter of a SeparateDistributedDataParallel")));
}

TEST(DistributedDataParallel, ManagersThatReduceOrKeepToOneRankMayRecord) {
  run_ranks(2, [] {
    Net net;
    {
      DistributedDataParallel ddp(net);
      GradManager besides, own, other, here;
      besides.attach(net.parameters());
      ddp.attach(besides);
      backward(besides, net);
      EXPECT_THAT(values(net.head.bias.grad()), ElementsAre(1.5));
      own.attach(net.parameters(), make_allreduce_cb("sum"));
      forget_gradients(net);
      backward(own, net);
      EXPECT_THAT(values(net.head.bias.grad()), ElementsAre(3));
      forget_gradients(net);
      const Tensor x = ones({1});
      other.attach(net.parameters()).attach(x);  // records x only
      auto of_x = other.record({.only = x});
      of_x.backward(sum(x * 2));
      here.attach(net.parameters());
      const NoSync off = ddp.no_sync();
      backward(here, net);
      EXPECT_THAT(values(net.head.bias.grad()), ElementsAre(get_rank() + 1));
    }
    GradManager later;  // after the end of the wrapper
    forget_gradients(net);
    later.attach(net.parameters());
    backward(later, net);
    EXPECT_THAT(values(net.head.bias.grad()), ElementsAre(get_rank() + 1));
  });
}

TEST(DistributedDataParallel, InAGroupOfOneNobodyIsLeftOut) {
  Net net;
  DistributedDataParallel ddp(net);
  GradManager gm;
  gm.attach(net.parameters());
  backward(gm, net);
  EXPECT_THAT(values(net.head.bias.grad()), ElementsAre(1));
}

TEST(DistributedDataParallel, NoSyncMayBeKeptInAnOptional) {
  run_ranks(2, [] {
    Net net;
    DistributedDataParallel ddp(net);
    GradManager gm;
    ddp.attach(gm);
    std::optional<NoSync> off;
    off.emplace(ddp.no_sync());
    NoSync moved = std::move(*off);
    off.reset();
    backward(gm, net);
    EXPECT_FALSE(net.head.bias.grad().defined()) << "kept back by what it was moved to";
    moved = NoSync({});
    backward(gm, net);
    EXPECT_THAT(values(net.head.bias.grad()), ElementsAre(3));
  });
}

// --- each option ---

TEST(DistributedDataParallelOption, DeviceIdsAndOutputDevice) {
  const Device cpu1 = Device::parse("cpu:1");
  run_ranks(2, [&] {
    Net net;
    net.to(cpu1);
    GradManager gm;
    DistributedDataParallel ddp(net, {.device_ids = {cpu1}}),
        back(net, {.device_ids = {cpu1}, .output_device = kCPU});
    ddp.attach(gm);
    {
      auto recording = gm.record();
      const Tensor y = ddp(ones({1, 2}));
      EXPECT_EQ(y.device(), cpu1);
      EXPECT_EQ(back(ones({1, 2})).device(), kCPU);
      gm.backward(sum(y) * (get_rank() + 1));
    }
    EXPECT_EQ(net.head.bias.grad().device(), cpu1);
    EXPECT_THAT(values(net.head.bias.grad()), ElementsAre(1.5));
  });
}

TEST(DistributedDataParallelOption, ProcessGroup) {
  run_ranks(4, [] {
    const Group half = world().split(get_rank() % 2);
    Net net;
    DistributedDataParallel ddp(net, {.process_group = half});
    EXPECT_THAT(values(net.fc.weight), Each(get_rank() % 2 + 1)) << "of the group's first rank";
    GradManager gm;
    ddp.attach(gm);
    backward(gm, net);
    EXPECT_THAT(values(net.head.bias.grad()), ElementsAre(get_rank() % 2 ? 3 : 2)) << "ranks 0, 2 and 1, 3";
  });
}

TEST(DistributedDataParallelOption, BucketCap) {
  run_ranks(2, [] {
    Net net;
    DistributedDataParallel one(net), each(net, {.bucket_cap_mb = 1e-6});
    GradManager gm, gm_each;
    one.attach(gm);
    each.attach(gm_each);
    backward(gm, net);
    backward(gm_each, net);
    EXPECT_EQ(one.stats().buckets, 1);
    EXPECT_EQ(each.stats().buckets, 3);
    EXPECT_EQ(each.stats().bytes, 4 * (4 + 2 + 1));
  });
}

TEST(DistributedDataParallelOption, GradientAsBucketView) {
  for (const bool on : {false, true})
    run_ranks(2, [&] {
      Net net;
      DistributedDataParallel ddp(net, {.gradient_as_bucket_view = on});
      GradManager gm;
      ddp.attach(gm);
      for (int step = 0; step < 2; ++step) {
        backward(gm, net);
        EXPECT_EQ(net.head.weight.grad().storage() == net.head.bias.grad().storage(), on);
        EXPECT_THAT(values(net.head.bias.grad()), ElementsAre(1.5));
        for (const Tensor& p : net.parameters()) p.set_grad({});
      }
    });
}

TEST(DistributedDataParallelOption, CommHook) {
  run_ranks(2, [] {
    Net net;
    DistributedDataParallel ddp(net,
                                {.comm_hook = [](const GradBucket&) { return std::function<void()>(); }});
    GradManager gm;
    ddp.attach(gm);
    backward(gm, net);
    EXPECT_THAT(values(net.head.bias.grad()), ElementsAre(get_rank() + 1)) << "nothing was sent";
  });
}

// Options that find a mistake of rank 1 in the second backward.
TEST(DistributedDataParallelOption, Checks) {
  struct Check {
    Options options;
    std::vector<std::string> parts;  // substrings of the error on all ranks; none: no error
    std::function<Tensor(Net&)> loss;
  };
  const auto other_path = [](Net& net) {
    return sum(get_rank() ? net.head(ones({1, 2})) : net(ones({1, 2})));
  };
  const auto other_weight = [](Net& net) {
    if (get_rank() == 1) raw::fill_(net.head.weight, 5);
    return loss_of_rank(net);
  };
  const auto nan = [](Net& net) { return sum(net(full({1, 2}, get_rank() ? NAN : 1))); };
  for (const Check& check :
       {Check{{}, {}, other_path}, Check{{.static_graph = true}, {"fc.weight"}, other_path},
        Check{{}, {}, other_weight},
        Check{{.check_divergence_every = 2}, {"head.weight", "rank 1"}, other_weight}, Check{{}, {}, nan},
        Check{{.check_finite = true}, {"weight", "rank 1"}, nan}}) {
    const auto errors = errors_of(2, [&] {
      Net net;
      DistributedDataParallel ddp(net, check.options);
      GradManager gm;
      ddp.attach(gm);
      backward(gm, net);
      auto recording = gm.record();
      gm.backward(check.loss(net));
    });
    for (const std::string& error : errors) {
      EXPECT_EQ(error.empty(), check.parts.empty()) << error;
      for (const std::string& part : check.parts) EXPECT_THAT(error, HasSubstr(part));
    }
  }
}

// --- calls that go to the model ---

struct Runnable : nn::Module {
  nn::Linear a{this, "a", {.in = 1, .out = 1}};
  int last = 0;
  int train_step(int data, const optim::OptimizerDict& optimizers) { return data + int(optimizers.size()); }
  int& val_step(int data) { return last = data; }
  std::string test_step() { return "tested"; }
  std::string operator()(const std::string& text, Tensor x) { return text + " " + describe(x); }
};

TEST(DistributedDataParallel, HandsStepsAndCallsToTheModel) {
  Runnable model;
  optim::SGD sgd(model.parameters(), {.lr = 1});
  const optim::OptimizerDict optimizers{{"a", sgd}};
  DistributedDataParallel whole(model);
  SeparateDistributedDataParallel separate(model);
  const auto check = [&](auto& ddp) {
    EXPECT_EQ(ddp.train_step(4, optimizers), 5);
    EXPECT_EQ(&ddp.val_step(7), &model.last);
    EXPECT_EQ(ddp.test_step(), "tested");
    EXPECT_EQ(ddp(std::string("x is"), ones({1})), "x is f32[1] cpu")
        << "a result that is no tensor comes back whole";
    EXPECT_EQ(&ddp->a, &model.a);
    EXPECT_EQ(&*ddp, &model);
    EXPECT_EQ(&ddp.module(), &model);
    ddp.eval();
    EXPECT_FALSE(model.a.is_training());
    ddp.train();
    EXPECT_TRUE(model.a.is_training());
    EXPECT_EQ(ddp.parameters().size(), 2u);
  };
  check(whole);
  check(separate);
}

TEST(DistributedDataParallel, KeepsTheModelsNamesAndReadsThoseOfOtherWrappers) {
  Net net(1), bare(2);
  DistributedDataParallel ddp(net);
  SeparateDistributedDataParallel separate(net);
  std::vector<std::string> names;
  for (const auto& [name, x] : ddp.state_dict()) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("fc.weight", "head.weight", "head.bias"));
  bare.load_state_dict(separate.state_dict());
  EXPECT_THAT(values(bare.fc.weight), Each(1));

  for (const char* style : {"module.%", "%", "fc.module|head.module"}) {
    nn::StateDict state;
    for (const auto& [name, x] : Net(3).state_dict()) {
      const size_t dot = name.find('.');
      const std::string wrapped = style[0] == 'm'   ? "module." + name
                                  : style[0] == 'f' ? name.substr(0, dot) + ".module" + name.substr(dot)
                                                    : name;
      state.emplace_back(wrapped, x);
    }
    raw::fill_(net.fc.weight, 0);
    ddp.load_state_dict(state);
    EXPECT_THAT(values(net.fc.weight), Each(3)) << style;
    raw::fill_(net.fc.weight, 0);
    separate.load_state_dict(state);
    EXPECT_THAT(values(net.fc.weight), Each(3)) << style;
  }
  EXPECT_ERROR(ValueError, ddp.load_state_dict({{"module.fc.wieght", ones({2, 2})}}), "module.fc.wieght");
}

TEST(DistributedDataParallel, AModelMayHaveAChildCalledModule) {
  struct Holder : nn::Layer {
    nn::Linear module{this, "module", {.in = 1, .out = 1, .bias = false}};
    nn::Parameter weight{this, "weight", full({1, 1}, 3)};
    Tensor forward(const Tensor& x) override { return module(x) * weight; }
  } holder, other;
  raw::fill_(other.module.weight, 5);
  raw::fill_(other.weight, 6);
  DistributedDataParallel ddp(holder);
  ddp.load_state_dict(other.state_dict());
  EXPECT_THAT(values(holder.module.weight), ElementsAre(5));
  EXPECT_THAT(values(holder.weight), ElementsAre(6));
}

// --- parts ---

TEST(DistributedDataParallel, CallbacksAfterItGetTheReducedGradients) {
  run_ranks(2, [] {
    Net net;
    const auto squared = [](const Tensor&, const Tensor& g) { return g * g; };
    for (const bool separate : {false, true}) {
      GradManager gm;
      DistributedDataParallel whole(net);
      SeparateDistributedDataParallel parts(net);
      separate ? parts.attach(gm, squared) : whole.attach(gm, squared);
      net.grow();  // parameters that are added later
      backward(gm, net);
      EXPECT_THAT(values(net.head.bias.grad()), ElementsAre(2.25));
      const float grad = net.grown->bias.grad().to_vector<float>()[0];
      EXPECT_EQ(grad, 2.25f) << "of a layer before weights of 1";
      net.grown.reset();
      for (const Tensor& p : net.parameters()) p.set_grad({});
    }
  });
}

TEST(SeparateDistributedDataParallel, ReducesChildrenAndTheRootsOwnParametersApart) {
  struct Model : nn::Module {
    nn::Linear a{this, "a", {.in = 1, .out = 1, .bias = false}},
        b{this, "b", {.in = 1, .out = 1, .bias = false}};
    struct Plain : nn::Module {
      using Module::Module;
    } plain{this, "plain"};
    nn::Parameter own{this, "own", full({1}, 1)};
  };
  run_ranks(2, [] {
    Model model;
    raw::fill_(model.own, get_rank() + 3);
    SeparateDistributedDataParallel ddp(model);
    EXPECT_THAT(values(model.own), ElementsAre(3));
    GradManager gm_a, gm;
    ddp.attach(gm_a, model.a);
    ddp.attach(gm);
    {
      auto recording = gm_a.record();
      gm_a.backward(sum(model.a(ones({1, 1})) * model.own * (get_rank() + 1)));
    }
    EXPECT_THAT(values(model.a.weight.grad()), ElementsAre(4.5));
    EXPECT_FALSE(model.own.grad().defined());
    EXPECT_EQ(ddp.stats(model.a).backwards, 1);
    EXPECT_EQ(ddp.stats(model.b).backwards, 0);
    {
      auto recording = gm.record();
      gm.backward(sum(model.own * (get_rank() + 1)));
    }
    EXPECT_THAT(values(model.own.grad()), ElementsAre(1.5));
    EXPECT_EQ(ddp.stats(model).bytes, 4);
    EXPECT_ERROR(ValueError, ddp.attach(gm, model.plain), "'plain'", "'a'", "'b'", "the model itself");
    Model other;
    EXPECT_ERROR(ValueError, ddp.attach(gm, other.a), "direct child");
  });
}

TEST(SeparateDistributedDataParallel, AParameterOfSeveralChildrenIsReducedOnce) {
  struct Part : nn::Module {
    nn::Parameter shared;
    Part(nn::Module* parent, std::string name, Tensor value)
        : Module(parent, name), shared(this, "w", value) {}
  };
  struct Model : nn::Module {
    Part a{this, "a", full({1}, get_rank() + 1)}, b{this, "b", a.shared};
    nn::Parameter own{this, "own", b.shared};
  };
  run_ranks(2, [] {
    Model model;
    SeparateDistributedDataParallel ddp(model);
    GradManager gm;
    ddp.attach(gm);
    {
      auto recording = gm.record();
      gm.backward(sum(model.a.shared * model.b.shared) * (get_rank() + 1));
    }
    EXPECT_THAT(values(model.a.shared.grad()), ElementsAre(3)) << "2 w 1.5, with w = 1";
    EXPECT_EQ(ddp.stats(model).bytes, 4) << "the root comes first";
    EXPECT_ERROR(ValueError, ddp.attach(gm, model.b), "'b'", "there are: the model itself");
  });
}

// --- growth ---

template <class Ddp> void check_growth(Net& net, Ddp& ddp, GradManager& gm) {
  backward(gm, net);
  net.grow();
  net.grow_norm(get_rank() + 7);
  {
    auto recording = gm.record();
    EXPECT_THAT(values(net.grown->weight), Each(1)) << "the first rank's, as soon as a recording opens";
    EXPECT_THAT(values(net.norm->running_mean), Each(7));
    gm.backward(sum((*net.grown)(net.fc(ones({1, 2})))) * (get_rank() + 1));
  }
  EXPECT_THAT(values(net.grown->bias.grad()), Each(1.5));
  // Other layers replace the new ones, under the same names.
  net.grown.reset();
  net.norm.reset();
  net.grow(get_rank() + 20);
  net.grow_norm(get_rank() + 30);
  {
    auto recording = gm.record();
    EXPECT_THAT(values(net.grown->weight), Each(20));
    EXPECT_THAT(values(net.norm->running_mean), Each(30));
    gm.backward(sum((*net.grown)(net.fc(ones({1, 2})))) * (get_rank() + 1));
  }
  EXPECT_THAT(values(net.grown->bias.grad()), Each(1.5));
  EXPECT_EQ(ddp.state_dict().size(), 10u);
}

TEST(DistributedDataParallel, TakesInWhatTheModelGetsLater) {
  run_ranks(2, [] {
    Net net;
    DistributedDataParallel ddp(net, {.broadcast_buffers = false});
    GradManager gm;
    ddp.attach(gm);
    check_growth(net, ddp, gm);
  });
}

TEST(SeparateDistributedDataParallel, TakesInChildrenThatTheModelGetsLater) {
  run_ranks(2, [] {
    Net net;
    SeparateDistributedDataParallel ddp(net);
    GradManager gm;
    ddp.attach(gm);
    check_growth(net, ddp, gm);
  });
}

TEST(SeparateDistributedDataParallel, AttachesANewChildToAManagerOfItsOwn) {
  run_ranks(2, [] {
    Net net;
    SeparateDistributedDataParallel ddp(net);
    GradManager gm_head, gm_grown;
    ddp.attach(gm_head, net.head);
    net.grow();
    backward(gm_head, net);
    EXPECT_FALSE(net.grown->bias.grad().defined());
    ddp.attach(gm_grown, *net.grown);
    EXPECT_THAT(values(net.grown->weight), Each(1));
    backward(gm_grown, net);
    EXPECT_THAT(values(net.grown->bias.grad()), Each(1.5));
    EXPECT_EQ(ddp.stats(*net.grown).backwards, 1);
  });
}

TEST(DistributedDataParallel, RanksMustGrowAlike) {
  const auto grow_on_rank_1 = [](bool other_shape) {
    return errors_of(2, [=] {
      Net net;
      DistributedDataParallel ddp(net);
      GradManager gm;
      ddp.attach(gm);
      backward(gm, net);
      if (get_rank() == 1) net.grow();
      if (get_rank() == 0 && other_shape)
        net.grown = std::make_unique<nn::Linear>(&net, "grown", nn::LinearOptions{.in = 2, .out = 3});
      backward(gm, net);
    });
  };
  EXPECT_THAT(grow_on_rank_1(true),
              Each(AllOf(HasSubstr("'grown.weight'"), HasSubstr("f32[3,2]"), HasSubstr("f32[2,2]"))));
  const std::vector<std::string> alone = grow_on_rank_1(false);
  EXPECT_THAT(alone, Each(HasSubstr("rank")));
  EXPECT_THAT(alone[1], AllOf(HasSubstr("new in the model"), HasSubstr("'grown.weight'")));
}

// --- groups of one rank, and managers that outlive the wrapper ---

TEST(DistributedDataParallel, InAGroupOfOneChangesNothing) {
  Net net(2), plain(2);
  DistributedDataParallel whole(net);
  SeparateDistributedDataParallel separate(net);
  GradManager gm, gm_separate, gm_plain;
  whole.attach(gm);
  separate.attach(gm_separate);
  gm_plain.attach(plain.parameters());
  backward(gm_plain, plain);
  for (GradManager* m : {&gm, &gm_separate}) {
    backward(*m, net);
    for (size_t i = 0; i < net.parameters().size(); ++i)
      EXPECT_EQ(values(net.parameters()[i].grad()), values(plain.parameters()[i].grad()));
    for (const Tensor& p : net.parameters()) p.set_grad({});
  }
  EXPECT_EQ(whole.stats().bytes, 0);
  EXPECT_EQ(separate.stats(net.fc).bytes, 0);
  net.grow(4);
  backward(gm, net);
  EXPECT_THAT(values(net.grown->weight), Each(4));
  EXPECT_TRUE(net.grown->bias.grad().defined());
}

TEST(DistributedDataParallel, AManagerOutlivesTheWrapper) {
  run_ranks(2, [] {
    auto net = std::make_unique<Net>();
    GradManager gm;
    {
      DistributedDataParallel ddp(*net);
      ddp.attach(gm);
    }
    backward(gm, *net);
    EXPECT_THAT(values(net->head.bias.grad()), ElementsAre(1.5));
    net.reset();
    EXPECT_TRUE(gm.attached_tensors().empty()) << "nothing keeps the model's parameters";
    const Tensor x = ones({1});
    gm.attach(x);
    auto recording = gm.record();
    gm.backward(sum(x));
    EXPECT_THAT(values(x.grad()), ElementsAre(1));
  });
}

}  // namespace
}  // namespace gradus::dist
