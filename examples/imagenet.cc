// Trains a residual network on ImageNet or on images of your own, with the recipe and the options of
// PyTorch's imagenet example: SGD, the learning rate divided by 10 every 30 epochs.
//
//   ./run imagenet DIR -a resnet18                DIR/train/CLASS/*.jpg, DIR/val/CLASS/*.jpg
//   ./run imagenet DIR -a resnet50 --pretrained resnet50.safetensors --epochs 10 --lr 0.01
//   ./run imagenet DIR --evaluate --resume runs/imagenet.best.ckpt
//   ./run imagenet DIR --device cuda --amp bf16   on a GPU, products and convolutions in 16 bits
//   ./run imagenet DIR --devices cuda:0,cuda:1    on two GPUs, each with half of every batch
//   ./run imagenet DIR --amp bf16 --nproc 4       4 ranks; also under gradus-run, torchrun, Slurm, ...
//   ./run imagenet DIR -a resnet50 --pipeline 2   the network in two stages, on 2 ranks; 4 are 2 replicas
//   ./run imagenet --dummy                        random images, to try it out and to measure its speed
//
// --checkpoint-dir keeps the latest checkpoint and the best; --resume resumes from one, on any
// number of ranks, in a pipeline or not.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include "gradus/gradus.h"
#include "gradus/io/checkpoint_file.h"

using namespace gradus;
namespace fs = std::filesystem;

namespace {

// RunOptions: the options of all training programs, such as --epochs, --device, --nproc and --checkpoint-dir.
struct Args : training::RunOptions {
  std::string dir = "imagenet", arch = "resnet18", pretrained, on_error = "throw";
  int64_t start_epoch = 0, batch_size = 256, image_size = 224;
  double lr = 0.1, momentum = 0.9, weight_decay = 1e-4;
  bool evaluate = false, dummy = false;
  int64_t train_samples = 0, val_samples = 0;
  training::PipelineRunOptions pipeline;
};

Args parse(int argc, char** argv) {
  Args a;
  a.epochs = 90;
  a.workers = 4, a.device = kCPU, a.devices = {kCPU}, a.amp = DType::kF32, a.capture = false;
  training::CommandLine line("imagenet",
                             "Trains a residual network on ImageNet, or on images in a folder per class", a);
  line.add("DIR", a.dir, "folder with train/CLASS/IMAGE and val/CLASS/IMAGE");
  line.add("-a,--arch", a.arch, "the network", {.one_of = models::resnet_names()});
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
  training::add_pipeline(line, a.pipeline,
                         "which is cut where measuring says; batch norm normalizes by the micro-batch");
  line.parse_or_exit(argc, argv);
  training::start_ranks_for_pipelines(a, a.pipeline);
  return a;
}

// ---- data ----

struct Data {
  data::DatasetRef train, val;
  int64_t classes = 1000;
};

// Returns the first `count` samples; 0: all.
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
    training::print("Training on random images");
    const auto random = [&](int64_t images, uint64_t seed, const data::Transform& transform) {
      return data::FakeData(
          {.size = images, .image_size = size, .classes = 1000, .seed = seed, .transform = transform});
    };
    return {random(1'281'167, 0, augment), random(50'000, 1, plain)};
  }

  const fs::path dir = a.dir;
  const bool split = fs::is_directory(dir / "train") || fs::is_directory(dir / "val");
  if (!split)
    training::print("There is no train and no val in " + a.dir +
                    ": training and validating on the same images");
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
  training::check_same_on_all_ranks("data sets", concat(d.train->size(), '+', d.val->size(), " images of ",
                                                        d.classes, " classes of ", d.train->name()));
  return d;
}

// Returns the images per step of all ranks.
int64_t global_batch_size(const Args& a) {
  return a.batch_size * std::max(1, dist::get_world_size() / dist::get_local_world_size());
}
data::DataLoader training_loader(const Args& a, const Data& d) {
  return data::DataLoader(d.train, {.global_batch_size = global_batch_size(a),
                                    .shuffle = true,
                                    .num_workers = a.workers,
                                    .seed = a.seed,
                                    .device = a.device});
}
data::DataLoader validation_loader(const Args& a, const Data& d) {
  return data::DataLoader(
      d.val, {.global_batch_size = global_batch_size(a), .num_workers = a.workers, .device = a.device});
}

// ---- weights ----

// Returns the names of the last layer's tensors that have another shape in `weights`, because the number of
// classes is another. These tensors keep their initial values.
std::vector<std::string> mismatching_names(const nn::Module& net, const nn::StateDict& weights) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : weights)
    for (const auto& [own_name, own] : net.state_dict())
      if (name.starts_with("fc.") && own_name == name && own.shape() != tensor.shape()) names.push_back(name);
  for (const std::string& name : names)
    training::print(concat("The last layer's ", name, " begins anew, for its shape is another"));
  return names;
}

bool is_checkpoint(const fs::path& file) { return file.extension() == ".ckpt"; }

// Loads the weights of a safetensors file or of the model in a checkpoint.
void load_pretrained(models::ResNet& net, const fs::path& file) {
  const nn::StateDict weights = is_checkpoint(file) ? io::load_checkpoint(file).checkpoint.tensors("model")
                                                    : io::load_safetensors(file).tensors;
  net.load_state_dict(weights, {.except = mismatching_names(net, weights)});
}

// ---- output ----

std::string meters(const training::Sums& recent, const training::Sums& all) {
  const std::string loss = training::format_text("Loss %.4e (%.4e)", recent.mean("loss"), all.mean("loss"));
  if (!all.contains("accuracy")) return loss;
  return loss + training::format_text("\tAcc@1 %6.2f (%6.2f)\tAcc@5 %6.2f (%6.2f)",
                                      100 * recent.mean("accuracy"), 100 * all.mean("accuracy"),
                                      100 * recent.mean("accuracy_in_5"), 100 * all.mean("accuracy_in_5"));
}

// Shows means since the previous line, and in brackets the means of the epoch so far.
std::string epoch_line(const training::StepReport& r) {
  const int digits = int(concat(r.batches).size());
  return training::format_text("Epoch: [%lld][%*lld/%lld]\tTime %6.3f (%6.3f)\tData %6.3f (%6.3f)\t",
                               r.epoch - 1, digits, r.batch, r.batches, r.step_time.last, r.step_time.mean(),
                               r.data_time.last, r.data_time.mean()) +
         meters(r.recent, r.all);
}

std::string result_line(const training::Sums& all) {
  return training::format_text(" * Acc@1 %.3f Acc@5 %.3f", 100 * all.mean("accuracy"),
                               100 * all.mean("accuracy_in_5"));
}

// Images that could not be read, in all passes of this run and on all ranks.
struct UnreadableImages {
  int64_t count = 0;

  // Adds the unreadable images of the loader's last pass. Returns a line "NUMBER TEXT", or "" if there were
  // none. Collective.
  std::string add(const data::DataLoader& loader, const char* text) {
    training::Tally tally;
    tally.add({.seen = loader.skipped()});
    const int64_t skipped = tally.reduce().seen;
    count += skipped;
    return skipped > 0 ? concat(skipped, ' ', text) : "";
  }
};

// ---- shared by data-parallel and pipeline training ----

using LogitsOf = std::function<Tensor(const Tensor& images)>;

// Returns the means of loss and accuracy over all ranks' validation images.
training::Sums validate(nn::Module& net, const LogitsOf& logits_of, data::DataLoader& loader, const Args& a,
                        training::Training& training) {
  const nn::ModeScope mode(net, false);
  const auto off = no_record();
  const auto amp = training::mixed_precision(a);
  training::Tally tally;
  int64_t batch = 0;
  for (const data::Batch& b : loader) {
    const Tensor logits = logits_of(b.input);
    tally.add(training::score(nn::cross_entropy(logits, b.target, {.reduction = Reduction::kNone}), logits, b,
                              {.top5 = true}));
    if (batch++ % a.log_interval == 0) {
      const training::Sums recent = tally.reduce();
      training::print(concat("Test: [", batch, '/', loader.size(), "]\t", meters(recent, tally.total())));
    }
    if (training.end_test_step()) break;
  }
  tally.reduce();
  return tally.total();
}

optim::SGDOptions sgd(const Args& a) {
  return {.lr = a.lr, .momentum = a.momentum, .weight_decay = a.weight_decay};
}

training::TrainingOptions options(const Args& a, const Data& data, optim::StepLR& schedule,
                                  const data::DataLoader& train_loader, const data::DataLoader& val_loader,
                                  UnreadableImages& unreadable, std::function<training::Sums()> validate) {
  return {.count_by = training::CountBy::kEpochs,
          .fixed = {{"network", a.arch}, {"number of classes", concat(data.classes)}},
          .on_epoch =
              [&] {
                const std::string line = unreadable.add(
                    train_loader, "training images could not be read: others took their place");
                if (!line.empty()) training::print(line);
                schedule.step();
              },
          .test = std::move(validate),
          .keep_best = !a.evaluate,
          .step_line = epoch_line,
          // Called on all ranks.
          .test_line =
              [&](const training::Sums& all) {
                const std::string line =
                    unreadable.add(val_loader, "validation images could not be read and do not count");
                return result_line(all) + (line.empty() ? "" : "\n" + line);
              }};
}

std::string description(const Args& a, const Data& data, const nn::Module& net) {
  return concat(data.train->size(), " training and ", data.val->size(), " validation images of ",
                data.classes, " classes; ", training::machine_text(a), "; seed ", a.seed, '\n', a.arch, ": ",
                net.num_parameters(), " parameters");
}

// Trains by calling `step` for every training step, or only evaluates.
void run(const Args& a, training::Training& training, const UnreadableImages& unreadable,
         const std::function<void(training::Step&)>& step) {
  if (a.evaluate) {
    training.test_only();
  } else {
    for (training::Step& s : training) {
      if (training.events() && s.number() == 1) {
        const Tensor images = s.batch().input;
        training.events()->add_image("train/images",
                                     narrow(images, 0, 0, std::min<int64_t>(images.size(0), 16)), 0,
                                     {.nrow = 4, .normalize = true});
      }
      step(s);
    }
  }
  training::write_summary(training, {{"skipped", double(unreadable.count)}});
}

// Advances the order of the images and the learning rate to --start-epoch.
void start_at(const Args& a, data::DataLoader& loader, optim::StepLR& schedule) {
  loader.set_epoch(uint64_t(a.start_epoch));
  for (int64_t epoch = 0; epoch < a.start_epoch; ++epoch) schedule.step();
}

// ---- training, data parallel ----

void fit(const Args& a) {
  const Data data = load_data(a);
  data::DataLoader train_loader = training_loader(a, data), val_loader = validation_loader(a, data);
  manual_seed(a.seed);
  const models::ResNetOptions network = models::resnet(a.arch, {.classes = data.classes});
  dist::DataParallel<models::ResNet> replicas([&] { return std::make_unique<models::ResNet>(network); },
                                              {.device_ids = a.devices});
  models::ResNet& net = replicas.module();  // on the first device
  // DistributedDataParallel broadcasts the weights and running statistics of rank 0.
  if (!a.pretrained.empty() && training::is_first_rank()) load_pretrained(net, a.pretrained);
  dist::DistributedDataParallel ddp(net);
  GradManager gm;
  ddp.attach(gm);
  optim::SGD opt(net.parameters(), sgd(a));
  optim::StepLR schedule(opt, {.step_size = 30, .gamma = 0.1});
  start_at(a, train_loader, schedule);
  training::print(description(a, data, net));
  const auto logits_of = [&](const Tensor& x) { return replicas(x); };
  UnreadableImages unreadable;
  training::Training training("imagenet", a, train_loader,
                              {{"model", net}, {"optimizer", opt}, {"schedule", schedule}},
                              options(a, data, schedule, train_loader, val_loader, unreadable,
                                      [&] { return validate(net, logits_of, val_loader, a, training); }));
  using Tensors = std::vector<Tensor>;
  const auto step = training::training_step(a, [&](const Tensors& in) -> Tensors {
    auto recording = gm.record();
    const auto amp = training::mixed_precision(a);
    const Tensor logits = replicas(in[0]), loss = nn::cross_entropy(logits, in[1]);
    gm.backward(loss);
    opt.step().clear_grad();
    return {loss, logits};
  });
  run(a, training, unreadable, [&](training::Step& s) {
    const Tensors results = step({s.batch().input, s.batch().target});
    s.log(training::score(results[0], results[1], s.batch(), {.top5 = true}));
  });
}

// ---- training in a pipeline ----

using Pipeline = dist::Pipeline<models::ResNet>;

// Each rank reads only the tensors of its stages, so all ranks need access to the file.
void load_pretrained(Pipeline& pipe, const fs::path& file) {
  if (!is_checkpoint(file)) {
    nn::StateDict weights;
    const io::SafetensorsReader reader(file);
    for (const io::SafetensorsEntry& e : reader.header().entries)
      weights.emplace_back(e.name, empty(e.shape, {.dtype = e.dtype, .device = {DeviceType::kMeta}}));
    pipe.load_weights(file, {.except = mismatching_names(pipe.module(), weights)});
    return;
  }
  const io::LoadedCheckpoint found = io::inspect_checkpoint(file);
  pipe.load_weights(found.path,
                    {.except = mismatching_names(pipe.module(), found.checkpoint.tensors("model"))}, "model");
}

// Trains the network in consecutive stages, each on its own rank; the Pipeline measures the times of layers
// to choose the stages. Only the last stage has logits: training logs no accuracy, and a validation sends the
// logits to all ranks.
void fit_in_pipeline(const Args& a) {
  training::check_pipeline_device("imagenet", a);
  const Data data = load_data(a);
  manual_seed(a.seed);
  const models::ResNetOptions network = models::resnet(a.arch, {.classes = data.classes});
  const int64_t rows = training::micro_batch_rows(a.pipeline, global_batch_size(a));
  Pipeline pipe([&] { return std::make_unique<models::ResNet>(network); },
                zeros({rows, 3, a.image_size, a.image_size}), training::pipeline_options(a.pipeline));
  if (!a.pretrained.empty()) load_pretrained(pipe, a.pretrained);
  data::DataLoader train_loader = training_loader(a, data), val_loader = validation_loader(a, data);
  GradManager gm;
  pipe.attach(gm);
  optim::SGD opt(pipe.parameters(), sgd(a));
  optim::StepLR schedule(opt, {.step_size = 30, .gamma = 0.1});
  start_at(a, train_loader, schedule);
  training::print(description(a, data, pipe.module()));
  if (training::is_first_rank()) std::cout << pipe.describe();
  const auto logits_of = [&](const Tensor& x) { return pipe.forward(x, {.everywhere = true}); };
  UnreadableImages unreadable;
  training::Training training("imagenet", a, train_loader, {{pipe, opt}, {"schedule", schedule}},
                              options(a, data, schedule, train_loader, val_loader, unreadable, [&] {
                                return validate(pipe.module(), logits_of, val_loader, a, training);
                              }));
  run(a, training, unreadable, [&](training::Step& s) {
    const data::Batch& b = s.batch();
    const auto amp = training::mixed_precision(a);
    const double loss = pipe.step(gm, b.input, b.target, nn::cross_entropy);
    opt.step().clear_grad();
    s.log({.seen = b.size(), .of = {{"loss", loss * double(b.size())}}});
  });
}

}  // namespace

int main(int argc, char** argv) {
  const Args a = parse(argc, argv);
  const bool in_pipeline = a.pipeline != training::PipelineRunOptions();
  return training::run("imagenet", a, in_pipeline ? fit_in_pipeline : fit);
}
