// Ranks with emulated GPUs, one GPU per rank, train models as one rank on the CPU does with the joined batch: losses,
// gradients, parameters and buffers, in f64. Collectives go by NCCL and through host memory; ranks are threads and
// processes. With two ranks both ways give the same bits, since a sum of two numbers has one order.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/data/sets/digits.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/distributed/data_parallel/sync_batch_norm.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/models/models.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/optim.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/devices.h"
#include "gradus/tests/distributed/pipeline/undivided.h"
#include "gradus/tests/distributed/rank_processes.h"
#include "gradus/tools/cuda_emulator/libraries/nccl.h"
#include "gradus/train/gan/gan.h"

namespace gradus::dist {
namespace {

constexpr int kBatches = 2;
constexpr int64_t kRows = 8;  // of a joined batch

// Of a tensor's largest difference relative to its largest element. CPU and GPUs, and one rank and several, add in
// different orders, each addition with a rounding of 2^-53. Measured: 1e-14 in the ResNet, which has the longest
// chain of sums, 1e-15 in most models. Two comments below say where differences of almost equal numbers are avoided.
constexpr double kTolerance = 1e-12;

// A job of one rank trains on the CPU.
Device rank_device() {
  return get_world_size() == 1 ? kCPU : Device{DeviceType::kCUDA, int16_t(get_rank() % cuda_device_count())};
}

// Returns this rank's rows of a joined batch: rank, rank + world, ..., as MinibatchStdDev joins them.
Tensor own_rows(const Tensor& joined) {
  return raw::to(raw::contiguous(slice(joined, 0, get_rank(), joined.size(0), get_world_size())),
                 rank_device());
}
Tensor samples(Shape shape, int seed) {
  shape.insert(0, kRows);
  return random_tensor(shape, DType::kF64, uint64_t(seed));
}
Tensor classes(int64_t count, const Shape& shape, int seed) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < shape.product(); ++i) numbers.push_back((i * i + 3 * i + seed) % count);
  return tensor(numbers, shape);
}

void keep_loss(Trained& trained, const Tensor& loss) {
  const Tensor mean = raw::clone(detach(loss));
  all_reduce(mean, {.op = ReduceOp::kAvg});
  trained.losses.push_back(mean.item<double>());
}
// The first gradient of each parameter.
void keep_gradients(Trained& trained, const nn::Module& model) {
  for (const auto& [name, p] : model.named_parameters())
    if (p.grad().defined()) trained.grads.try_emplace(name, p.grad().to_vector<double>());
}
void keep_state(Trained& trained, const nn::Module& model) {
  for (const auto& [name, x] : model.state_dict()) trained.state[name] = x.to_vector<double>();
}

// ---- models with one loss

// Several buckets, which are sent during the backward.
DistributedDataParallelOptions small_buckets() { return {.bucket_cap_mb = 1e-3}; }

template <class Net, class Opt> struct Training {
  Training(Net& net, const auto& options, const DistributedDataParallelOptions& wrapper = small_buckets())
      : net(net), ddp((net.to(DType::kF64).to(rank_device()), net), wrapper), opt(net.parameters(), options) {
    ddp.attach(gm);
  }
  void backward(const auto& loss) {
    auto recording = gm.record();
    last_loss = loss();
    gm.backward(last_loss);
  }
  void step() {
    keep_gradients(trained, net);
    opt.step().clear_grad();
  }
  Trained end() {
    keep_state(trained, net);
    return trained;
  }
  // Computes gradients and steps, for each batch.
  Trained train(const auto& loss) {
    for (int i = 0; i < kBatches; ++i) {
      backward([&] { return loss(i); });
      keep_loss(trained, last_loss);
      step();
    }
    return end();
  }

  Net& net;
  DistributedDataParallel<Net> ddp;
  GradManager gm;
  Opt opt;
  Tensor last_loss;
  Trained trained;
};

// The network of ./run mnist, without dropout, whose masks differ between ranks. The gradient of fc1.weight, of 9 MiB, is
// reduced where it lies, as all of 1 MiB and more. Two ranks, since each takes a second for its 1.2 million parameters.
Trained mnist() {
  const data::GeneratedDigits digits({.size = kBatches * kRows});
  models::MnistNet net;
  net.eval();
  Training<models::MnistNet, optim::SGD> training(net, optim::SGDOptions{.lr = 0.01});
  return training.train([&](int i) {
    std::vector<int64_t> indices(kRows);
    std::iota(indices.begin(), indices.end(), i * kRows);
    const data::Batch batch = digits.get_batch(indices);
    return nn::cross_entropy(training.ddp(own_rows(raw::to(batch.input, DType::kF64))),
                             own_rows(batch.target));
  });
}

Trained resnet() {
  models::ResNetOptions options = models::cifar_resnet(20);
  options.width = 4;
  models::ResNet net(options);
  convert_sync_batchnorm(net);
  Training<models::ResNet, optim::SGD> training(net, optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
  return training.train([&](int i) {
    return nn::cross_entropy(training.ddp(own_rows(samples({3, 8, 8}, i))),
                             own_rows(classes(10, {kRows}, i)));
  });
}

Trained gpt() {
  constexpr int64_t kVocabulary = 11, kContext = 8;
  models::GPT net(
      {.vocabulary = kVocabulary, .context = kContext, .layers = 2, .heads = 2, .width = 16, .dropout = 0});
  // The gradient of the keys' biases is 0 but for roundings (softmax is invariant), which AdamW divides by eps.
  Training<models::GPT, optim::AdamW> training(net, optim::AdamWOptions{.lr = 3e-3, .eps = 1e-6});
  return training.train([&](int i) {
    const Tensor tokens = own_rows(classes(kVocabulary, {kRows, kContext + 1}, i));
    const Tensor logits = training.ddp(slice(tokens, 1, 0, kContext));
    return nn::cross_entropy(flatten(logits, 0, 1), flatten(slice(tokens, 1, 1, kContext + 1)));
  });
}

// ---- options of data parallelism

struct Perceptron : nn::Layer {
  explicit Perceptron(int64_t width)
      : fc1{this, "fc1", {.in = 6, .out = width}}, fc2{this, "fc2", {width, 3}} {}
  nn::Linear fc1, fc2;
  Tensor forward(const Tensor& x) override { return fc2(tanh(fc1(x))); }
};
struct PerceptronTraining : Training<Perceptron, optim::SGD> {
  explicit PerceptronTraining(Perceptron& net,
                              const DistributedDataParallelOptions& wrapper = small_buckets())
      : Training(net, optim::SGDOptions{.lr = 0.1, .momentum = 0.9}, wrapper) {}
  Tensor loss(const Tensor& x) { return mean(square(ddp(x))); }
  Tensor loss_of_batch(int i) { return loss(own_rows(samples({6}, i))); }
};

Trained with_comm_hook() {
  DistributedDataParallelOptions options = small_buckets();
  options.comm_hook = [](const GradBucket& bucket) {
    const Work work = all_reduce(bucket.buffer, {.group = bucket.group, .async_op = true});
    return [=] {
      work.wait();
      bucket.divide(bucket.buffer);
    };
  };
  Perceptron net(40);
  PerceptronTraining training(net, options);
  return training.train([&](int i) { return training.loss_of_batch(i); });
}

// Each batch in two halves, of which one backward is not reduced.
Trained with_no_sync() {
  Perceptron net(40);
  PerceptronTraining training(net);
  for (int i = 0; i < kBatches; ++i) {
    const Tensor x = own_rows(samples({6}, i));
    const int64_t half = x.size(0) / 2;
    {
      const NoSync off = training.ddp.no_sync();
      training.backward([&] { return training.loss(narrow(x, 0, 0, half)) / 2; });
    }
    training.backward([&] { return training.loss(narrow(x, 0, half, half)) / 2; });
    training.step();
  }
  return training.end();
}

// Even ranks end before the last batch and count as zeros in its mean. One rank then has the odd ranks' rows alone.
Trained with_join() {
  Perceptron net(40);
  PerceptronTraining training(net);
  const bool is_alone = get_world_size() == 1;
  training.ddp.join([&] {
    for (int i = 0; i < kBatches; ++i) {
      const bool is_last = i + 1 == kBatches;
      if (is_last && !is_alone && get_rank() % 2 == 0) return;
      Tensor x = own_rows(samples({6}, i));
      if (is_last && is_alone) x = raw::contiguous(slice(x, 0, 1, kRows, 2));
      training.backward([&] { return training.loss(x) * (is_last && is_alone ? 0.5 : 1); });
      training.step();
    }
  });
  return training.end();
}

// ---- GANs

enum class Wrapper { kWhole, kSeparate, kCallbacks };

// Trains both networks of a GAN, attached to one manager (kWhole) or to one each. disc_loss(i) and gen_loss(i) are the
// losses of this rank's rows.
template <class Gan>
Trained train_gan(Gan& gan, Wrapper wrapper, const auto& disc_loss, const auto& gen_loss) {
  gan.to(DType::kF64).to(rank_device());
  convert_sync_batchnorm(gan);
  convert_sync_minibatch_stddev(gan);
  std::optional<DistributedDataParallel<Gan>> whole;
  std::optional<SeparateDistributedDataParallel<Gan>> separate;
  GradManager managers[2], &gm_disc = managers[0], &gm_gen = managers[wrapper == Wrapper::kWhole ? 0 : 1];
  if (wrapper == Wrapper::kWhole) {
    whole.emplace(gan, small_buckets()).attach(gm_disc);
  } else if (wrapper == Wrapper::kSeparate) {
    separate.emplace(gan, small_buckets()).attach(gm_disc, gan.disc);
    separate->attach(gm_gen, gan.gen);
  } else {
    bcast_list_(gan);
    gm_disc.attach(gan.disc.parameters(), make_allreduce_cb());
    gm_gen.attach(gan.gen.parameters(), make_allreduce_cb());
  }
  const optim::AdamOptions adam{.lr = 1e-3, .betas = {0.5, 0.99}};
  optim::Adam opt_disc(gan.disc.parameters(), adam), opt_gen(gan.gen.parameters(), adam);
  Trained trained;
  const auto update = [&](GradManager& gm, const nn::Module& part, optim::Adam& opt, const auto& loss_of) {
    Tensor loss;
    {
      auto recording = gm.record({.only = part.parameters()});
      loss = loss_of();
      gm.backward(loss);
    }
    keep_loss(trained, loss);
    keep_gradients(trained, gan);
    opt.step().clear_grad();
  };
  for (int i = 0; i < kBatches; ++i) {
    update(gm_disc, gan.disc, opt_disc, [&] { return disc_loss(i); });
    update(gm_gen, gan.gen, opt_gen, [&] { return gen_loss(i); });
  }
  keep_state(trained, gan);
  return trained;
}

template <Wrapper kWrapper> Trained dcgan() {
  struct Gan : nn::Module {
    models::DCGANGenerator gen{this, "gen", {.size = 8, .channels = 1, .width = 4, .latent = 5}};
    models::DCGANDiscriminator disc{this, "disc", {.size = 8, .channels = 1, .width = 4}};
  } gan;
  const auto fake = [&](int step) { return gan.gen(own_rows(samples({5}, 100 + step))); };
  return train_gan(
      gan, kWrapper,
      [&](int step) {
        const Tensor real_scores = gan.disc(own_rows(samples({1, 8, 8}, step))),
                     fake_scores = gan.disc(fake(step));
        return gan::vanilla_d(real_scores, fake_scores);
      },
      [&](int step) { return gan::vanilla_g(gan.disc(fake(10 + step))); });
}

// WGAN-GP with images of 4x4 pixels in the first batch, and of 8x8 pixels, which fade in, in the second.
Trained pggan() {
  struct Gan : nn::Module {
    models::PGGANGenerator gen{
        this, "gen", {.size = 8, .channels = 1, .latent = 5, .channel_base = 16, .channel_max = 8}};
    models::PGGANDiscriminator disc{
        this, "disc", {.size = 8, .channels = 1, .channel_base = 16, .channel_max = 8}};
  } gan;
  const gan::Growth growth({{.size = 4, .images = kRows / 2}, {.size = 8}}, {.fade_images = 2 * kRows});
  const auto scale = [&](int step) {
    const gan::Growth::State at = growth.at(step * kRows);
    return models::Scale{.size = at.size, .fade = at.fade};
  };
  const auto fake = [&](int step, int seed) { return gan.gen(own_rows(samples({5}, seed)), scale(step)); };
  return train_gan(
      gan, Wrapper::kWhole,
      [&](int step) {
        const auto score = [&](const Tensor& x) { return gan.disc(x, scale(step)); };
        const Tensor real =
            gan::scaled_images(own_rows(samples({1, 8, 8}, step)), scale(step).size, scale(step).fade);
        const Tensor images = fake(step, 100 + step), alpha = own_rows(abs(samples({}, 200 + step)));
        const Tensor real_scores = score(real), fake_scores = score(images);
        // In the gradient of the last bias, wgan_d is 1 - 1, and drift alone remains.
        return gan::wgan_d(real_scores, fake_scores) +
               10 * gan::gradient_penalty(score, real, images, alpha) + 0.1 * gan::drift(real_scores);
      },
      [&](int step) { return gan::wgan_g(gan.disc(fake(step, 300 + step), scale(step))); });
}

// ---- two pipelines of two stages each

template <class M> Trained pipelines() {
  if (get_world_size() == 1) return undivided<M>(kRows);
  Context context = Context::current().snapshot();
  context.device = rank_device();
  const ContextScope scope(context);
  return trained_here<M>(options_of<M>(Schedule::k1F1B, 2, 2), kRows);
}

// ---- the table

// A training, which runs on each rank of a job, for each number of ranks. `in_processes`: also as processes.
struct Task {
  std::string name;
  Trained (*train)();
  bool in_processes = false;
  std::vector<int> worlds = {2, 4};
};
void PrintTo(const Task& task, std::ostream* out) { *out << task.name; }
const Task kTasks[] = {{"Mnist", mnist, false, {2}},
                       {"ResNet20", resnet, true},
                       {"Gpt", gpt, true},
                       {"Pggan", pggan},
                       {"DcganWhole", dcgan<Wrapper::kWhole>},
                       {"DcganSeparate", dcgan<Wrapper::kSeparate>},
                       {"DcganCallbacks", dcgan<Wrapper::kCallbacks>},
                       {"CommHook", with_comm_hook},
                       {"NoSync", with_no_sync},
                       {"Join", with_join},
                       {"PipelinesOfResidualMLP", pipelines<ResidualMLP>, false, {4}},
                       {"PipelinesOfTiedText", pipelines<TiedText>, false, {4}}};

// Trains on this rank. Initial weights differ between ranks; those of rank 0 are broadcast.
Trained train(const Task& task, bool nccl) {
  Context::current().deterministic = true;  // convolutions of cuDNN
  manual_seed(uint64_t(1 + get_rank()));
  Trained trained = task.train();
  all_reduce(ones({1}, {.device = rank_device()}));  // the task's groups may be gone
  EXPECT_EQ(cuda::emulated::count_nccl_communicators() > 0, nccl && get_world_size() > 1);
  return trained;
}
std::vector<Trained> train_on_threads(int world, const Task& task, bool nccl) {
  std::vector<Trained> all(static_cast<size_t>(world));
  run_ranks(world, [&] { all[size_t(get_rank())] = train(task, nccl); }, {.nccl = nccl});
  return all;
}

class ModelsOfRanks : public testing::TestWithParam<Task> {};
INSTANTIATE_TEST_SUITE_P(All, ModelsOfRanks, testing::ValuesIn(kTasks),
                         [](const auto& info) { return info.param.name; });

TEST_P(ModelsOfRanks, TrainAsOneRankOnTheJoinedBatch) {
  const Trained want = train_on_threads(1, GetParam(), true)[0];
  for (const int world : GetParam().worlds) {
    const std::vector<Trained> by_nccl = train_on_threads(world, GetParam(), true),
                               by_host = train_on_threads(world, GetParam(), false);
    std::set<std::string> gradients, state;
    for (size_t rank = 0; rank < by_nccl.size(); ++rank) {
      EXPECT_LE(difference(by_nccl[rank], want), kTolerance) << "NCCL, rank " << rank << " of " << world;
      EXPECT_LE(difference(by_host[rank], want), kTolerance)
          << "host memory, rank " << rank << " of " << world;
      if (world == 2) {
        EXPECT_EQ(difference(by_nccl[rank], by_host[rank]), 0) << "rank " << rank;
      }
      for (const auto& [name, values] : by_nccl[rank].grads) gradients.insert(name);
      for (const auto& [name, values] : by_nccl[rank].state) state.insert(name);
    }
    EXPECT_EQ(gradients.size(), want.grads.size());
    EXPECT_EQ(state.size(), want.state.size());
  }
}

// ---- ranks as processes

// Called in each rank's process. Environment: TASK is the index of the task.
int train_in_process() {
  const Task& task = kTasks[std::atoi(std::getenv("TASK"))];
  const Trained want = train_on_threads(1, task, true)[0];
  std::vector<Trained> got;
  for (const bool nccl : {true, false}) {
    join_job(Milliseconds(60'000), nccl);
    got.push_back(train(task, nccl));
    EXPECT_LE(difference(got.back(), want), kTolerance) << (nccl ? "NCCL" : "host memory");
    destroy_process_group();
  }
  EXPECT_LE(difference(got[0], got[1]), test_world() == 2 ? 0 : kTolerance);
  return int(testing::Test::HasFailure());
}
const RankFunction in_process{"train", train_in_process};

TEST(ModelsOfProcesses, TrainAsOneRankOnTheJoinedBatch) {
  for (size_t i = 0; i < std::size(kTasks); ++i)
    for (const int world : kTasks[i].worlds) {
      if (!kTasks[i].in_processes) continue;
      const ProcessOptions options = job_options(world == 4, {{"TASK", std::to_string(i)}});
      for (const RankEnd& end : run_processes("train", world, options))
        EXPECT_EQ(end.exit_code, 0) << kTasks[i].name << " on " << world << " ranks: " << end.output;
    }
}

}  // namespace
}  // namespace gradus::dist
