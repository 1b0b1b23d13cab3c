// Trains a small convolutional network on handwritten digits, as PyTorch's mnist example does: Adadelta,
// learning rate 1.0 times 0.7 after every epoch. Reaches 99.0 % test accuracy on MNIST after 5 epochs, 99.2 %
// after 14.
//
//   ./run mnist                       MNIST from the cache folder, or digits that the program draws itself
//   ./run mnist --download            fetches MNIST first
//   ./run mnist --data DIR --epochs 5
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "gradus/autograd/grad_manager.h"
#include "gradus/data/cache_dir.h"
#include "gradus/data/dataloader.h"
#include "gradus/data/digits.h"
#include "gradus/data/download.h"
#include "gradus/data/mnist.h"
#include "gradus/examples/support/interrupt.h"
#include "gradus/examples/support/progress.h"
#include "gradus/examples/support/system.h"
#include "gradus/io/checkpoint.h"
#include "gradus/io/safetensors.h"
#include "gradus/models/mnist_net.h"
#include "gradus/optim/optim.h"
#include "gradus/tensor/parallel.h"

using namespace gradus;
using namespace gradus::examples;
namespace fs = std::filesystem;

namespace {

struct Args {
  int64_t batch_size = 64, test_batch_size = 1000;
  int64_t epochs = 14;
  double lr = 1.0, gamma = 0.7;
  uint64_t seed = 1;
  int64_t log_interval = 10;
  bool dry_run = false, save_model = false;
  std::string data;
  bool download = false;
  int64_t train_samples = 0, test_samples = 0;
  int workers = 0, threads = 0;
  std::string resume, checkpoint_dir, summary;
  int64_t checkpoint_interval = 0;
};

Args parse(int argc, char** argv) {
  Args a;
  CLI::App app{"Trains a convolutional network on MNIST"};
  const auto at_least = [](int64_t low) { return CLI::Range(low, int64_t{1} << 40); };
  app.add_option("--batch-size", a.batch_size, "images per training step")
      ->capture_default_str()
      ->check(at_least(1));
  app.add_option("--test-batch-size", a.test_batch_size, "images per test step")
      ->capture_default_str()
      ->check(at_least(1));
  app.add_option("--epochs", a.epochs, "passes over the training images")
      ->capture_default_str()
      ->check(at_least(0));
  app.add_option("--lr", a.lr, "learning rate")->capture_default_str()->check(CLI::NonNegativeNumber);
  app.add_option("--gamma", a.gamma, "factor of the learning rate after each epoch")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--seed", a.seed, "seed of all random numbers")->capture_default_str();
  app.add_option("--log-interval", a.log_interval, "batches between two lines of the log")
      ->capture_default_str()
      ->check(at_least(1));
  app.add_flag("--dry-run", a.dry_run, "one training step and one test step only");
  app.add_flag("--save-model", a.save_model, "write the weights to mnist_cnn.safetensors");
  app.add_option("--data", a.data, "folder with the four files of MNIST, plain or .gz")->type_name("DIR");
  app.add_flag("--download", a.download, "fetch MNIST (11.6 MB) into the data folder if it is not there");
  app.add_option("--train-samples", a.train_samples, "use only the first N training images")
      ->type_name("N")
      ->check(at_least(1));
  app.add_option("--test-samples", a.test_samples, "use only the first N test images")
      ->type_name("N")
      ->check(at_least(1));
  app.add_option("--workers", a.workers, "threads that prepare batches ahead")
      ->capture_default_str()
      ->check(CLI::Range(0, 256));
  app.add_option("--threads", a.threads, "threads that compute [all cores]")->check(CLI::Range(1, 4096));
  app.add_option("--resume", a.resume, "continue from this checkpoint")->type_name("FILE");
  app.add_option("--checkpoint-dir", a.checkpoint_dir, "write DIR/mnist.ckpt after every epoch")
      ->type_name("DIR");
  app.add_option("--checkpoint-interval", a.checkpoint_interval, "write it also every K batches")
      ->type_name("K")
      ->check(at_least(1));
  app.add_option("--summary", a.summary, "write the results as JSON")->type_name("FILE");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    std::exit(app.exit(e) == 0 ? 0 : 2);
  }
  return a;
}

// ---- data ----

struct Data {
  std::shared_ptr<const data::Dataset> train, test;
};

std::shared_ptr<const data::Dataset> first_of(std::shared_ptr<const data::Dataset> set, int64_t count) {
  if (count == 0 || count >= set->size()) return set;
  return std::make_shared<data::Subset>(data::Subset::first(std::move(set), count));
}

void download_to(const fs::path& dir) {
  std::unique_ptr<Progress> bar;
  std::string file;
  data::download_mnist(dir, [&](const data::DownloadProgress& p) {
    if (p.file != file) {
      if (bar) bar->finish("");
      file = p.file;
      if (!Progress::is_bar()) std::cout << "Downloading " << file << std::endl;
      bar = std::make_unique<Progress>(ProgressOptions{.title = file, .total = p.total, .unit = "bytes"});
    }
    bar->update(p.done, "");
  });
}

Data load_data(const Args& a) {
  const fs::path cache = a.data.empty() ? data::cache_dir() / "mnist" : fs::path();
  const fs::path dir = a.data.empty() ? cache : fs::path(a.data);
  if (a.download && !data::MNIST::available(dir)) download_to(dir);
  Data d;
  if (!a.data.empty() || data::MNIST::available(dir)) {
    d.train = std::make_shared<data::MNIST>(dir, data::MnistOptions{.train = true});
    d.test = std::make_shared<data::MNIST>(dir, data::MnistOptions{.train = false});
  } else {
    std::cout << "Training on generated digits: there is no MNIST in " << dir.string()
              << " (--download fetches it, --data DIR names another folder)" << std::endl;
    const auto size = [](int64_t n) { return n ? std::optional(n) : std::nullopt; };
    d.train = std::make_shared<data::GeneratedDigits>(
        data::GeneratedDigitsOptions{.train = true, .size = size(a.train_samples)});
    d.test = std::make_shared<data::GeneratedDigits>(
        data::GeneratedDigitsOptions{.train = false, .size = size(a.test_samples)});
  }
  return {first_of(d.train, a.train_samples), first_of(d.test, a.test_samples)};
}

// ---- figures ----

// How many rows of the logits have their largest value at the target.
int64_t count_correct(const Tensor& logits, const Tensor& target) {
  const float* x = logits.data<float>();
  const int64_t* y = target.data<int64_t>();
  const int64_t classes = logits.size(1);
  int64_t correct = 0;
  for (int64_t i = 0; i < logits.size(0); ++i)
    correct += std::max_element(x + i * classes, x + (i + 1) * classes) - (x + i * classes) == y[i];
  return correct;
}

// Sums over the samples seen.
struct Tally {
  double loss = 0;
  int64_t correct = 0, seen = 0;

  void add(double sum, int64_t right, int64_t n) { loss += sum, correct += right, seen += n; }
  double mean_loss() const { return seen ? loss / double(seen) : 0; }
  double accuracy() const { return seen ? double(correct) / double(seen) : 0; }
};

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

// ---- training ----

// The run asked to stop: what it leaves behind says where to go on.
struct Interrupted {};

class Trainer {
 public:
  Trainer(const Args& a, const Data& d)
      : args_(a),
        data_(d),
        train_loader_(
            d.train, {.batch_size = a.batch_size, .shuffle = true, .num_workers = a.workers, .seed = a.seed}),
        test_loader_(d.test, {.batch_size = a.test_batch_size, .num_workers = a.workers}) {
    gm_.attach(net_.parameters());
  }

  void run() {
    while (int64_t(train_loader_.epoch()) < args_.epochs) {
      train_epoch();
      test();
      schedule_.step();
      if (!args_.checkpoint_dir.empty() && !args_.dry_run) save();
      if (interrupt_.requested()) throw Interrupted();
      if (args_.dry_run) break;
    }
    if (test_.seen == 0) test();
  }

  void save() const {
    io::Checkpoint c;
    c.put("program", "mnist");
    c.put("dataset", data_.train->name());
    c.put("model", net_.state_dict());
    put(c, "optimizer", opt_.state_dict());
    put(c, "schedule", schedule_.state_dict());
    const data::LoaderState loader = train_loader_.state();
    c.put("loader.epoch", loader.epoch);
    c.put("loader.samples", loader.samples);
    c.put("loader.seed", loader.seed);
    c.put("loader.dataset_size", loader.dataset_size);
    const auto generator = Context::current().generator->state();
    c.put("generator.seed", generator[0]);
    c.put("generator.draws", generator[1]);
    c.put("epoch.loss", train_.loss);
    c.put("epoch.correct", train_.correct);
    c.put("epoch.seen", train_.seen);
    c.put("images", images_);
    c.put("seconds", seconds_);
    fs::create_directories(args_.checkpoint_dir);
    io::save_checkpoint(checkpoint_path(), c);
  }

  void resume(const fs::path& path) {
    const io::LoadedCheckpoint loaded = io::load_checkpoint(path);
    const io::Checkpoint& c = loaded.checkpoint;
    if (!loaded.warning.empty()) std::cerr << "mnist: " << loaded.warning << std::endl;
    if (c.get<std::string>("program") != "mnist")
      throw FileError("resume", loaded.path, ": expected a checkpoint of mnist, given one of ",
                      c.get<std::string>("program"));
    if (c.get<std::string>("dataset") != data_.train->name())
      throw ValueError("resume", loaded.path, " was trained on ", c.get<std::string>("dataset"), ", not on ",
                       data_.train->name());
    train_loader_.set_state({.epoch = c.get<uint64_t>("loader.epoch"),
                             .samples = c.get<int64_t>("loader.samples"),
                             .seed = c.get<uint64_t>("loader.seed"),
                             .dataset_size = c.get<int64_t>("loader.dataset_size")});
    net_.load_state_dict(c.tensors("model"));
    opt_.load_state_dict(get(c, "optimizer"));
    schedule_.load_state_dict(get(c, "schedule"));
    Context::current().generator->set_state(
        {c.get<uint64_t>("generator.seed"), c.get<uint64_t>("generator.draws")});
    train_ = {c.get<double>("epoch.loss"), c.get<int64_t>("epoch.correct"), c.get<int64_t>("epoch.seen")};
    images_ = c.get<int64_t>("images");
    seconds_ = c.get<double>("seconds");
    std::cout << "Resuming from " << loaded.path << ": epoch " << train_loader_.epoch() + 1 << ", image "
              << train_loader_.state().samples << std::endl;
  }

  fs::path checkpoint_path() const { return fs::path(args_.checkpoint_dir) / "mnist.ckpt"; }
  nn::Module& net() { return net_; }
  const Tally& test_result() const { return test_; }
  double images_per_second() const { return seconds_ > 0 ? double(images_) / seconds_ : 0; }
  int64_t epochs_done() const { return int64_t(train_loader_.epoch()); }

 private:
  void train_epoch() {
    net_.train();
    const int epoch = static_cast<int>(train_loader_.epoch()) + 1;
    const int64_t batches = train_loader_.size(), total = data_.train->size();
    int64_t batch = train_loader_.state().samples / args_.batch_size;
    if (batch == 0) train_ = {};
    const double seconds_before = seconds_;
    Progress progress(
        {.title = format("Epoch %d/%d", epoch, int(args_.epochs)), .total = total, .done = train_.seen});
    for (const data::Batch& b : train_loader_) {
      const double loss = train_step(b);
      images_ += b.size();
      seconds_ = seconds_before + progress.seconds();

      const std::string figures =
          format("loss %.4f  accuracy %.2f %%", train_.mean_loss(), 100 * train_.accuracy());
      progress.update(train_.seen, figures);
      if (!Progress::is_bar() && batch % args_.log_interval == 0)
        std::cout << format(
                         "Train Epoch: %d [%lld/%lld (%.0f%%)]\tLoss: %.6f\tAccuracy: %.2f%%\t%.0f images/s",
                         epoch, static_cast<long long>(train_.seen), static_cast<long long>(total),
                         100.0 * double(train_.seen) / double(total), loss, 100 * train_.accuracy(),
                         progress.units_per_second())
                  << std::endl;
      if (++batch == batches || args_.dry_run) progress.finish(figures);
      if (args_.dry_run) break;
      if (batch == batches) continue;  // the end of the epoch saves and stops as well
      const bool stop = interrupt_.requested();
      const bool due = args_.checkpoint_interval > 0 && batch % args_.checkpoint_interval == 0;
      if (!args_.checkpoint_dir.empty() && (stop || due)) save();
      if (stop) throw Interrupted();
    }
  }

  double train_step(const data::Batch& b) {
    auto recording = gm_.record();
    const Tensor logits = net_(b.input);
    const Tensor loss = nn::cross_entropy(logits, b.target);
    gm_.backward(loss);
    opt_.step().clear_grad();
    const double value = loss.item<double>();
    train_.add(value * double(b.size()), count_correct(logits, b.target), b.size());
    return value;
  }

  void test() {
    net_.eval();
    const auto off = no_record();
    test_ = {};
    for (const data::Batch& b : test_loader_) {
      const Tensor logits = net_(b.input);
      const Tensor loss = nn::cross_entropy(logits, b.target, {.reduction = Reduction::kSum});
      test_.add(loss.item<double>(), count_correct(logits, b.target), b.size());
      if (args_.dry_run) break;
    }
    std::cout << format("Test set: Average loss: %.4f, Accuracy: %lld/%lld (%.2f%%)", test_.mean_loss(),
                        static_cast<long long>(test_.correct), static_cast<long long>(test_.seen),
                        100 * test_.accuracy())
              << std::endl;
  }

  static void put(io::Checkpoint& c, const std::string& name, const optim::State& state) {
    c.put(name + ".tensors", state.tensors);
    for (const auto& [key, value] : state.numbers) c.put(name + ".numbers." + key, value);
  }
  static optim::State get(const io::Checkpoint& c, const std::string& name) {
    optim::State state{.tensors = c.tensors(name + ".tensors"), .numbers = {}};
    const io::Checkpoint numbers = c.section(name + ".numbers");
    for (const std::string& key : numbers.names()) state.numbers.emplace_back(key, numbers.get<double>(key));
    return state;
  }

  const Args& args_;
  const Data& data_;
  models::MnistNet net_;
  GradManager gm_;
  optim::Adadelta opt_{net_.parameters(), {.lr = args_.lr}};
  optim::StepLR schedule_{opt_, {.step_size = 1, .gamma = args_.gamma}};
  data::DataLoader train_loader_, test_loader_;
  Interrupt interrupt_;
  Tally train_, test_;
  int64_t images_ = 0;  // trained on, and how long that took, over all runs of this training
  double seconds_ = 0;
};

void check_folder_of(const fs::path& file) {
  const fs::path dir = file.has_parent_path() ? file.parent_path() : ".";
  if (!fs::is_directory(dir))
    throw FileError("mnist", "there is no folder ", dir.string(), " for ", file.string());
}

int run(const Args& args) {
  const auto start = std::chrono::steady_clock::now();
  if (!args.summary.empty()) check_folder_of(args.summary);
  if (args.threads > 0) set_num_threads(args.threads);
  const Data data = load_data(args);
  manual_seed(args.seed);
  Trainer trainer(args, data);
  std::cout << data.train->size() << " training and " << data.test->size() << " test images of "
            << data.train->name() << "; cpu, " << num_threads() << " threads; seed " << args.seed << '\n'
            << trainer.net() << std::endl;
  if (!args.resume.empty()) trainer.resume(args.resume);
  try {
    trainer.run();
  } catch (const Interrupted&) {
    std::cerr << "mnist: interrupted";
    if (!args.checkpoint_dir.empty())
      std::cerr << "; continue with --resume " << trainer.checkpoint_path().string();
    std::cerr << std::endl;
    return kInterruptedStatus;
  }

  const Tally& result = trainer.test_result();
  std::cout << format("Test loss %.4f, test accuracy %.2f %%; trained at %.0f images/s", result.mean_loss(),
                      100 * result.accuracy(), trainer.images_per_second())
            << std::endl;
  if (args.save_model) {
    io::save_safetensors("mnist_cnn.safetensors", trainer.net().state_dict(), {{"format", "gradus"}});
    std::cout << "Wrote mnist_cnn.safetensors" << std::endl;
  }
  if (!args.summary.empty()) {
    const nlohmann::ordered_json summary = {
        {"example", "mnist"},
        {"dataset", data.train->name()},
        {"train_samples", data.train->size()},
        {"test_samples", data.test->size()},
        {"epochs", trainer.epochs_done()},
        {"test_accuracy", result.accuracy()},
        {"test_loss", result.mean_loss()},
        {"images_per_second", trainer.images_per_second()},
        {"peak_rss_mib", peak_rss_mib()},
        {"device", "cpu"},
        {"threads", num_threads()},
        {"world_size", 1},
        {"seconds", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()},
        {"seed", args.seed},
    };
    write_text_file(args.summary, summary.dump(2) + "\n");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Args args = parse(argc, argv);
  try {
    return run(args);
  } catch (const std::exception& e) {
    std::cerr << "mnist: " << e.what() << std::endl;
    return 1;
  }
}
