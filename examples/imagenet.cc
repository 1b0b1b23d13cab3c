// Trains a residual network on ImageNet or on images of your own, with the recipe and the options of
// PyTorch's imagenet example: SGD, the learning rate divided by 10 every 30 epochs.
//
//   ./run imagenet DIR -a resnet18                DIR/train/CLASS/*.jpg, DIR/val/CLASS/*.jpg
//   ./run imagenet DIR -a resnet50 --pretrained resnet50.safetensors --epochs 10 --lr 0.01
//   ./run imagenet DIR --evaluate --resume runs/imagenet.best.ckpt
//   ./run imagenet DIR --amp bf16 --nproc 4       4 ranks; also under gradus-run, torchrun, Slurm, ...
//   ./run imagenet --dummy                        random images, to try it out and to measure its speed
//
// --checkpoint-dir keeps the latest checkpoint and the best; --resume goes on from one, on any
// number of ranks.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/data/dataloader.h"
#include "gradus/data/sets/fake_data.h"
#include "gradus/data/sets/image_folder.h"
#include "gradus/data/transforms/transforms.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/examples/support/first_samples.h"
#include "gradus/examples/support/program.h"
#include "gradus/examples/support/ranks.h"
#include "gradus/examples/support/run_options.h"
#include "gradus/examples/support/summary.h"
#include "gradus/examples/support/text.h"
#include "gradus/examples/support/training.h"
#include "gradus/io/checkpoint.h"
#include "gradus/io/safetensors.h"
#include "gradus/models/resnet.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/optim/schedules/lr_schedule.h"
#include "gradus/tensor/ops/creation.h"

using namespace gradus;
using namespace gradus::examples;
namespace fs = std::filesystem;

namespace {

struct Args : RunOptions {
  std::string dir = "imagenet", arch = "resnet18", pretrained, amp, on_error = "throw";
  int64_t start_epoch = 0, batch_size = 256, image_size = 224;
  double lr = 0.1, momentum = 0.9, weight_decay = 1e-4;
  bool evaluate = false, dummy = false;
  int64_t train_samples = 0, val_samples = 0;
};

Args parse(int argc, char** argv) {
  Args a;
  a.epochs = 90;
  a.workers = 4;
  CLI::App app{"Trains a residual network on ImageNet, or on images in a folder per class"};
  app.add_option("DIR", a.dir, "folder with train/CLASS/IMAGE and val/CLASS/IMAGE")->capture_default_str();
  app.add_option("-a,--arch", a.arch, "the network")
      ->capture_default_str()
      ->check(CLI::IsMember(models::resnet_names()));
  add_run_options(app, a, "imagenet");
  app.add_option("--amp", a.amp, "compute products and convolutions in this dtype: bf16")
      ->type_name("DTYPE")
      ->check(CLI::IsMember({"bf16"}));
  app.add_option("--start-epoch", a.start_epoch, "epochs that count as done")
      ->capture_default_str()
      ->check(at_least(0));
  app.add_option("-b,--batch-size", a.batch_size, "images per step of all ranks on this machine together")
      ->capture_default_str()
      ->check(at_least(1));
  app.add_option("--lr,--learning-rate", a.lr, "learning rate at the start")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--momentum", a.momentum)->capture_default_str()->check(CLI::Range(0.0, 1.0));
  app.add_option("--weight-decay,--wd", a.weight_decay)->capture_default_str()->check(CLI::NonNegativeNumber);
  app.add_option("--image-size", a.image_size, "width and height that the network sees")
      ->capture_default_str()
      ->check(CLI::Range(32, 4096));
  app.add_flag("-e,--evaluate", a.evaluate, "only evaluate, on the validation images");
  app.add_option("--pretrained", a.pretrained, "begin with these weights, of torchvision's names")
      ->type_name("FILE");
  app.add_flag("--dummy", a.dummy, "random images instead of DIR");
  app.add_option("--on-error", a.on_error, "about images that cannot be read: throw, or skip and count them")
      ->capture_default_str()
      ->check(CLI::IsMember({"throw", "skip"}));
  app.add_option("--train-samples", a.train_samples, "use only the first N training images")
      ->type_name("N")
      ->check(at_least(1));
  app.add_option("--val-samples", a.val_samples, "use only the first N validation images")
      ->type_name("N")
      ->check(at_least(1));
  parse_or_exit(app, a, argc, argv);
  return a;
}

// ---- data ----

struct Data {
  std::shared_ptr<const data::Dataset> train, val;
  int64_t classes = 1000;
};

Data find_data(const Args& a) {
  const int64_t size = a.image_size;
  const data::Normalize normalize({.mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}});
  const data::Transform augment = data::Compose(
      {data::RandomResizedCrop({.size = size}), data::RandomHorizontalFlip(), data::ToTensor(), normalize});
  const data::Transform plain =
      data::Compose({data::Resize({.size = size * 256 / 224}), data::CenterCrop({.size = size}),
                     data::ToTensor(), normalize});
  if (a.dummy) {
    print("Training on random images");
    const auto random = [&](int64_t images, uint64_t seed, const data::Transform& transform) {
      return std::make_shared<data::FakeData>(data::FakeDataOptions{
          .size = images, .image_size = size, .classes = 1000, .seed = seed, .transform = transform});
    };
    return {random(1'281'167, 0, augment), random(50'000, 1, plain)};
  }

  const fs::path dir = a.dir;
  const bool split = fs::is_directory(dir / "train") || fs::is_directory(dir / "val");
  if (!split)
    print("There is no train and no val in " + a.dir + ": training and validating on the same images");
  const auto images = [&](const char* part, const data::Transform& transform) {
    return std::make_shared<data::ImageFolder>(
        split ? dir / part : dir,
        data::ImageFolderOptions{
            .transform = transform,
            .on_error = a.on_error == "skip" ? data::OnError::kSkip : data::OnError::kThrow});
  };
  const auto train = images("train", augment), val = images("val", plain);
  if (train->classes() != val->classes())
    throw ValueError("imagenet", "train and val in ", a.dir,
                     " have different classes: ", train->classes().size(), " and ", val->classes().size(),
                     ", or other names");
  return {train, val, int64_t(train->classes().size())};
}

Data load_data(const Args& a) {
  Data d = find_data(a);
  d.train = first_of(d.train, a.train_samples);
  d.val = first_of(d.val, a.val_samples);
  check_same_on_all_ranks("data sets", concat(d.train->size(), '+', d.val->size(), " images of ", d.classes,
                                              " classes of ", d.train->name()));
  return d;
}

// ---- weights ----

// Takes over the weights of a file, or of the model in a checkpoint. A last layer for another number of
// classes stays as it is, to be trained.
void load_pretrained(models::ResNet& net, const fs::path& file) {
  nn::StateDict given = file.extension() == ".ckpt" ? io::load_checkpoint(file).checkpoint.tensors("model")
                                                    : io::load_safetensors(file).tensors;
  for (auto& [name, tensor] : given) {
    if (!name.starts_with("fc.")) continue;
    for (const auto& [own_name, own] : net.state_dict())
      if (own_name == name && own.shape() != tensor.shape()) {
        tensor = own;
        print(concat("The last layer's ", name, " begins anew, for its shape is another"));
      }
  }
  net.load_state_dict(given);
}

// ---- output ----

std::string meters(const Sums& recent, const Sums& all) {
  return format("Loss %.4e (%.4e)\tAcc@1 %6.2f (%6.2f)\tAcc@5 %6.2f (%6.2f)", recent.mean_loss(),
                all.mean_loss(), 100 * recent.accuracy(), 100 * all.accuracy(), 100 * recent.accuracy_in_5(),
                100 * all.accuracy_in_5());
}

// The figures of the images since the line before, and in brackets the mean of the epoch so far.
std::string epoch_line(const StepReport& r) {
  const int digits = int(concat(r.batches).size());
  return format("Epoch: [%lld][%*lld/%lld]\tTime %6.3f (%6.3f)\tData %6.3f (%6.3f)\t",
                static_cast<long long>(r.epoch - 1), digits, static_cast<long long>(r.batch),
                static_cast<long long>(r.batches), r.step.last, r.step.mean(), r.data.last, r.data.mean()) +
         meters(r.recent, r.all);
}

std::string result_line(const Sums& all) {
  return format(" * Acc@1 %.3f Acc@5 %.3f", 100 * all.accuracy(), 100 * all.accuracy_in_5());
}

// How many images of the last pass could not be read, on all ranks; says so, if there are any.
int64_t count_skipped(const char* what, const data::DataLoader& loader) {
  const Tensor count = full({1}, double(loader.skipped()), {.dtype = DType::kI64});
  dist::all_reduce(count);
  const int64_t skipped = count.item<int64_t>();
  if (skipped > 0) print(concat(skipped, ' ', what));
  return skipped;
}

// ---- training ----

Sums validate(models::ResNet& net, data::DataLoader& loader, const Args& a, Training& training) {
  net.eval();
  const auto off = no_record();
  const auto amp = autocast(DType::kBF16, {.enabled = a.amp == "bf16"});
  Tally tally;
  int64_t batch = 0;
  for (const data::Batch& b : loader) {
    const Tensor logits = net(b.input);
    tally.add(score(nn::cross_entropy(logits, b.target, {.reduction = Reduction::kNone}), logits, b));
    if (batch++ % a.log_interval == 0) {
      const Sums recent = tally.reduce();
      print(concat("Test: [", batch, '/', loader.size(), "]\t", meters(recent, tally.total())));
    }
    if (training.end_test_step()) break;
  }
  tally.reduce();
  return tally.total();
}

void train(const Args& a) {
  const Data data = load_data(a);
  const int nodes = std::max(1, dist::get_world_size() / dist::get_local_world_size());
  data::DataLoader train_loader(
      data.train,
      {.global_batch_size = a.batch_size * nodes, .shuffle = true, .num_workers = a.workers, .seed = a.seed});
  data::DataLoader val_loader(data.val,
                              {.global_batch_size = a.batch_size * nodes, .num_workers = a.workers});

  manual_seed(a.seed);
  models::ResNet net(models::resnet(a.arch, {.classes = data.classes}));
  // Rank 0's weights and running statistics are everybody's.
  if (!a.pretrained.empty() && is_first_rank()) load_pretrained(net, a.pretrained);
  dist::DistributedDataParallel ddp(net);
  GradManager gm;
  ddp.attach(gm);
  optim::SGD opt(net.parameters(), {.lr = a.lr, .momentum = a.momentum, .weight_decay = a.weight_decay});
  optim::StepLR schedule(opt, {.step_size = 30, .gamma = 0.1});
  train_loader.set_epoch(uint64_t(a.start_epoch));
  for (int64_t epoch = 0; epoch < a.start_epoch; ++epoch) schedule.step();
  print(concat(data.train->size(), " training and ", data.val->size(), " validation images of ", data.classes,
               " classes; ", machine_text(), "; seed ", a.seed, '\n', a.arch, ": ", net.num_parameters(),
               " parameters"));

  Training training("imagenet", a, {net, opt, schedule, train_loader},
                    {.fixed = {{"network", a.arch}, {"number of classes", concat(data.classes)}},
                     .keep_best = !a.evaluate,
                     .step_line = epoch_line,
                     .test_line = result_line});
  training.resume();
  int64_t skipped = 0;
  const auto test = [&] {
    training.end_test(validate(net, val_loader, a, training));
    skipped += count_skipped("validation images could not be read and do not count", val_loader);
  };
  if (a.evaluate) test();
  while (!a.evaluate) {
    if (training.test_due()) test();
    if (!training.next_epoch()) break;
    net.train();
    for (const data::Batch& b : training.batches()) {
      if (training.events() && training.steps() == 0)
        training.events()->add_image("train/images", narrow(b.input, 0, 0, std::min<int64_t>(b.size(), 16)),
                                     0, {.nrow = 4, .normalize = true});
      auto recording = gm.record();
      const auto amp = autocast(DType::kBF16, {.enabled = a.amp == "bf16"});
      const Tensor logits = ddp(b.input);
      const Tensor loss = nn::cross_entropy(logits, b.target);
      gm.backward(loss);
      opt.step().clear_grad();
      training.end_step({.loss = loss.item<double>() * double(b.size()),
                         .correct = count_correct(logits, b.target),
                         .seen = b.size(),
                         .correct_in_5 = count_correct(logits, b.target, 5)});
    }
    skipped += count_skipped("training images could not be read: others took their place", train_loader);
    schedule.step();
    training.end_epoch();
  }
  nlohmann::ordered_json summary = summary_of(training);
  summary["skipped"] = skipped;  // images that could not be read, in all passes of this run
  write_summary(training, summary);
}

}  // namespace

int main(int argc, char** argv) {
  const Args args = parse(argc, argv);
  return run_program("imagenet", args, [&] { train(args); });
}
