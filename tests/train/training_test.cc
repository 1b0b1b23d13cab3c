// training::Training with CountBy::kEpochs, on one rank: ends, tests, logs, sums of any names, resuming
// within an epoch; evaluate; CommandLine. The tests of examples/ run programs, also on several ranks.
#include "gradus/train/training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gradus/gradus.h"
#include "gradus/tests/io/testing.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;

struct Net : nn::Layer {
  nn::Linear fc{this, "fc", {.in = 784, .out = 10}};
  Tensor forward(const Tensor& x) override { return fc(flatten(x, 1)); }
};

// A training of two networks and two optimizers, as of a GAN, that records samples and epochs; weights do not
// change.
struct Pair {
  explicit Pair(training::RunOptions options, training::TrainingOptions more = {})
      : run(std::move(options)), training("pair", run, loader, parts(), by_epochs(std::move(more))) {}

  training::TrainingOptions by_epochs(training::TrainingOptions o) {
    o.count_by = training::CountBy::kEpochs;
    o.on_epoch = [this] { steps_at_epoch_ends.push_back(training.steps()); };
    return o;
  }
  std::vector<TrainingState::Part> parts() {
    return {{"gen", gen}, {"disc", disc}, {"opt_g", opt_g}, {"opt_d", opt_d}};
  }

  void train_on() {
    for (training::Step& s : training) {
      if (stop_after && training.steps() == stop_after) return;
      const data::Batch& b = s.batch();
      indices.insert(indices.end(), b.indices.begin(), b.indices.end());
      s.log({.seen = b.size(), .of = {{"loss_g", 2.0 * double(b.size())}, {"loss_d", 0.5}}});
    }
  }

  Net gen, disc;
  optim::Adam opt_g{gen.parameters()}, opt_d{disc.parameters(), {.lr = 0.5}};
  // The order of samples is the same in every Pair: the default seed.
  data::DataLoader loader{data::GeneratedDigits({.size = 50}), {.batch_size = 10, .shuffle = true}};
  training::RunOptions run;
  training::Training training;
  std::vector<int64_t> indices;  // of the samples used, in order
  std::vector<int64_t> steps_at_epoch_ends;
  int64_t stop_after = 0;  // leave the loop after so many steps; 0: never
};

TEST(Training, LinesOfAnEpochNameTheUnit) {
  const training::Sums sums{.seen = 2, .of = {{"loss", 3.0}}};
  const training::Meter time;
  const training::StepReport report{.step = 1,
                                    .images = 2,
                                    .skipped = 0,
                                    .epoch = 1,
                                    .epochs = 1,
                                    .batch = 1,
                                    .batches = 2,
                                    .samples = 2,
                                    .total = 4,
                                    .recent = sums,
                                    .all = sums,
                                    .step_time = time,
                                    .data_time = time,
                                    .images_per_second = 30,
                                    .unit = "sequences"};
  EXPECT_THAT(training::epoch_line(report), testing::HasSubstr("30 sequences/s"));
}

TEST(Training, EndsAfterEpochs) {
  Pair p({.epochs = 2});
  p.train_on();
  EXPECT_EQ(p.training.steps(), 10);
  EXPECT_EQ(p.training.epoch(), 2);
  EXPECT_EQ(p.indices.size(), 100u);
  EXPECT_THAT(p.steps_at_epoch_ends, testing::ElementsAre(5, 10));
}

TEST(Training, EndsAfterIterationsInTheMiddleOfAnEpoch) {
  Pair p({.iterations = 7});
  p.train_on();
  EXPECT_EQ(p.training.steps(), 7);
  EXPECT_EQ(p.indices.size(), 70u);
  EXPECT_THAT(p.steps_at_epoch_ends, testing::ElementsAre(5, 7));
  p.train_on();
  EXPECT_EQ(p.training.steps(), 7);
}

TEST(Training, GoesOnInTheMiddleOfAnEpochWithTheSamplesThatAreLeft) {
  const Scratch folder;
  Pair straight({.epochs = 2});
  straight.train_on();
  Pair first({.epochs = 2, .checkpoint_dir = folder / "c", .checkpoint_interval = 3});
  first.stop_after = 3;
  first.train_on();
  Pair second({.epochs = 2, .resume = folder / "c/pair.ckpt"});
  second.train_on();
  std::vector<int64_t> both = first.indices;
  both.insert(both.end(), second.indices.begin(), second.indices.end());
  EXPECT_EQ(both, straight.indices);
  EXPECT_EQ(second.training.steps(), 10);
}

TEST(Training, ThatCountsEpochsResumesOnlyIfAsked) {
  const Scratch folder;
  for (int run = 0; run < 2; ++run) {
    Pair p({.epochs = 1, .checkpoint_dir = folder / "c"});
    p.train_on();
    EXPECT_EQ(p.indices.size(), 50u) << run;
  }
}

TEST(Training, MakesOnlyATest) {
  int tests = 0;
  Pair p({.epochs = 2}, {.test = [&] { return training::Sums{.seen = ++tests}; }});
  p.training.test_only();
  EXPECT_EQ(tests, 1);
  EXPECT_EQ(p.training.steps(), 0);
  Pair without_test({.epochs = 2});
  EXPECT_THROW(without_test.training.test_only(), StateError);
}

TEST(Training, MakesATestAfterEachEpochAndAtTheEnd) {
  for (const int64_t iterations : {0, 7}) {
    int tests = 0;
    Pair p({.epochs = 2, .iterations = iterations},
           {.test =
                [&] {
                  ++tests;
                  return training::Sums{.seen = 4, .of = {{"fid", 12.0 * tests}}};
                },
            .best_by = "fid",
            .lower_is_better = true});
    p.train_on();
    EXPECT_EQ(tests, 2) << iterations;
    EXPECT_EQ(p.training.last().test.mean("fid"), 6);
    EXPECT_EQ(p.training.best().test.mean("fid"), 3);
  }
}

TEST(Training, MakesNoTestsIfAskedButTestOnlyDoes) {
  int tests = 0;
  const auto test = [&] { return ++tests, training::Sums{.seen = 4, .of = {{"accuracy", 1}}}; };
  Pair p({.epochs = 2, .no_validate = true}, {.test = test});
  p.train_on();
  EXPECT_EQ(tests, 0);
  EXPECT_TRUE(p.training.history().empty());
  p.training.test_only();
  EXPECT_EQ(tests, 1);
}

TEST(Training, EvaluationRestoresTheModeOfEachModuleAlsoWhenItIsInterrupted) {
  struct Partly : Net {
    nn::Dropout frozen{this, "frozen", {}};
    Tensor forward(const Tensor& x) override {
      EXPECT_FALSE(is_training());
      if (ask_to_stop) std::raise(SIGINT);
      if (fail) throw ValueError("net", "cannot go on");
      return Net::forward(frozen(x));
    }
    bool ask_to_stop = false, fail = false;
  } net;
  net.frozen.eval();
  Pair p({});  // its Training takes SIGINT as a request to stop
  const auto expect_restored = [&] {
    EXPECT_TRUE(net.is_training());
    EXPECT_TRUE(net.fc.is_training());
    EXPECT_FALSE(net.frozen.is_training());
  };
  EXPECT_EQ(training::evaluate(p.training, net, p.loader).seen, 50);
  expect_restored();
  net.fail = true;
  EXPECT_THROW(training::evaluate(p.training, net, p.loader), ValueError);
  expect_restored();
  net.fail = false;
  net.ask_to_stop = true;
  EXPECT_THROW(training::evaluate(p.training, net, p.loader), training::Interrupted);
  expect_restored();
}

TEST(Training, LogsEveryMeanAndEveryLearningRate) {
  const Scratch folder;
  Pair p({.epochs = 1, .log_interval = 1, .summary = folder / "s.json", .tensorboard = folder / "t"},
         {.test =
              [] {
                return training::Sums{.seen = 2, .of = {{"psnr", 40}}};
              },
          .best_by = "psnr"});
  p.train_on();
  training::write_summary(p.training, {{"skipped", 3}, {"kind", "pair"}, {"gan/fade", 0.5}, {"gan/size", 8}});
  nlohmann::json summary;
  std::ifstream(folder / "s.json") >> summary;
  EXPECT_EQ(summary.at("test_psnr"), 20);
  EXPECT_EQ(summary.at("steps"), 5);
  EXPECT_EQ(summary.at("skipped"), 3);
  EXPECT_EQ(summary.at("kind"), "pair");
  EXPECT_EQ(summary.at("gan").at("fade"), 0.5);
  EXPECT_EQ(summary.at("gan").at("size"), 8);
  EXPECT_EQ(summary.at("history")[0].at("train_loss_g"), 2);
  EXPECT_EQ(summary.at("history")[0].at("train_loss_d"), 0.05);
  std::string events;
  for (const auto& file : fs::directory_iterator(folder / "t")) {
    std::ifstream in(file.path(), std::ios::binary);
    events.assign(std::istreambuf_iterator<char>(in), {});
  }
  for (const char* name :
       {"train/loss_g", "train/loss_d", "test/psnr", "learning_rate/opt_g", "learning_rate/opt_d"})
    EXPECT_THAT(events, testing::HasSubstr(name));
}

TEST(Training, SumsOfOtherNamesAreAddedBehind) {
  training::Sums a{.seen = 2, .of = {{"loss", 3}}};
  a += {.seen = 2, .of = {{"accuracy", 1}, {"loss", 5}}};
  EXPECT_EQ(a, (training::Sums{.seen = 4, .of = {{"loss", 8}, {"accuracy", 1}}}));
  EXPECT_EQ(a.mean("loss"), 2);
  EXPECT_EQ(a.mean("other"), 0);
  EXPECT_EQ(training::Sums{}.mean("loss"), 0);
}

TEST(CommandLine, SetsVariablesAndRemembersAllValues) {
  struct Args : training::RunOptions {
    double lr = 1;
    std::string arch = "a";
    bool fast = false;
  } args;
  training::CommandLine line("program", "About", args);
  line.add("--lr", args.lr, "rate", {.above = 0});
  line.add("-a,--arch", args.arch, "network", {.one_of = {"a", "b"}});
  line.add("--fast", args.fast, "no rest");
  std::string words[] = {"program", "--lr", "0.5", "-a", "b", "--fast", "--epochs", "3"};
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  line.parse_or_exit(int(argv.size()), argv.data());
  EXPECT_EQ(args.lr, 0.5);
  EXPECT_EQ(args.arch, "b");
  EXPECT_TRUE(args.fast);
  EXPECT_EQ(args.epochs, 3);
  EXPECT_THAT(args.values, testing::Contains(testing::Pair("epochs", training::OptionValue(int64_t(3)))));
  EXPECT_THAT(args.values, testing::Contains(testing::Pair("workers", training::OptionValue(int64_t(0)))));
}

struct FileArgs : training::RunOptions {
  FileArgs() { device = kCPU; }
  double lr = 1;
  std::string name;
  int64_t layers = 1;
};

// Parses `more` and a file with this text.
FileArgs parse_file(const std::string& text, std::vector<std::string> more = {}) {
  const fs::path file = fs::path(testing::TempDir()) / "run.toml";
  std::ofstream(file, std::ios::binary) << text;
  FileArgs args;
  training::CommandLine line("program", "About", args);
  line.add("--lr", args.lr, "rate", {.above = 0});
  line.add("--name", args.name, "text");
  line.add("--layers,--model.layers", args.layers, "count", {.at_least = 1});
  more.insert(more.begin(), {"program", "--config", file.string()});
  std::vector<char*> argv;
  for (std::string& w : more) argv.push_back(w.data());
  line.parse_or_exit(int(argv.size()), argv.data());
  return args;
}

TEST(CommandLine, ReadsAFileOverWhichTheCommandLineHasPrecedence) {
  const FileArgs a = parse_file(
      "# comment\n; comment\n\n lr = 0.5  # rate\nname = \"a # b\"\nimages=60k\ndry-run = true\nepochs = "
      "7\r\n"
      "device = cuda:1\n[model]\nlayers = 3\n",
      {"--epochs", "2"});
  EXPECT_EQ(a.lr, 0.5);
  EXPECT_EQ(a.name, "a # b");
  EXPECT_EQ(a.images, 60'000);
  EXPECT_TRUE(a.dry_run);
  EXPECT_EQ(a.epochs, 2);
  EXPECT_EQ(*a.device, Device("cuda:1"));
  EXPECT_EQ(a.layers, 3);
  EXPECT_THAT(a.values, testing::Contains(testing::Pair("lr", training::OptionValue(0.5))));
  EXPECT_EQ(parse_file("name = 'a\\b'").name, "a\\b");
}

TEST(CommandLine, EndsTheProgramAfterAMistakeInTheFile) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const testing::ExitedWithCode failed(2);
  for (const auto& [text, error] : std::vector<std::pair<std::string, std::string>>{
           {"lr = 0.5\nno_such = 1\n", "run.toml:2: there is no option no_such"},
           {"help = true", "run.toml:1: there is no option help"},
           {"config = x", "run.toml:1: there is no option config"},
           {"[other]\nlr = 1", "run.toml:2: there is no option other.lr"},
           {"\n\nlr\n", "run.toml:3: expected NAME = VALUE, got lr"},
           {"= 5", "run.toml:1: there is no option"},
           {"lr = ", "run.toml:1: expected a number, true, false or text"},
           {"lr = [1, 2]", "run.toml:1: expected a number, true, false or text"},
           {"[model", "run.toml:1: expected .SECTION., got .model"},
           {"lr = 1\nlr = 2", "run.toml:2: lr is set twice"},
           {"name = \"a", "run.toml:1: expected a quote at the end"},
           {"name = \"", "run.toml:1: expected a quote at the end"},
           {"name = 'a' b", "run.toml:1: expected one text in quotes"},
           {"lr = -1", "lr"},
           {"dry-run = perhaps", "perhaps"},
           {std::string(2 << 20, '\n'), "run.toml: expected a readable file of at most 1 MiB"}})
    EXPECT_EXIT(parse_file(text), failed, error) << text.substr(0, 40);
  const auto parse_missing_file = [] {
    FileArgs args;
    training::CommandLine line("program", "About", args);
    std::string words[] = {"program", "--config=/nowhere.toml"};
    char* argv[] = {words[0].data(), words[1].data()};
    line.parse_or_exit(2, argv);
  };
  EXPECT_EXIT(parse_missing_file(), failed, "/nowhere.toml");
}

TEST(CommandLine, TakesAccelAsDeviceCuda) {
  EXPECT_TRUE(parse_file("", {"--accel"}).device_by_rank);
  EXPECT_EQ(parse_file("", {"--cuda"}).device->type, DeviceType::kCUDA);
}

TEST(CommandLine, ReadsThousandsAndMillions) {
  for (const auto& [text, count] :
       {std::pair("600k", 600'000), {"1.5M", 1'500'000}, {"0.5k", 500}, {"0", 0}, {"7", 7}})
    EXPECT_EQ(training::parse_count(text), count) << text;
  // The last two are above 2^40.
  for (const char* text :
       {"", "k", "-1", "-1k", "1.5", "1.2345k", "1G", "1kk", "1k ", "nan", "inf", "1e300k", "2000000M"})
    EXPECT_FALSE(training::parse_count(text)) << text;
  training::RunOptions options;
  training::CommandLine line("program", "About", options);
  std::string words[] = {"program", "--images", "60k"};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data()};
  line.parse_or_exit(3, argv);
  EXPECT_EQ(options.images, 60'000);
}

// Launchers pass it before the program's own arguments.
TEST(CommandLine, TakesALocalRankAndIgnoresIt) {
  for (const std::string name : {"--local-rank", "--local_rank"}) {
    training::RunOptions options;
    training::CommandLine line("program", "About", options);
    std::string words[] = {"program", name + "=3", "--epochs", "2"};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data()};
    line.parse_or_exit(4, argv);
    EXPECT_EQ(options.epochs, 2);
    for (const auto& [key, value] : options.values)
      EXPECT_THAT(key, testing::Not(testing::HasSubstr("local")));
  }
}

TEST(CommandLine, EndsTheProgramAfterAMistake) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // re-executes the binary, because this process has threads
  const auto parse = [](std::string option, std::string value) {
    struct Args : training::RunOptions {
      double lr = 1;
      int64_t n = 5;
    } args;
    args.device = kCPU, args.devices = {kCPU};
    training::CommandLine line("program", "About", args);
    line.add("--lr", args.lr, "rate", {.above = 0});
    line.add("--n", args.n, "count", {.at_least = 1});
    std::string name = "program";
    char* argv[] = {name.data(), option.data(), value.data()};
    line.parse_or_exit(3, argv);
  };
  const testing::ExitedWithCode failed(2);
  EXPECT_EXIT(parse("--lr", "0"), failed, "--lr");
  EXPECT_EXIT(parse("--lr", "nan"), failed, "--lr");
  EXPECT_EXIT(parse("--n", "0"), failed, "--n");
  EXPECT_EXIT(parse("--n", "99999999999999999999"), failed, "--n");
  EXPECT_EXIT(parse("--n", "many"), failed, "--n");
  EXPECT_EXIT(parse("--epochs", "-1"), failed, "--epochs");
  EXPECT_EXIT(parse("--no-such", "1"), failed, "--no-such");
  EXPECT_EXIT(parse("--device", "gpu"), failed, "--device");
  EXPECT_EXIT(parse("--device", "meta"), failed, "--device");
  EXPECT_EXIT(parse("--devices", "cpu,cpu:0"), failed, "--devices: .*got cpu twice");
  EXPECT_EXIT(parse("--devices=cpu", "--device=cpu:1"), failed, "--device excludes --devices");
}

TEST(CommandLine, ReadsTheDeviceOfProgramsThatHaveOne) {
  training::RunOptions options;
  options.device = kCPU;
  training::CommandLine line("program", "About", options);
  std::string words[] = {"program",         "--device", "cuda:1",
                         "--deterministic", "--tf32",   "--cudnn-benchmark=false"};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(),
                  words[3].data(), words[4].data(), words[5].data()};
  line.parse_or_exit(3, argv);
  EXPECT_EQ(*options.device, Device("cuda:1"));
  EXPECT_FALSE(options.device_by_rank);
  EXPECT_FALSE(options.deterministic);
  EXPECT_FALSE(options.tf32);
  EXPECT_TRUE(options.cudnn_benchmark);
  line.parse_or_exit(6, argv);
  EXPECT_TRUE(options.deterministic);
  EXPECT_TRUE(options.tf32);
  EXPECT_FALSE(options.cudnn_benchmark);
}

TEST(Run, PutsRankZeroOnCudaZeroAlsoWithoutAGpu) {
  EXPECT_EQ(dist::get_device(), cuda_device_count() > 0 ? Device("cuda:0") : kCPU);
  training::RunOptions options;
  options.device = kCPU;
  training::CommandLine line("program", "About", options);
  std::string words[] = {"program", "--device", "cuda", "--cudnn-benchmark=false"};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data()};
  line.parse_or_exit(4, argv);
  EXPECT_TRUE(options.device_by_rank);
  EXPECT_EQ(training::run("program", options,
                          [&] {
                            EXPECT_EQ(*options.device, Device("cuda:0"));
                            EXPECT_EQ(options.devices, std::vector<Device>{"cuda:0"});
                          }),
            0);
}

TEST(CommandLine, ReadsTheDevicesOfProgramsThatHaveSeveral) {
  const auto parse = [](std::vector<std::string> words) {
    training::RunOptions options;
    options.device = kCPU, options.devices = {kCPU};
    training::CommandLine line("program", "About", options);
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    line.parse_or_exit(int(argv.size()), argv.data());
    return options;
  };
  const training::RunOptions two = parse({"program", "--devices", "cuda:0,cuda:1"});
  EXPECT_EQ(two.devices, (std::vector<Device>{"cuda:0", "cuda:1"}));
  EXPECT_EQ(two.device, Device("cuda:0"));
  EXPECT_EQ(training::devices_text(two), "cuda:0,cuda:1");
  EXPECT_THAT(two.values, testing::Contains(
                              testing::Pair("devices", training::OptionValue(std::string("cuda:0,cuda:1")))));
  const training::RunOptions one = parse({"program", "--device", "cuda:1"});
  EXPECT_EQ(one.devices, std::vector<Device>{"cuda:1"});
  EXPECT_EQ(parse({"program"}).devices, std::vector<Device>{kCPU});
  EXPECT_EQ(training::devices_text({}), "cpu");
  for (const char* text : {"", ",", "cuda:0,", ",cuda:0", "cuda:0 cuda:1", "cuda:0,,cuda:1", "cuda:64",
                           "cpu:-1", "meta", "cpu,meta", "cuda,cuda:0", "cpu:1,cpu:2,cpu:1"})
    EXPECT_THROW(training::parse_devices(text), ValueError) << text;
}

}  // namespace
}  // namespace gradus
