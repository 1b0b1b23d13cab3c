// Trains ResNet-50 with half of its layers on each of two devices of one process: the devices compute one
// after the other, or at the same time on splits of the batch. Compares their times with those of one device
// and DataParallel.
//
//   ./run model-parallel --plot times.svg     PyTorch's tutorial: 3 batches of 120 images of 128x128 pixels
//   ./run model-parallel --batch 24 --batches 1 --repeats 5 --splits 1,2,3,4,6,12        some minutes
//
// --width makes the network smaller. The devices are cpu:1 and cpu:2, each with a queue and one computing
// thread. The program checks that both halves together compute the same bits as one device. Then it measures
// the time of each half alone, predicts from these times the time of each split size, chooses the best, and
// measures all.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gradus/examples/two_devices/report.h"
#include "gradus/gradus.h"
#include "gradus/io/file.h"

using namespace gradus;
using namespace gradus::examples;

namespace {

struct Args {
  int64_t batch = 120, size = 128, batches = 3, width = 64;
  int repeats = 10;
  std::set<int64_t> splits = {1, 3, 5, 8, 10, 12, 20, 40, 60};
  std::string plot, summary;
};

Args parse(int argc, char** argv) {
  Args a;
  CLI::App app{"Trains ResNet-50 on two devices of one process"};
  app.add_option("--batch", a.batch, "images of a batch")->check(CLI::Range(2, 4096))->capture_default_str();
  app.add_option("--size", a.size, "height and width of the images")
      ->check(CLI::Range(64, 512))
      ->capture_default_str();
  app.add_option("--batches", a.batches, "batches of a training")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--width", a.width, "channels of the first stage; 64: ResNet-50")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--repeats", a.repeats, "how often each training is timed")
      ->check(CLI::Range(2, 1000))
      ->capture_default_str();
  const auto* splits = app.add_option("--splits", a.splits, "sizes of splits, up to that of the batch")
                           ->delimiter(',')
                           ->check(CLI::Range(1, 4096))
                           ->capture_default_str();
  app.add_option("--plot", a.plot, "draw the times into this file, as SVG")->type_name("FILE");
  app.add_option("--summary", a.summary, "write the times into this file, as JSON")->type_name("FILE");
  try {
    app.parse(argc, argv);
    if (!splits->empty() && *a.splits.rbegin() > a.batch)
      throw CLI::ValidationError("--splits", concat("the batch has ", a.batch, " images"));
    for (const std::string& file : {a.plot, a.summary}) {
      const std::string folder = (std::filesystem::path(".") / file).parent_path();
      if (!std::filesystem::is_directory(folder))
        throw CLI::ValidationError(file, "there is no folder " + folder);
    }
  } catch (const CLI::ParseError& e) {
    std::exit(app.exit(e) == 0 ? 0 : 2);
  }
  std::erase_if(a.splits, [&](int64_t size) { return size > a.batch; });
  return a;
}

// ---- networks ----

// ResNet-50 with the same weights for every way to train it.
class Networks {
 public:
  explicit Networks(int64_t width)
      : replicas_([=] { return std::make_unique<models::ResNet>(options(width)); },
                  {.device_ids = {kFirst, kSecond}}),
        halves_(1, options(width)) {
    nn::copy_state_(one(), halves_);
  }

  ModelParallelResNet50& halves() { return halves_; }

  Trainee one_device() {
    return {[this](const Tensor& x) { return one()(to(x, kFirst)); }, one().parameters()};
  }
  Trainee one_device(int64_t split_size) {
    return {
        [this, split_size](const Tensor& x) { return in_splits(to(x, kFirst), split_size, std::ref(one())); },
        one().parameters()};
  }
  Trainee data_parallel() {
    return {[this](const Tensor& x) { return replicas_(x); }, replicas_->parameters()};
  }
  Trainee model_parallel() {
    return {[this](const Tensor& x) { return halves_.ModelParallelResNet50::forward(x); },
            halves_.parameters()};
  }
  Trainee pipelined(int64_t split_size) {
    return {[this, split_size](const Tensor& x) {
              halves_.split_size = split_size;
              return halves_(x);
            },
            halves_.parameters()};
  }

 private:
  static models::ResNetOptions options(int64_t width) {
    models::ResNetOptions o = models::resnet50();
    o.width = width;
    return o;
  }
  models::ResNet& one() { return replicas_.module(); }

  dist::DataParallel<models::ResNet> replicas_;
  PipelineParallelResNet50 halves_;
};

// ---- checks ----

void check_same(const std::string& what, const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (const double difference = largest_difference(a, b); difference != 0)
    throw StateError("model_parallel", what, " differ from one device's by ", difference);
  std::cout << what << ": the same bits as on one device" << std::endl;
}

std::vector<Tensor> weights_after_a_step(nn::Layer& net, const Tensor& x, const Tensor& y) {
  GradManager gm;
  gm.attach(net.parameters());
  optim::SGD opt(net.parameters(), {.lr = 0.001});
  auto recording = gm.record();
  const Tensor result = net(x);
  gm.backward(nn::mse_loss(result, to(y, result.device())));
  opt.step();
  return net.parameters();
}

void check_toy_model() {
  const Tensor x = randn({20, 10}), y = randn({20, 5});
  ToyModel one;
  TwoDeviceToyModel two;
  nn::copy_state_(one, two);
  check_same("ToyModel, weights after a training step", weights_after_a_step(two, x, y),
             weights_after_a_step(one, x, y));
}

void check_gradients(Networks& nets, const Batch& batch) {
  check_same("ModelParallelResNet50, gradients", gradients_of(nets.model_parallel(), batch),
             gradients_of(nets.one_device(), batch));
  check_same("PipelineParallelResNet50, gradients", gradients_of(nets.pipelined(2), batch),
             gradients_of(nets.one_device(2), batch));
}

// ---- times ----

// Trains in all ways alternately, so that changes of the machine's speed affect all.
void measure_times(Report& report, Networks& nets, const std::vector<Batch>& batches, int repeats) {
  std::vector<std::pair<Timing*, Trainee>> all = {{&report.one_device, nets.one_device()},
                                                  {&report.model_parallel, nets.model_parallel()},
                                                  {&report.data_parallel, nets.data_parallel()}};
  for (Timing& t : report.pipelined) all.emplace_back(&t, nets.pipelined(t.split_size));
  for (int i = 0; i < repeats; ++i) {
    for (const auto& [timing, net] : all) timing->seconds.push_back(train_seconds(net, batches));
    std::cout << "repetition " << i + 1 << " of " << repeats << std::endl;
  }
}

void run(const Args& a) {
  set_num_threads(1);  // of each device
  manual_seed(1);
  check_toy_model();
  Networks nets(a.width);
  check_gradients(nets, random_batch({.images = 3, .size = a.size}));

  std::vector<Batch> batches;
  for (int64_t i = 0; i < a.batches; ++i)
    batches.push_back(random_batch({.images = a.batch, .size = a.size}));
  const StepTimes halves = measure(nets.halves(), batches[0]);
  const auto predicted = [&](int64_t split_size) {
    return static_cast<double>(a.batches) * predict(halves, a.batch, split_size);
  };
  Report report{.one_device = {.name = "one device"},
                .model_parallel = {.name = "model parallel", .predicted = predicted(a.batch)},
                .data_parallel = {.name = "data parallel"},
                .chosen_split = best_split(halves, a.batch),
                .halves = halves};
  std::cout << "Predicted to be the fastest: splits of " << report.chosen_split << " images" << std::endl;
  std::set<int64_t> splits = a.splits;
  splits.insert(report.chosen_split);
  for (const int64_t size : splits)
    report.pipelined.push_back(
        {.name = concat("splits of ", size), .split_size = size, .predicted = predicted(size)});

  measure_times(report, nets, batches, a.repeats);
  std::cout << report.table() << report.conclusions();
  if (!a.plot.empty()) io::write_file(a.plot, to_svg(report.charts()));
  if (!a.summary.empty()) io::write_file(a.summary, report.json());
}

}  // namespace

int main(int argc, char** argv) {
  const Args args = parse(argc, argv);
  try {
    run(args);
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "model_parallel: " << e.what() << std::endl;
    return 1;
  }
}
