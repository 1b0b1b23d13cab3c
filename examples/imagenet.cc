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
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "gradus/gradus.h"

using namespace gradus;
namespace fs = std::filesystem;

namespace {

struct Args : train::RunOptions {
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
  train::CommandLine line("imagenet",
                          "Trains a residual network on ImageNet, or on images in a folder per class", a);
  line.add("DIR", a.dir, "folder with train/CLASS/IMAGE and val/CLASS/IMAGE");
  line.add("-a,--arch", a.arch, "the network", {.one_of = models::resnet_names()});
  line.add("--amp", a.amp, "compute products and convolutions in this dtype: bf16",
           {.one_of = {"bf16"}, .value = "DTYPE"});
  line.add("--start-epoch", a.start_epoch, "epochs that count as done", {.at_least = 0});
  line.add("-b,--batch-size", a.batch_size, "images per step of all ranks on this machine together",
           {.at_least = 1});
  line.add("--lr,--learning-rate", a.lr, "learning rate at the start", {.at_least = 0});
  line.add("--momentum", a.momentum, "momentum", {.at_least = 0.0, .at_most = 1.0});
  line.add("--weight-decay,--wd", a.weight_decay, "weight decay", {.at_least = 0});
  line.add("--image-size", a.image_size, "width and height that the network sees",
           {.at_least = 32, .at_most = 4096});
  line.add("-e,--evaluate", a.evaluate, "only evaluate, on the validation images");
  line.add("--pretrained", a.pretrained, "begin with these weights, of torchvision's names",
           {.value = "FILE"});
  line.add("--dummy", a.dummy, "random images instead of DIR");
  line.add("--on-error", a.on_error, "about images that cannot be read: throw, or skip and count them",
           {.one_of = {"throw", "skip"}});
  line.add("--train-samples", a.train_samples, "use only the first N training images",
           {.at_least = 1, .value = "N"});
  line.add("--val-samples", a.val_samples, "use only the first N validation images",
           {.at_least = 1, .value = "N"});
  line.parse_or_exit(argc, argv);
  return a;
}

// ---- data ----

struct Data {
  data::DatasetRef train, val;
  int64_t classes = 1000;
};

data::DatasetRef first(const data::DatasetRef& set, int64_t count) {
  return count ? data::Subset::first(set, count) : set;
}

Data find_data(const Args& a) {
  const int64_t size = a.image_size;
  const data::Normalize normalize({.mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}});
  const data::Transform augment = data::Compose(
      {data::RandomResizedCrop({.size = size}), data::RandomHorizontalFlip(), data::ToTensor(), normalize});
  const data::Transform plain =
      data::Compose({data::Resize({.size = size * 256 / 224}), data::CenterCrop({.size = size}),
                     data::ToTensor(), normalize});
  if (a.dummy) {
    train::print("Training on random images");
    const auto random = [&](int64_t images, uint64_t seed, const data::Transform& transform) {
      return data::FakeData(
          {.size = images, .image_size = size, .classes = 1000, .seed = seed, .transform = transform});
    };
    return {random(1'281'167, 0, augment), random(50'000, 1, plain)};
  }

  const fs::path dir = a.dir;
  const bool split = fs::is_directory(dir / "train") || fs::is_directory(dir / "val");
  if (!split)
    train::print("There is no train and no val in " + a.dir + ": training and validating on the same images");
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
  return {data::DatasetRef(train), data::DatasetRef(val), int64_t(train->classes().size())};
}

Data load_data(const Args& a) {
  Data d = find_data(a);
  d.train = first(d.train, a.train_samples);
  d.val = first(d.val, a.val_samples);
  train::check_same_on_all_ranks("data sets", concat(d.train->size(), '+', d.val->size(), " images of ",
                                                     d.classes, " classes of ", d.train->name()));
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
        train::print(concat("The last layer's ", name, " begins anew, for its shape is another"));
      }
  }
  net.load_state_dict(given);
}

// ---- output ----

std::string meters(const train::Sums& recent, const train::Sums& all) {
  return train::format("Loss %.4e (%.4e)\tAcc@1 %6.2f (%6.2f)\tAcc@5 %6.2f (%6.2f)", recent.mean("loss"),
                       all.mean("loss"), 100 * recent.mean("accuracy"), 100 * all.mean("accuracy"),
                       100 * recent.mean("accuracy_in_5"), 100 * all.mean("accuracy_in_5"));
}

// The figures of the images since the line before, and in brackets the mean of the epoch so far.
std::string epoch_line(const train::StepReport& r) {
  const int digits = int(concat(r.batches).size());
  return train::format("Epoch: [%lld][%*lld/%lld]\tTime %6.3f (%6.3f)\tData %6.3f (%6.3f)\t",
                       static_cast<long long>(r.epoch - 1), digits, static_cast<long long>(r.batch),
                       static_cast<long long>(r.batches), r.step.last, r.step.mean(), r.data.last,
                       r.data.mean()) +
         meters(r.recent, r.all);
}

std::string result_line(const train::Sums& all) {
  return train::format(" * Acc@1 %.3f Acc@5 %.3f", 100 * all.mean("accuracy"),
                       100 * all.mean("accuracy_in_5"));
}

// How many images of the last pass could not be read, on all ranks; says so, if there are any.
int64_t count_skipped(const char* what, const data::DataLoader& loader) {
  const Tensor count = full({1}, double(loader.skipped()), {.dtype = DType::kI64});
  dist::all_reduce(count);
  const int64_t skipped = count.item<int64_t>();
  if (skipped > 0) train::print(concat(skipped, ' ', what));
  return skipped;
}

// ---- training ----

train::Sums validate(models::ResNet& net, data::DataLoader& loader, const Args& a,
                     train::Training& training) {
  net.eval();
  const auto off = no_record();
  const auto amp = autocast(DType::kBF16, {.enabled = a.amp == "bf16"});
  train::Tally tally;
  int64_t batch = 0;
  for (const data::Batch& b : loader) {
    const Tensor logits = net(b.input);
    tally.add(train::score(nn::cross_entropy(logits, b.target, {.reduction = Reduction::kNone}), logits, b,
                           {.in_5 = true}));
    if (batch++ % a.log_interval == 0) {
      const train::Sums recent = tally.reduce();
      train::print(concat("Test: [", batch, '/', loader.size(), "]\t", meters(recent, tally.total())));
    }
    if (training.end_test_step()) break;
  }
  tally.reduce();
  return tally.total();
}

void fit(const Args& a) {
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
  if (!a.pretrained.empty() && train::is_first_rank()) load_pretrained(net, a.pretrained);
  dist::DistributedDataParallel ddp(net);
  GradManager gm;
  ddp.attach(gm);
  optim::SGD opt(net.parameters(), {.lr = a.lr, .momentum = a.momentum, .weight_decay = a.weight_decay});
  optim::StepLR schedule(opt, {.step_size = 30, .gamma = 0.1});
  train_loader.set_epoch(uint64_t(a.start_epoch));
  for (int64_t epoch = 0; epoch < a.start_epoch; ++epoch) schedule.step();
  train::print(concat(data.train->size(), " training and ", data.val->size(), " validation images of ",
                      data.classes, " classes; ", train::machine_text(), "; seed ", a.seed, '\n', a.arch,
                      ": ", net.num_parameters(), " parameters"));

  train::Training training("imagenet", a, train_loader,
                           {{"model", net}, {"optimizer", opt}, {"schedule", schedule}},
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
      training.end_step(train::score(loss, logits, b, {.in_5 = true}));
    }
    skipped += count_skipped("training images could not be read: others took their place", train_loader);
    schedule.step();
    training.end_epoch();
  }
  train::write_summary(training, {{"skipped", double(skipped)}});  // in all passes of this run
}

}  // namespace

int main(int argc, char** argv) { return train::run("imagenet", parse(argc, argv), fit); }
