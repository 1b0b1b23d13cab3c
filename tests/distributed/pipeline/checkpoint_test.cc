// Checkpoints of pipelines: training goes on with the same bits from a file written by any other number of
// stages or without a pipeline; all ranks skip a damaged file, and get the same error for other bad ones.
#include "gradus/io/checkpoint.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>

#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/pipeline/pipeline.h"
#include "gradus/io/weights.h"
#include "gradus/models/resnet.h"
#include "gradus/optim/optimizers/adam.h"
#include "gradus/optim/optimizers/lbfgs.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/distributed/pipeline/small_models.h"
#include "gradus/tests/io/testing.h"
#include "gradus/tests/ops/values.h"

namespace gradus::dist {
namespace {

using io::FileSizeLimit;
using io::slurp;
using io::spit;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kMicroBatches = 4;
constexpr int64_t kRows = 14;  // of a replica

// Batch norm and dropout included.
// Shapes: x [N,6] -> [N,3].
struct Net : nn::Layer {
  struct Block : nn::Layer {
    using Layer::Layer;
    nn::Linear fc{this, "fc", {.in = 12, .out = 12}};
    nn::BatchNorm1d norm{this, "norm", {.features = 12}};
    nn::Dropout dropout{this, "dropout", {.p = 0.1}};
    Tensor forward(const Tensor& x) override { return x + dropout(relu(norm(fc(x)))); }
  };
  nn::Linear in{this, "in", {.in = 6, .out = 12}};
  Block b0{this, "b0"}, b1{this, "b1"}, b2{this, "b2"}, b3{this, "b3"}, b4{this, "b4"}, b5{this, "b5"};
  nn::Linear out{this, "out", {.in = 12, .out = 3}};
  Tensor forward(const Tensor& x) override { return out(b5(b4(b3(b2(b1(b0(in(x)))))))); }
};

// The modules after which stages end.
std::vector<std::string> cuts(int stages) {
  const std::vector<std::string> all = {"b0", "b2", "b4", "in", "b1", "b3", "b5"};
  return {all.begin(), all.begin() + stages - 1};
}

// A batch of this rank's replica.
Tensor rows_of(int64_t columns, uint64_t seed) {
  const auto replica = Job::current()->replica();
  const Tensor all = random_tensor({replica.count * kRows, columns}, DType::kF32, seed);
  return narrow(all, 0, replica.index * kRows, kRows);
}
Tensor input(int step) { return rows_of(6, 100 + uint64_t(step)); }
Tensor target(int step) { return rows_of(3, 200 + uint64_t(step)); }

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(const nn::StateDict&)>;

std::vector<Tensor> tensors_of(const nn::StateDict& named) {
  std::vector<Tensor> all;
  for (const auto& [name, x] : named) all.push_back(x);
  return all;
}
std::unique_ptr<optim::Optimizer> adam(const nn::StateDict& parameters) {
  return std::make_unique<optim::Adam>(tensors_of(parameters), optim::AdamOptions{.lr = 0.01});
}
// Steps [first, last) of a training, resumed from file `from` (empty: from the beginning), saved to `to`.
struct Part {
  int first = 0, last = 0;
  std::string from = {}, to = {};
  MakeOptimizer make_optimizer = adam;
  int replicas = 2;
};

void train(const PipelineOptions& options, const Part& part) {
  PipelineOptions own = options;
  own.micro_batches = kMicroBatches;
  own.cut_after = cuts(options.stages * options.interleave);
  run_ranks(part.replicas * options.stages, [&] {
    manual_seed(5);
    set_num_threads(1);
    Pipeline<Net> pipe([] { return std::make_unique<Net>(); }, zeros({2, 6}), own);
    GradManager gm;
    pipe.attach(gm);
    const auto opt = part.make_optimizer(pipe.named_parameters());
    io::Checkpoint more;
    if (!part.from.empty()) {
      manual_seed(6);  // the file's generator replaces it
      more = pipe.load(part.from, *opt).checkpoint;
      EXPECT_EQ(more.get<int>("steps"), part.first);
    }
    for (int step = part.first; step < part.last; ++step) {
      more.put("steps", step + 1);
      more.put(concat("loss.", step), pipe.step(gm, input(step), target(step), nn::mse_loss));
      opt->step().clear_grad();
    }
    pipe.save(part.to, *opt, more);
  });
}

// The same without a pipeline. The first reversed_steps run the backwards of their micro-batches in reverse,
// as the looped breadth-first schedule does.
void train_undivided(const Part& part, int reversed_steps) {
  run_ranks(part.replicas, [&] {
    manual_seed(5);
    set_num_threads(1);
    Net net;
    GradManager gm;
    const auto over_replicas = make_allreduce_cb(ReduceOp::kMean);
    gm.attach(net.parameters(), over_replicas);
    const auto opt = part.make_optimizer(net.named_parameters());
    RandomGenerator& generator = *Context::current().generator;
    io::Checkpoint c;
    if (!part.from.empty()) {
      manual_seed(6);
      c = io::load_checkpoint(part.from).checkpoint;
      c.get("model", net);
      c.get("optimizer", *opt);
      c.get("generator", generator);
    }
    for (int step = part.first; step < part.last; ++step) {
      const PhiloxKey draw = generator.next();
      std::vector<Recording> recordings;
      std::vector<Tensor> losses;
      double sum = 0;
      for (int64_t k = 0, begin = 0; k < kMicroBatches; ++k) {
        const int64_t rows = kRows / kMicroBatches + (k < kRows % kMicroBatches);
        Context context = Context::current().snapshot();
        context.generator = std::make_shared<RandomGenerator>(RandomGenerator::of_part(draw, uint64_t(k)));
        const ContextScope scope(context);
        recordings.push_back(gm.record());
        losses.push_back(
            nn::mse_loss(net(narrow(input(step), 0, begin, rows)), narrow(target(step), 0, begin, rows)) *
            (double(rows) / double(kRows)));
        recordings.back().pause();
        sum += losses.back().item<double>();
        begin += rows;
      }
      std::optional<NoSync> not_yet(over_replicas->no_sync());
      for (int i = 0; i < kMicroBatches; ++i) {
        const auto k = size_t(step < reversed_steps ? kMicroBatches - 1 - i : i);
        if (i + 1 == kMicroBatches) not_yet.reset();
        recordings[k].backward(losses[k]);
      }
      opt->step().clear_grad();
      const Tensor loss = full({}, sum, {.dtype = DType::kF64});
      dist::all_reduce(loss, {.op = ReduceOp::kMean});
      c.put("steps", step + 1);
      c.put(concat("loss.", step), loss.item<double>());
    }
    if (get_rank() != 0) return;
    c.put("model", net);
    c.put("optimizer", *opt);
    c.put("generator", generator);
    io::save_checkpoint(part.to, c);
  });
}

// The files are the same, byte for byte: parameters, buffers, optimizer, random numbers, losses.
TEST(PipelineCheckpoint, AnyNumberOfStagesGoesOnWithTheSameBits) {
  Scratch dir;
  train_undivided({.last = 8, .to = dir / "uninterrupted"}, 5);
  const std::string want = slurp(dir / "uninterrupted");
  train({.stages = 4, .interleave = 2, .schedule = Schedule::kLoopedBreadthFirst},
        {.last = 5, .to = dir / "looped"});
  train_undivided({.last = 5, .to = dir / "undivided"}, 5);
  EXPECT_EQ(slurp(dir / "looped"), slurp(dir / "undivided"));

  const Part rest{.first = 5, .last = 8, .from = dir / "looped", .to = dir / "end"};
  for (const PipelineOptions& way :
       {PipelineOptions{.stages = 1}, PipelineOptions{.stages = 3},
        PipelineOptions{.stages = 2, .interleave = 2, .schedule = Schedule::kZeroBubbleV}}) {
    train(way, rest);
    EXPECT_EQ(slurp(rest.to), want) << way.stages << ' ' << name_of(way.schedule);
  }
  train_undivided(rest, 5);
  EXPECT_EQ(slurp(rest.to), want);
}

// Two parameter groups; the pipeline's optimizers list the weights in reverse.
TEST(PipelineCheckpoint, NumbersParametersAsAnUndividedOptimizerDoes) {
  const auto grouped = [](bool reversed) {
    return [=](const nn::StateDict& parameters) {
      std::vector<Tensor> weights, others;
      for (const auto& [name, p] : parameters) (p.dim() > 1 ? weights : others).push_back(p);
      if (reversed) std::ranges::reverse(weights);
      auto opt = std::make_unique<optim::SGD>(
          weights, optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01});
      opt->add_param_group(others, {.lr = 0.1, .momentum = 0.9});
      return opt;
    };
  };
  Scratch dir;
  train_undivided({.last = 3, .to = dir / "want", .make_optimizer = grouped(false), .replicas = 1}, 0);
  train({.stages = 3}, {.last = 2, .to = dir / "c", .make_optimizer = grouped(true), .replicas = 1});
  train({.stages = 2}, {.first = 2,
                        .last = 3,
                        .from = dir / "c",
                        .to = dir / "got",
                        .make_optimizer = grouped(true),
                        .replicas = 1});
  EXPECT_EQ(slurp(dir / "got"), slurp(dir / "want"));
}

// A tied parameter is one entry. Each rank that holds it reads it.
TEST(PipelineCheckpoint, WritesATiedParameterOnce) {
  Scratch dir;
  const auto example = tensor(std::vector<int64_t>{1, 2, 3, 4}, {2, 2});
  const auto save = [&](int stages, uint64_t seed, const std::string& from, const std::string& to) {
    run_ranks(stages, [&] {
      manual_seed(seed);
      const std::vector<std::string> after = {"b0", "b1", "b2"};
      Pipeline<TiedText> pipe([] { return std::make_unique<TiedText>(); }, example,
                              {.micro_batches = 1, .cut_after = {after.begin(), after.begin() + stages - 1}});
      GradManager gm;
      pipe.attach(gm);
      optim::Adam opt(pipe.parameters(), {.lr = 0.01});
      if (!from.empty()) {
        pipe.load(from, opt);
      } else {
        pipe.step(gm, example, example, [](const Tensor& y, const Tensor& t) {
          return nn::cross_entropy(flatten(y, 0, 1), flatten(t, 0, 1));
        });
        opt.step();
      }
      pipe.save(to, opt);
      const Tensor tied = pipe.module().embed.tokens.weight;
      if (tied.device() == kCPU) {
        EXPECT_EQ(tied.to_vector<float>(),
                  io::load_checkpoint(to).checkpoint.tensor("model.embed.tokens.weight").to_vector<float>());
      }
    });
  };
  save(3, 5, "", dir / "a");
  save(4, 6, dir / "a", dir / "b");
  save(1, 7, dir / "a", dir / "c");
  EXPECT_EQ(slurp(dir / "b"), slurp(dir / "a"));
  EXPECT_EQ(slurp(dir / "c"), slurp(dir / "a"));
  EXPECT_EQ(io::load_checkpoint(dir / "a").checkpoint.tensors("model").size(),
            TiedText().state_dict().size());
}

struct Wide : nn::Layer {
  nn::Linear a{this, "a", {.in = 160, .out = 160}}, b{this, "b", {.in = 160, .out = 160}},
      c{this, "c", {.in = 160, .out = 160}}, d{this, "d", {.in = 160, .out = 160}};
  Tensor forward(const Tensor& x) override { return d(c(b(a(x)))); }
};

TEST(PipelineCheckpoint, ARankReadsTheBytesOfItsTensorsOnly) {
  Scratch dir;
  run_ranks(4, [&] {
    Pipeline<Wide> pipe([] { return std::make_unique<Wide>(); }, zeros({2, 160}),
                        {.micro_batches = 1, .cut_after = {"a", "b", "c"}});
    GradManager gm;
    pipe.attach(gm);
    optim::Adam opt(pipe.parameters(), {.lr = 0.01});
    pipe.step(gm, ones({2, 160}), ones({2, 160}), nn::mse_loss);
    opt.step();
    pipe.save(dir / "c", opt);
    const io::LoadedCheckpoint loaded = pipe.load(dir / "c", opt);
    const int64_t own = 3 * (160 * 160 + 160) * 4;  // a layer, and two states of the optimizer
    EXPECT_GE(loaded.bytes_read, own);
    EXPECT_LE(double(loaded.bytes_read), 1.1 * double(own));
  });
}

// Runs body(pipe, opt) on ranks with a stage each.
template <class F> void with_pipe(int ranks, const F& body) {
  run_ranks(ranks, [&] {
    manual_seed(5);
    Pipeline<Net> pipe([] { return std::make_unique<Net>(); }, zeros({2, 6}),
                       {.micro_batches = 1, .cut_after = cuts(ranks)});
    GradManager gm;
    pipe.attach(gm);
    optim::SGD opt(pipe.parameters(), {.lr = 0.1, .momentum = 0.9});
    pipe.step(gm, ones({4, 6}), ones({4, 3}), nn::mse_loss);
    opt.step();
    body(pipe, opt);
  });
}

// Expects the same error E of f on all ranks, within 2 s, and no change of state. Returns its text.
template <class E, class F>
std::string refused(Pipeline<Net>& pipe, const optim::Optimizer& opt, const F& f) {
  const auto state = [&] {
    io::Checkpoint c;
    c.put("model", pipe.named_parameters());
    c.put("optimizer", opt);
    std::vector<std::vector<double>> all;
    for (const auto& [name, x] : c.tensors()) all.push_back(x.template to_vector<double>());
    return all;
  };
  const auto before = state();
  const auto begin = Clock::now();
  const std::string text = error_of<E>(f);
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - begin).count(), 2);
  EXPECT_EQ(state(), before);
  // The ranks can still communicate.
  EXPECT_THAT(all_gather_object(text), Each(text));
  return text;
}

io::Checkpoint steps(int n) {
  io::Checkpoint c;
  c.put("steps", n);
  return c;
}

TEST(PipelineCheckpoint, ADamagedFileLeadsToThePreviousOneOnAllRanks) {
  Scratch dir;
  const auto path = dir / "c";
  with_pipe(2, [&](Pipeline<Net>& pipe, optim::SGD& opt) {
    pipe.save(path, opt, steps(1));
    pipe.save(path, opt, steps(2));
    const std::string content = slurp(path);
    const size_t parts = 8;
    for (size_t i = 0; i <= parts; ++i) {
      const size_t at = std::min(content.size() - 1, content.size() * i / parts);
      for (const bool truncated : {false, true}) {
        std::string damaged = truncated ? content.substr(0, at) : content;
        if (!truncated) damaged[at] ^= 1;
        barrier();
        if (get_rank() == 0) spit(path, damaged);
        barrier();
        const io::LoadedCheckpoint loaded = pipe.load(path, opt);
        EXPECT_EQ(loaded.checkpoint.get<int>("steps"), 1) << at;
        EXPECT_EQ(loaded.path, path.string() + ".previous");
        EXPECT_THAT(loaded.warning, HasSubstr(path.string() + ": "));
      }
    }
    barrier();
    if (get_rank() == 0) std::filesystem::remove(path.string() + ".previous");
    barrier();
    const std::string text = refused<FileError>(pipe, opt, [&] { pipe.load(path, opt); });
    EXPECT_THAT(text, AllOf(HasSubstr("no usable checkpoint"), HasSubstr(path.string() + ".previous: ")));
    // Only rank 1 lacks the file.
    pipe.save(path, opt);
    refused<FileError>(pipe, opt, [&] { pipe.load(get_rank() == 1 ? "/nowhere/c" : path, opt); });
  });
}

TEST(PipelineCheckpoint, AFileOfAnotherModelIsRefusedWithAllNames) {
  Scratch dir;
  const Net net;
  const auto save = [&](const char* name, nn::StateDict state, optim::Optimizer& opt) {
    io::Checkpoint c;
    c.put("model", state);
    c.put("optimizer", opt);
    io::save_checkpoint(dir / name, c);
  };
  optim::SGD of_net(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  optim::Adam other_kind(net.parameters(), {.lr = 0.1});
  optim::SGD smaller(net.b0.parameters(), {.lr = 0.1, .momentum = 0.9});
  nn::StateDict other = net.state_dict();
  other.erase(other.begin());  // in.weight
  other.emplace_back("b5.scale", ones({3}));
  for (auto& [name, x] : other)
    if (name == "out.bias") x = zeros({7});
  save("names", other, of_net);
  save("kind", net.state_dict(), other_kind);
  save("smaller", net.state_dict(), smaller);
  io::save_weights(net, dir / "weights");
  with_pipe(3, [&](Pipeline<Net>& pipe, optim::SGD& opt) {
    const auto refuse = [&](const char* name) {
      return refused<ValueError>(pipe, opt, [&] { pipe.load(dir / name, opt); });
    };
    EXPECT_THAT(refuse("names"), AllOf(HasSubstr((dir / "names").string()), HasSubstr("missing"),
                                       HasSubstr("in.weight"), HasSubstr("unexpected"), HasSubstr("b5.scale"),
                                       HasSubstr("out.bias: expected f32[3]")));
    EXPECT_THAT(refuse("kind"), HasSubstr("missing: group.0.momentum"));
    EXPECT_THAT(refuse("smaller"), HasSubstr("expected 28 parameters in the optimizer's group 0, got 4"));
    EXPECT_THAT(refused<FileError>(pipe, opt, [&] { pipe.load(dir / "weights", opt); }),
                HasSubstr("not a checkpoint"));
  });
}

// A file that the caller's check refuses is intact, so load() does not fall back to the previous one.
TEST(PipelineCheckpoint, WhatACheckRefusesIsRefusedByAllRanks) {
  Scratch dir;
  const auto path = dir / "c";
  with_pipe(2, [&](Pipeline<Net>& pipe, optim::SGD& opt) {
    pipe.save(path, opt, steps(1));
    pipe.save(path, opt, steps(2));
    for (const int who : {0, 1, 2}) {  // the rank whose check throws; 2: both
      int checked = 0;
      const auto check = [&](const io::LoadedCheckpoint& found) {
        ++checked;
        EXPECT_EQ(found.path, path.string());
        EXPECT_EQ(found.checkpoint.get<int>("steps"), 2);
        EXPECT_EQ(found.checkpoint.tensor("model.in.weight").device().type, DeviceType::kMeta);
        if (who == 2 || who == get_rank()) throw FileError("test", "of another training");
      };
      const std::string text = refused<FileError>(pipe, opt, [&] { pipe.load(path, opt, check); });
      EXPECT_EQ(text, "[test] of another training");
      EXPECT_EQ(checked, 1);
    }
    // A damaged newest file is skipped before the check.
    std::string content = slurp(path);
    content[content.size() / 2] ^= 1;
    barrier();
    if (get_rank() == 0) spit(path, content);
    barrier();
    const auto newest = [&](const io::LoadedCheckpoint& found) {
      if (found.checkpoint.get<int>("steps") == 2) throw ValueError("test", "newest");
    };
    EXPECT_EQ(pipe.load(path, opt, newest).checkpoint.get<int>("steps"), 1);
  });
}

TEST(PipelineCheckpoint, AFullDiskIsAnErrorOfAllRanks) {
  Scratch dir;
  const auto path = dir / "c";
  with_pipe(3, [&](Pipeline<Net>& pipe, optim::SGD& opt) {
    pipe.save(path, opt, steps(1));
    pipe.save(path, opt, steps(2));
    const int64_t bytes = std::ssize(slurp(path));
    for (const int64_t limit : {int64_t{0}, bytes / 3, bytes / 2, bytes - 2}) {
      std::optional<FileSizeLimit> full;
      barrier();
      if (get_rank() == 0) full.emplace(limit);
      EXPECT_THAT(refused<FileError>(pipe, opt, [&] { pipe.save(path, opt, steps(3)); }),
                  HasSubstr(path.string()));
    }
    EXPECT_EQ(pipe.load(path, opt).checkpoint.get<int>("steps"), 2);
    EXPECT_EQ(pipe.load(path.string() + ".previous", opt).checkpoint.get<int>("steps"), 1);
    barrier();
    EXPECT_THAT(dir.names(), ElementsAre("c", "c.previous"));
  });
}

TEST(PipelineCheckpoint, WhatCannotBeSavedIsRefusedOnAllRanks) {
  Scratch dir;
  with_pipe(2, [&](Pipeline<Net>& pipe, optim::SGD& opt) {
    const auto refuse = [&](const optim::Optimizer& o, const io::Checkpoint& more = {}) {
      return refused<ValueError>(pipe, opt, [&] { pipe.save(dir / "c", o, more); });
    };
    io::Checkpoint taken;
    taken.put("model.depth", 3);
    EXPECT_THAT(refuse(opt, taken), HasSubstr("the pipeline itself saves 'model.depth'"));
    optim::LBFGS whole(pipe.parameters(), {.max_iter = 1});
    whole.step([&] {
      for (const Tensor& p : pipe.parameters()) p.set_grad(p * 2.0);
      return sum(pipe.parameters()[0]);
    });
    EXPECT_THAT(refuse(whole), HasSubstr("belongs to no parameter"));
    Net net;
    optim::SGD foreign(net.parameters(), {.lr = 0.1});
    EXPECT_THAT(refuse(get_rank() == 1 ? foreign : opt),
                HasSubstr("expected an optimizer over pipe.parameters()"));
    optim::SGD two({pipe.parameters()[0]}, {.lr = 0.1});
    two.add_param_group({pipe.parameters()[1]}, {.lr = 0.1});
    EXPECT_THAT(refuse(get_rank() == 1 ? two : opt), HasSubstr("as many groups"));
    opt.set_lr(0.1 + 0.1 * get_rank());
    EXPECT_THAT(refuse(opt), HasSubstr("'optimizer.numbers.group.0.lr' to be the same on all ranks"));
  });
}

TEST(PipelineCheckpoint, ARankThatDoesNotComeToSaveIsNamed) {
  Scratch dir;
  std::vector<std::string> heard(3);
  try {
    with_pipe(3, [&](Pipeline<Net>& pipe, optim::SGD& opt) {
      barrier();
      const auto begin = Clock::now();
      if (get_rank() == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the others wait for it
        throw ValueError("test", "has other plans");
      }
      heard[size_t(get_rank())] = error_of<PeerError>([&] { pipe.save(dir / "c", opt); });
      EXPECT_LT(std::chrono::duration<double>(Clock::now() - begin).count(), 2);
    });
  } catch (const ValueError&) {
  }
  for (const int rank : {0, 2}) EXPECT_THAT(heard[size_t(rank)], HasSubstr("rank 1 failed"));
  EXPECT_THAT(dir.names(), testing::IsEmpty());
}

// Returns how many bytes this thread has read from files, or -1 if the kernel does not count them.
int64_t bytes_read() {
  std::ifstream counts("/proc/thread-self/io");
  std::string name;
  int64_t bytes = -1;
  counts >> name >> bytes;
  return name == "rchar:" ? bytes : -1;
}

// A ResNet-50 loaded from one file gives the logits of the undivided network, and each rank reads little
// more bytes than its tensors have.
TEST(PipelineCheckpoint, LoadsWeightsWithTheNamesOfTorchvision) {
  Scratch dir;
  const Tensor x = random_tensor({2, 3, 64, 64});
  std::vector<float> want;
  run_ranks(1, [&] {
    set_num_threads(1);
    manual_seed(5);
    models::ResNet net(models::resnet50());
    net(random_tensor({2, 3, 64, 64}, DType::kF32, 7));  // running statistics
    io::save_weights(net, dir / "resnet50");
    NamedTensors other = net.state_dict();
    other.erase(other.begin());  // conv1.weight
    other.emplace_back("fc.scale", ones({3}));
    io::save_safetensors(dir / "other", other);
    net.eval();
    want = net(x).to_vector<float>();
  });
  constexpr int ranks = 3;
  std::atomic<int64_t> parameters = 0;
  run_ranks(ranks, [&] {
    set_num_threads(1);
    manual_seed(6);
    Pipeline<models::ResNet> pipe([] { return std::make_unique<models::ResNet>(models::resnet50()); }, x,
                                  {.micro_batches = 1, .cut_after = {"layer2", "layer3.2"}});
    EXPECT_THAT(error_of<ValueError>([&] { pipe.load_weights(dir / "other"); }),
                AllOf(HasSubstr((dir / "other").string()), HasSubstr("fc.scale"), HasSubstr("conv1.weight")));
    EXPECT_THROW(pipe.load_weights(dir / "none"), FileError);
    const nn::LoadReport report = pipe.load_weights(dir / "other", {.strict = false, .except = {"fc.bias"}});
    EXPECT_THAT(report.missing, ElementsAre("conv1.weight"));
    EXPECT_THAT(report.unexpected, ElementsAre("fc.scale"));
    EXPECT_THAT(report.kept, ElementsAre("fc.bias"));

    int64_t own = 0;
    for (const auto& [name, t] : pipe.module().state_dict())
      if (t.device() == kCPU) own += t.nbytes();
    const int64_t before = bytes_read();
    pipe.load_weights(dir / "resnet50");
    if (before >= 0) {
      EXPECT_GE(bytes_read() - before, own);
      EXPECT_LE(double(bytes_read() - before), 1.1 * double(own));
    }
    optim::SGD opt(pipe.parameters(), {.lr = 1});
    pipe.save(dir / "c", opt);
    for (const Tensor& p : pipe.parameters()) fill_(p, 0), parameters += p.numel();
    pipe.load_weights(dir / "c", {}, "model");
    pipe.eval();
    const Tensor logits = pipe.forward(x);
    EXPECT_EQ(logits.defined(), get_rank() == ranks - 1);
    EXPECT_EQ(logits.defined() ? logits.to_vector<float>() : want, want);
  });
  EXPECT_EQ(parameters, 25'557'032);
}

}  // namespace
}  // namespace gradus::dist
