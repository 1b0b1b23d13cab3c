// Trains a residual network on CIFAR-10, as in He et al., CVPR 2016, section 4.2, with a one-cycle learning
// rate. ResNet-20 reaches over 80 % test accuracy on 20,000 of the training images, in 20 epochs.
//
//   ./run cifar10 --data cifar-10-batches-bin      the binary version of the data set
//   ./run cifar10 --data DIR --arch resnet56 --epochs 60
//   ./run cifar10 --data DIR --amp bf16            matrix products and convolutions in 16 bits
//   ./run cifar10 --data DIR --nproc 2             2 ranks, data parallel; also under gradus-run, torchrun,
//   ...
//
// --checkpoint-dir keeps the latest checkpoint and the best; --resume goes on from one, on any
// number of ranks.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/data/dataloader.h"
#include "gradus/data/sets/cifar.h"
#include "gradus/data/sets/fake_data.h"
#include "gradus/data/transforms/transforms.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/examples/support/first_samples.h"
#include "gradus/examples/support/program.h"
#include "gradus/examples/support/ranks.h"
#include "gradus/examples/support/run_options.h"
#include "gradus/examples/support/summary.h"
#include "gradus/examples/support/text.h"
#include "gradus/examples/support/training.h"
#include "gradus/io/safetensors.h"
#include "gradus/models/resnet.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/optim/schedules/cyclic_lr.h"

using namespace gradus;
using namespace gradus::examples;

namespace {

struct Args : RunOptions {
  std::string arch = "resnet20", data, amp;
  int64_t global_batch_size = 128, batch_size = 0, test_batch_size = 500;
  double lr = 0.2, momentum = 0.9, weight_decay = 5e-4;
  int64_t train_samples = 0, test_samples = 0;
  bool save_model = false;
};

Args parse(int argc, char** argv) {
  Args a;
  a.epochs = 20;
  CLI::App app{"Trains a residual network on CIFAR-10"};
  add_run_options(app, a, "cifar10");
  app.add_option("--data", a.data, "folder with the binary version of CIFAR-10 [random images]")
      ->type_name("DIR");
  app.add_option("-a,--arch", a.arch, "the network")
      ->capture_default_str()
      ->check(CLI::IsMember(models::resnet_names()));
  app.add_option("--amp", a.amp, "compute products and convolutions in this dtype: bf16")
      ->type_name("DTYPE")
      ->check(CLI::IsMember({"bf16"}));
  app.add_option("-b,--global-batch-size", a.global_batch_size,
                 "images per training step of all ranks together")
      ->capture_default_str()
      ->check(at_least(1));
  app.add_option("--batch-size", a.batch_size, "instead: images per step of each rank")
      ->type_name("N")
      ->check(at_least(1));
  app.add_option("--test-batch-size", a.test_batch_size, "images per test step, of each rank")
      ->capture_default_str()
      ->check(at_least(1));
  app.add_option("--lr", a.lr, "learning rate at its highest")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--momentum", a.momentum)->capture_default_str()->check(CLI::Range(0.0, 1.0));
  app.add_option("--weight-decay,--wd", a.weight_decay)->capture_default_str()->check(CLI::NonNegativeNumber);
  app.add_option("--train-samples", a.train_samples, "use only the first N training images")
      ->type_name("N")
      ->check(at_least(1));
  app.add_option("--test-samples", a.test_samples, "use only the first N test images")
      ->type_name("N")
      ->check(at_least(1));
  app.add_flag("--save-model", a.save_model, "write the weights to cifar10_ARCH.safetensors");
  parse_or_exit(app, a, argc, argv);
  return a;
}

// ---- data ----

struct Data {
  std::shared_ptr<const data::Dataset> train, test;
};

Data find_data(const Args& a) {
  const data::Normalize normalize({.mean = {0.4914, 0.4822, 0.4465}, .std = {0.2470, 0.2435, 0.2616}});
  const data::Transform augmented =
      data::Compose({data::RandomCrop({.size = 32, .padding = 4}), data::RandomHorizontalFlip(),
                     data::ToTensor(), normalize});
  const data::Transform plain = data::Compose({data::ToTensor(), normalize});
  Data d;
  if (a.data.empty()) {
    print(
        "Training on random images, of which nothing can be learned: --data DIR names a folder with "
        "CIFAR-10");
    d.train = std::make_shared<data::FakeData>(
        data::FakeDataOptions{.size = 2000, .image_size = 32, .transform = augmented});
    d.test = std::make_shared<data::FakeData>(
        data::FakeDataOptions{.size = 500, .image_size = 32, .seed = 1, .transform = plain});
  } else {
    d.train =
        std::make_shared<data::CIFAR10>(a.data, data::CifarOptions{.train = true, .transform = augmented});
    d.test = std::make_shared<data::CIFAR10>(a.data, data::CifarOptions{.train = false, .transform = plain});
  }
  d = {first_of(d.train, a.train_samples), first_of(d.test, a.test_samples)};
  check_same_on_all_ranks("data sets",
                          concat(d.train->size(), '+', d.test->size(), " images of ", d.train->name()));
  return d;
}

// ---- training ----

models::ResNetOptions network(const Args& a) {
  models::ResNetOptions o = models::resnet(a.arch, {.classes = 10});
  o.stem = models::ResNetOptions::Stem::kCifar;  // 32x32 images are too small to begin by shrinking them
  return o;
}

Sums test(models::ResNet& net, data::DataLoader& loader, const Args& a, Training& training) {
  net.eval();
  const auto off = no_record();
  const auto amp = autocast(DType::kBF16, {.enabled = a.amp == "bf16"});
  Tally tally;
  for (const data::Batch& b : loader) {
    const Tensor logits = net(b.input);
    tally.add(score(nn::cross_entropy(logits, b.target, {.reduction = Reduction::kNone}), logits, b));
    if (training.end_test_step()) break;
  }
  return tally.reduce();
}

void train(const Args& a) {
  const Data data = find_data(a);
  data::DataLoader train_loader(data.train, {.batch_size = a.batch_size ? a.batch_size : 1,
                                             .global_batch_size = a.batch_size ? 0 : a.global_batch_size,
                                             .shuffle = true,
                                             .num_workers = a.workers,
                                             .seed = a.seed});
  data::DataLoader test_loader(data.test, {.batch_size = a.test_batch_size, .num_workers = a.workers});

  manual_seed(a.seed);
  models::ResNet net(network(a));
  dist::DistributedDataParallel ddp(net);
  GradManager gm;
  ddp.attach(gm);
  optim::SGD opt(
      net.parameters(),
      {.lr = a.lr, .momentum = a.momentum, .weight_decay = a.weight_decay, .nesterov = a.momentum > 0});
  const int64_t steps = std::max<int64_t>(1, a.epochs * train_loader.size());
  optim::OneCycleLR schedule(
      opt, {.max_lr = a.lr, .total_steps = steps, .pct_start = 0.25, .cycle_momentum = false});
  print(concat(data.train->size(), " training and ", data.test->size(), " test images of ",
               data.train->name(), "; ", machine_text(), "; seed ", a.seed, '\n', a.arch, ": ",
               net.num_parameters(), " parameters"));

  // The cycle of the learning rate is planned for so many steps: a checkpoint belongs to it.
  Training training("cifar10", a, {net, opt, schedule, train_loader},
                    {.fixed = {{"network", a.arch}, {"number of steps", concat(steps)}}, .keep_best = true});
  training.resume();
  for (;;) {
    if (training.test_due()) training.end_test(test(net, test_loader, a, training));
    if (!training.next_epoch()) break;
    net.train();
    for (const data::Batch& b : training.batches()) {
      if (training.events() && training.steps() == 0)
        training.events()->add_image("train/images", b.input, 0, {.nrow = 16, .normalize = true});
      auto recording = gm.record();
      const auto amp = autocast(DType::kBF16, {.enabled = a.amp == "bf16"});
      const Tensor logits = ddp(b.input);
      const Tensor loss = nn::cross_entropy(logits, b.target);
      gm.backward(loss);
      opt.step().clear_grad();
      schedule.step();
      training.end_step({loss.item<double>() * double(b.size()), count_correct(logits, b.target), b.size()});
    }
    training.end_epoch();
  }

  print(format("Best test accuracy %.2f %%, after epoch %d; last %.2f %%; trained at %.0f images/s",
               100 * training.best().test.accuracy(), int(training.best().epoch),
               100 * training.last().test.accuracy(), training.images_per_second()));
  if (a.save_model && is_first_rank()) {
    const std::string file = "cifar10_" + a.arch + ".safetensors";
    io::save_safetensors(file, net.state_dict(), {{"format", "gradus"}});
    print("Wrote " + file);
  }
  write_summary(training, summary_of(training));
}

}  // namespace

int main(int argc, char** argv) {
  const Args args = parse(argc, argv);
  return run_program("cifar10", args, [&] { train(args); });
}
