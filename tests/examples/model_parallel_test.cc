// examples/model_parallel: its two-device networks against one device, its prediction of step times, its SVG
// plot, and the program as a process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "gradus/examples/two_devices/plot.h"
#include "gradus/examples/two_devices/prediction.h"
#include "gradus/gradus.h"
#include "gradus/io/file.h"
#include "gradus/tests/examples/program_run.h"

namespace gradus::examples {
namespace {

using testing::HasSubstr;

models::ResNetOptions small() {
  return {
      .stages = {1, 1, 1, 2}, .block = models::ResNetOptions::Block::kBottleneck, .width = 4, .classes = 5};
}

// ---- networks ----

TEST(TwoDeviceNetworks, HaveTorchvisionsNamesAndAHalfOnEachDevice) {
  const models::ResNet one(small());
  const PipelineParallelResNet50 net(2, small());
  const nn::StateDict theirs = one.state_dict(), ours = net.state_dict();
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [name, tensor] : theirs) {
    const bool last = name.starts_with("layer3") || name.starts_with("layer4") || name.starts_with("fc");
    EXPECT_EQ(ours.at(name).device(), last ? kSecond : kFirst) << name;
  }
}

TEST(TwoDeviceNetworks, HaveOneDevicesGradientsForEverySplitSize) {
  Context context = Context::current().snapshot();
  const ContextScope scope(context);
  set_num_threads(1);
  constexpr int64_t kImages = 7;
  models::ResNet one(small());
  PipelineParallelResNet50 net(1, small());
  one.to(DType::kF64);
  net.to(DType::kF64);
  nn::copy_state_(one, net);
  Batch batch = random_batch({.images = kImages, .size = 40, .classes = 5});
  batch = {to(batch.images, DType::kF64), to(batch.labels, DType::kF64)};
  for (int64_t size = 1; size <= kImages; ++size) {
    net.split_size = size;
    const auto on_one = [&](const Tensor& x) {
      return in_splits(x, size, [&](const Tensor& part) { return one(part); });
    };
    const std::vector<Tensor> want = gradients_of({on_one, one.parameters()}, batch);
    const std::vector<Tensor> got =
        gradients_of({[&](const Tensor& x) { return net(x); }, net.parameters()}, batch);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      double largest = 0;
      for (const double v : want[i].to_vector<double>()) largest = std::max(largest, std::abs(v));
      EXPECT_GT(largest, 0);
      EXPECT_LE(largest_difference({got[i]}, {want[i]}), 1e-12 * largest) << "splits of " << size;
    }
  }
}

TEST(TwoDeviceNetworks, LetTheFirstDeviceGoAheadWhileTheSecondIsBusy) {
  using Clock = std::chrono::steady_clock;
  PipelineParallelResNet50 net(1, small());
  const Batch batch = random_batch({.images = 4, .size = 64, .classes = 5});
  std::atomic<bool> open = false;
  const Clock::time_point latest = Clock::now() + std::chrono::seconds(30);
  const auto nap = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  Stream::of(kSecond).enqueue([&] {
    while (!open && Clock::now() < latest) nap();
  });
  const Tensor y = net(batch.images);
  const Event first_is_done = Event::record(Stream::of(kFirst));
  while (!first_is_done.done() && Clock::now() < latest) nap();
  EXPECT_LT(Clock::now(), latest) << "the first device or the host waits for the second";
  open = true;
  EXPECT_EQ(y.to_vector<float>().size(), 20u);
}

// ---- prediction ----

TEST(Prediction, FitsTheLineThroughPointsThatLieOnOne) {
  const LinearTime line = fit({{1, 5}, {4, 11}, {16, 35}});
  EXPECT_NEAR(line.fixed, 3, 1e-12);
  EXPECT_NEAR(line.per_image, 2, 1e-12);
  EXPECT_DOUBLE_EQ(line(10), 23);
  EXPECT_DOUBLE_EQ(fit({{2, 6}})(4), 12);
}

TEST(Prediction, FollowsBothDevicesThroughAStep) {
  const HalfTimes half{.forward = {0, 1}, .backward = {0, 2}};
  const StepTimes times{half, half};
  EXPECT_DOUBLE_EQ(predict(times, 4, 4), 24);  // one after the other
  // The second device is busy from 1 to 13, then the first ends the backward of the first split.
  EXPECT_DOUBLE_EQ(predict(times, 4, 1), 15);
  // Splits of 2 and 1: the second has its forwards from 2 to 5, its backwards of 1 and 2 until 7 and 11.
  EXPECT_DOUBLE_EQ(predict(times, 3, 2), 15);
  const HalfTimes stepping{.forward = {0, 1}, .backward = {0, 2}, .step = 3};
  EXPECT_DOUBLE_EQ(predict({half, stepping}, 4, 1), 16);
  EXPECT_DOUBLE_EQ(predict({stepping, half}, 4, 1), 18);
}

TEST(Prediction, ChoosesSmallSplitsUnlessEachHasItsCost) {
  const HalfTimes free{.forward = {0, 1}, .backward = {0, 2}}, costly{.forward = {3, 1}, .backward = {6, 2}},
      dear{.forward = {900, 1}, .backward = {900, 2}};
  EXPECT_EQ(best_split({free, free}, 60), 1);
  EXPECT_EQ(best_split({dear, dear}, 60), 60);
  const int64_t size = best_split({costly, costly}, 60);
  for (int64_t other = 1; other <= 60; ++other)
    EXPECT_LE(predict({costly, costly}, 60, size), predict({costly, costly}, 60, other));
  EXPECT_GT(size, 1);
  EXPECT_LT(size, 60);
}

TEST(Prediction, TimesBothHalves) {
  ModelParallelResNet50 net(small());
  const StepTimes times = measure(net, random_batch({.images = 4, .size = 64, .classes = 5}));
  for (const HalfTimes* half : {&times.first, &times.second}) {
    EXPECT_GT(half->forward(4), 0);
    EXPECT_GT(half->backward(4), 0);
    EXPECT_GT(half->step, 0);
  }
}

// ---- plot ----

// Returns what Python's XML parser finds in an SVG file: texts, and the numbers of some elements.
std::string read_by_python(const std::string& file) {
  const std::string program =
      "import sys, xml.etree.ElementTree as E\n"
      "svg = '{http://www.w3.org/2000/svg}'\n"
      "root = E.parse(sys.argv[1]).getroot()\n"
      "assert root.tag == svg + 'svg'\n"
      "groups = [g.get('class') for g in root.iter(svg + 'g')]\n"
      "print('axes', groups.count('axes'), 'error bars', groups.count('error-bar'),\n"
      "      'curves', len(list(root.iter(svg + 'polyline'))), 'bars', len(list(root.iter(svg + 'rect'))) - "
      "1)\n"
      "for t in root.iter(svg + 'text'): print('text', t.text)\n";
  FILE* python = popen(("python3 -c \"" + program + "\" '" + file + "' 2>&1").c_str(), "r");
  std::string output;
  for (char part[256]; python && std::fgets(part, sizeof part, python);) output += part;
  EXPECT_EQ(python ? pclose(python) : -1, 0) << output;
  return output;
}

TEST(Plot, IsXmlWithAxesLabelsAndErrorBars) {
  const Scratch scratch;
  const std::string file = (scratch.dir() / "plot.svg").string();
  const Chart bars{.labels = {"a < b & c", "ways", "seconds"}, .bars = {{"one", 2, 0.5}, {"two", 1, 0}}};
  const Chart curves{
      .labels = {"by size", "images", "seconds"},
      .curves = {{"measured", {{1, 2, 0.1}, {5, 1.5, 0.2}, {60, 3, 0.1}}}, {"predicted", {{1, 2}, {60, 3}}}}};
  io::write_file(file, to_svg({bars, curves}));
  const std::string found = read_by_python(file);
  EXPECT_THAT(found, HasSubstr("axes 2 error bars 4 curves 2 bars 2\n"));
  for (const char* text : {"a < b & c", "ways", "seconds", "one", "two", "by size", "images", "measured",
                           "predicted", "0.5", "60"})
    EXPECT_THAT(found, HasSubstr(std::string("text ") + text + "\n"));
}

TEST(Plot, OfNothingOrOfWhatIsNoNumberIsAnError) {
  EXPECT_THROW(to_svg({{.labels = {"empty"}}}), ValueError);
  EXPECT_THROW(to_svg({{.labels = {"bad"}, .bars = {{"one", NAN, 0}}}}), ValueError);
  EXPECT_THROW(to_svg({{.labels = {"bad"}, .bars = {{"one", -1, 0}}}}), ValueError);
}

// ---- the program ----

TEST(ModelParallelProgram, ChecksTimesAndDraws) {
  const Scratch scratch;
  const Result r = run("model_parallel", scratch.dir(),
                       {"--batch", "4", "--size", "64", "--batches", "1", "--width", "8", "--repeats", "2",
                        "--splits", "1,2", "--plot", "times.svg", "--summary", "times.json"});
  EXPECT_EQ(r.status, 0) << r.output;
  for (const char* checked : {"ToyModel, weights after a training step: the same bits",
                              "ModelParallelResNet50, gradients: the same bits",
                              "PipelineParallelResNet50, gradients: the same bits"})
    EXPECT_THAT(r.output, HasSubstr(checked));
  const nlohmann::json json = summary(scratch.dir() / "times.json");
  const int chosen = json.at("chosen_split");
  const size_t splits = chosen == 1 || chosen == 2 ? 2 : 3;
  EXPECT_EQ(json.at("pipelined").size(), splits);
  for (const auto& timing : json.at("pipelined")) {
    EXPECT_EQ(timing.at("seconds").size(), 2u);
    EXPECT_GT(timing.at("predicted"), 0);
  }
  for (const char* way : {"one_device", "model_parallel", "data_parallel"})
    EXPECT_GT(json.at(way).at("mean"), 0);
  const std::string found = read_by_python((scratch.dir() / "times.svg").string());
  EXPECT_THAT(found, HasSubstr("axes 2 error bars " + std::to_string(4 + splits) + " curves 2 bars 4\n"));
  for (const char* text :
       {"one device", "model parallel", "data parallel", "measured", "predicted", "images in a split"})
    EXPECT_THAT(found, HasSubstr(std::string("text ") + text + "\n"));
}

TEST(ModelParallelProgram, MistakesGiveAStatusBeforeWorkBegins) {
  const Scratch scratch;
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"--batch", "4", "--splits", "1,5"},
                                             {"--splits", "0"},
                                             {"--splits", "many"},
                                             {"--size", "32"},
                                             {"--repeats", "1"},
                                             {"--width", "0"},
                                             {"--batches", "0"},
                                             {"--plot", "nowhere/times.svg"},
                                             {"--summary", "nowhere/times.json"},
                                             {"--flavor", "vanilla"}}) {
    const Result r = run("model_parallel", scratch.dir(), args);
    EXPECT_EQ(r.status, 2) << args[0] << ": " << r.output;
  }
}

}  // namespace
}  // namespace gradus::examples
