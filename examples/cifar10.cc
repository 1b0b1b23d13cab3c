// Trains a residual network on CIFAR-10, as in He et al., CVPR 2016, section 4.2, with a one-cycle learning
// rate. ResNet-20 reaches over 80 % test accuracy on 20,000 of the training images, in 20 epochs.
//
//   ./run cifar10 --data cifar-10-batches-bin      the binary version of the data set
//   ./run cifar10 --data DIR --arch resnet56 --epochs 60
//   ./run cifar10 --data DIR --amp bf16            matrix products and convolutions in 16 bits
//   ./run cifar10 --data DIR --device cuda         on a GPU
//   ./run cifar10 --data DIR --devices cuda:0,cuda:1    on two, each with half of every batch
//   ./run cifar10 --data DIR --nproc 2             2 ranks, data parallel; also under gradus-run, torchrun,
//                                                  Slurm, ...
//   ./run cifar10 --data DIR --pipeline 2          the network in two stages, on 2 ranks; 4 are 2 replicas
//
// --checkpoint-dir keeps the latest checkpoint and the best; --resume resumes from one, on any
// number of ranks, in a pipeline or not.
#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include "gradus/gradus.h"

using namespace gradus;

namespace {

// RunOptions: the options of all training programs, such as --epochs, --device, --nproc and --checkpoint-dir.
// A number of 0 means "not given".
struct Args : training::RunOptions {
  std::string arch = "resnet20", data;
  int64_t global_batch_size = 128, batch_size = 0, test_batch_size = 500;
  double lr = 0.2, momentum = 0.9, weight_decay = 5e-4;
  int64_t train_samples = 0, test_samples = 0;
  bool save_model = false;
  training::PipelineRunOptions pipeline;
};

Args parse(int argc, char** argv) {
  Args a;
  a.epochs = 20, a.device = kCPU, a.devices = {kCPU}, a.amp = DType::kF32, a.capture = false;
  training::CommandLine line("cifar10", "Trains a residual network on CIFAR-10", a);
  line.add("--data", a.data, "folder with the binary version of CIFAR-10 [random images]", {.value = "DIR"});
  line.add("-a,--arch", a.arch, "the network", {.one_of = models::resnet_names()});
  line.add("-b,--global-batch-size", a.global_batch_size, "images per training step of all ranks together",
           {.at_least = 1});
  line.add("--batch-size", a.batch_size, "instead: images per step of each rank",
           {.at_least = 1, .value = "N"});
  line.add("--test-batch-size", a.test_batch_size, "images per test step, of each rank", {.at_least = 1});
  line.add("--lr", a.lr, "learning rate at its highest", {.above = 0});
  line.add("--momentum", a.momentum, "momentum", {.at_least = 0.0, .at_most = 1.0});
  line.add("--weight-decay,--wd", a.weight_decay, "weight decay", {.at_least = 0});
  line.add("--train-samples", a.train_samples, "use only the first N training images",
           {.at_least = 1, .value = "N"});
  line.add("--test-samples", a.test_samples, "use only the first N test images",
           {.at_least = 1, .value = "N"});
  line.add("--save-model", a.save_model, "write the weights to cifar10_ARCH.safetensors");
  training::add_pipeline(line, a.pipeline,
                         "which is cut where measuring says; batch norm normalizes by the micro-batch");
  line.parse_or_exit(argc, argv);
  training::start_ranks_for_pipelines(a, a.pipeline);
  return a;
}

// ---- data ----

struct Data {
  data::DatasetRef train, test;
};

// Returns the first `count` samples; 0: all.
data::DatasetRef first(const data::DatasetRef& set, int64_t count) {
  return count ? data::Subset::first(set, count) : set;
}

Data find_data(const Args& a) {
  const data::Normalize normalize({.mean = {0.4914, 0.4822, 0.4465}, .std = {0.2470, 0.2435, 0.2616}});
  const data::Transform augmented =
      data::Compose({data::RandomCrop({.size = 32, .padding = 4}), data::RandomHorizontalFlip(),
                     data::ToTensor(), normalize});
  const data::Transform plain = data::Compose({data::ToTensor(), normalize});
  if (a.data.empty()) {
    training::print("Training on random images, of which nothing can be learned: --data DIR names a folder");
    return {first(data::FakeData({.size = 2000, .image_size = 32, .transform = augmented}), a.train_samples),
            first(data::FakeData({.size = 500, .image_size = 32, .seed = 1, .transform = plain}),
                  a.test_samples)};
  }
  return {first(data::CIFAR10(a.data, {.train = true, .transform = augmented}), a.train_samples),
          first(data::CIFAR10(a.data, {.train = false, .transform = plain}), a.test_samples)};
}

// ---- shared by data-parallel and pipeline training ----

data::DataLoader training_loader(const Args& a, const Data& d) {
  return data::DataLoader(d.train, {.batch_size = a.batch_size ? a.batch_size : 1,
                                    .global_batch_size = a.batch_size ? 0 : a.global_batch_size,
                                    .shuffle = true,
                                    .num_workers = a.workers,
                                    .seed = a.seed,
                                    .device = a.device});
}
data::DataLoader test_loader(const Args& a, const Data& d) {
  return data::DataLoader(d.test,
                          {.batch_size = a.test_batch_size, .num_workers = a.workers, .device = a.device});
}

models::ResNetOptions network(const Args& a) {
  models::ResNetOptions o = models::resnet(a.arch, {.classes = 10});
  o.stem = models::ResNetOptions::Stem::kCifar;  // 32x32 images are too small to begin by shrinking them
  return o;
}

optim::SGDOptions sgd(const Args& a) {
  return {.lr = a.lr, .momentum = a.momentum, .weight_decay = a.weight_decay, .nesterov = a.momentum > 0};
}

int64_t number_of_steps(const Args& a, const data::DataLoader& loader) {
  return std::max<int64_t>(1, a.epochs * loader.size());
}
optim::OneCycleLROptions one_cycle(const Args& a, int64_t steps) {
  return {.max_lr = a.lr, .total_steps = steps, .pct_start = 0.25, .cycle_momentum = false};
}

// The learning rate of a step depends on the number of steps, which a checkpoint therefore fixes.
training::TrainingOptions options(const Args& a, int64_t steps, std::function<training::Sums()> test) {
  return {.count_by = training::CountBy::kEpochs,
          .fixed = {{"network", a.arch}, {"number of steps", concat(steps)}},
          .test = std::move(test),
          .keep_best = true};
}

void show_first_images(training::Training& training, const training::Step& s) {
  if (training.events() && s.number() == 1)
    training.events()->add_image("train/images", s.batch().input, 0, {.nrow = 16, .normalize = true});
}

void print_results(const training::Training& training) {
  if (training.history().empty()) return training::report(training);  // --no-validate
  training::print(training::format_text(
      "Best test accuracy %.2f %%, after epoch %d; last %.2f %%; trained at %.0f images/s",
      100 * training.best().test.mean("accuracy"), int(training.best().epoch),
      100 * training.last().test.mean("accuracy"), training.images_per_second()));
  training::write_summary(training);
}

// ---- training, data parallel ----

// Trains the whole network on every rank. DistributedDataParallel averages the gradients of all ranks.
void fit(const Args& a) {
  const Data data = find_data(a);
  data::DataLoader loader = training_loader(a, data), tests = test_loader(a, data);

  manual_seed(a.seed);
  dist::DataParallel<models::ResNet> replicas([&] { return std::make_unique<models::ResNet>(network(a)); },
                                              {.device_ids = a.devices});
  models::ResNet& net = replicas.module();  // on the first device
  dist::DistributedDataParallel ddp(net);
  GradManager gm;
  ddp.attach(gm);
  optim::SGD opt(net.parameters(), sgd(a));
  const int64_t steps = number_of_steps(a, loader);
  optim::OneCycleLR schedule(opt, one_cycle(a, steps));
  training::Training training("cifar10", a, loader,
                              {{"model", net}, {"optimizer", opt}, {"schedule", schedule}},
                              options(a, steps, [&] {
                                const auto amp = training::mixed_precision(a);
                                return training::evaluate(training, net, tests, std::ref(replicas));
                              }));
  training::describe(training, concat(a.arch, ": ", net.num_parameters(), " parameters"), tests);
  using Tensors = std::vector<Tensor>;
  const auto step = training::training_step(a, [&](const Tensors& in) -> Tensors {
    auto recording = gm.record();
    const auto amp = training::mixed_precision(a);
    const Tensor logits = replicas(in[0]), loss = nn::cross_entropy(logits, in[1]);
    gm.backward(loss);
    opt.step().clear_grad();
    return {loss, logits};
  });
  for (training::Step& s : training) {
    show_first_images(training, s);
    const Tensors results = step({s.batch().input, s.batch().target});
    schedule.step();
    s.log(training::score(results[0], results[1], s.batch()));
  }

  print_results(training);
  if (a.save_model && training::is_first_rank()) {
    const std::string file = "cifar10_" + a.arch + ".safetensors";
    io::save_safetensors(file, net.state_dict(), {{"format", "gradus"}});
    training::print("Wrote " + file);
  }
}

// ---- training in a pipeline ----

// Trains the network in consecutive stages, each on its own rank; the Pipeline measures the times of layers
// to choose the stages. Only the last stage has logits: training logs no accuracy, and a test sends the
// logits to all ranks.
void fit_in_pipeline(const Args& a) {
  if (a.save_model)
    throw ValueError("cifar10", "--save-model needs the whole network on a rank, and does not go with ",
                     "--pipeline: a checkpoint of --checkpoint-dir holds the weights as \"model\"");
  training::check_pipeline_device("cifar10", a);
  const Data data = find_data(a);
  const int64_t rows =
      a.batch_size ? a.batch_size * dist::get_world_size() / a.pipeline.ranks : a.global_batch_size;
  manual_seed(a.seed);
  dist::Pipeline<models::ResNet> pipe([&] { return std::make_unique<models::ResNet>(network(a)); },
                                      zeros({training::micro_batch_rows(a.pipeline, rows), 3, 32, 32}),
                                      training::pipeline_options(a.pipeline));
  data::DataLoader loader = training_loader(a, data), tests = test_loader(a, data);
  GradManager gm;
  pipe.attach(gm);
  optim::SGD opt(pipe.parameters(), sgd(a));
  const int64_t steps = number_of_steps(a, loader);
  optim::OneCycleLR schedule(opt, one_cycle(a, steps));
  const auto logits_of = [&](const Tensor& x) { return pipe.forward(x, {.everywhere = true}); };
  training::Training training("cifar10", a, loader, {{pipe, opt}, {"schedule", schedule}},
                              options(a, steps, [&] {
                                const auto amp = training::mixed_precision(a);
                                return training::evaluate(training, pipe.module(), tests, logits_of);
                              }));
  training::describe(training, concat(a.arch, ": ", pipe.module().num_parameters(), " parameters"), tests);
  if (training::is_first_rank()) std::cout << pipe.describe();
  for (training::Step& s : training) {
    show_first_images(training, s);
    const data::Batch& b = s.batch();
    const auto amp = training::mixed_precision(a);
    const double loss = pipe.step(gm, b.input, b.target, nn::cross_entropy);
    opt.step().clear_grad();
    schedule.step();
    s.log({.seen = b.size(), .of = {{"loss", loss * double(b.size())}}});
  }
  print_results(training);
}

}  // namespace

int main(int argc, char** argv) {
  const Args a = parse(argc, argv);
  const bool in_pipeline = a.pipeline != training::PipelineRunOptions();
  return training::run("cifar10", a, in_pipeline ? fit_in_pipeline : fit);
}
