// Metrics of examples/gan as a process: of checkpoints, of files of samples and during trainings; their
// classifier; hostile files; full disks. Exit code 1: error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gradus/data/files/sha256.h"
#include "gradus/data/sets/digits.h"
#include "gradus/io/checkpoint.h"
#include "gradus/io/safetensors.h"
#include "gradus/io/save_image.h"
#include "gradus/io/weights.h"
#include "gradus/models/inception.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tests/examples/program_run.h"

namespace gradus::examples {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

using Arguments = std::vector<std::string>;

// swd takes seconds for 130 images. OfAFolderOfImagesNeedNoClassifier computes it for 22.
const char* const kAllButSwd = "frechet,scores,ms_ssim,kid,precision_recall";

// Returns a folder with files in MNIST's format: 2,000 generated training images and 400 test images. Without
// it, each run would generate 70,000.
const fs::path& digits() {
  static const Scratch scratch;
  static const bool written = [] {
    const auto big_endian = [](std::ofstream& out, std::initializer_list<int64_t> numbers) {
      for (const int64_t n : numbers)
        for (const int shift : {24, 16, 8, 0}) out.put(char(n >> shift));
    };
    for (const bool train : {true, false}) {
      const data::GeneratedDigits set({.train = train, .size = train ? 2000 : 400});
      const auto images = set.images().to_vector<uint8_t>(), labels = set.labels().to_vector<uint8_t>();
      const std::string name = train ? "train" : "t10k";
      std::ofstream out(scratch.dir() / (name + "-images-idx3-ubyte"), std::ios::binary);
      big_endian(out, {0x803, set.size(), 28, 28});
      out.write(reinterpret_cast<const char*>(images.data()), std::streamsize(images.size()));
      std::ofstream of_labels(scratch.dir() / (name + "-labels-idx1-ubyte"), std::ios::binary);
      big_endian(of_labels, {0x801, set.size()});
      of_labels.write(reinterpret_cast<const char*>(labels.data()), std::streamsize(labels.size()));
    }
    return true;
  }();
  EXPECT_TRUE(written);
  return scratch.dir();
}

// Runs the program in `dir`, on digits() unless the arguments name other images.
Result gan(const fs::path& dir, Arguments args, int signal = 0, const std::string& text = "") {
  if (args.front() != "sample" && std::ranges::find(args, "--data") == args.end())
    args = with(args, {"--data", digits().string()});
  return examples::run("gan", dir, args, signal, text);
}

// A small DCGAN on generated digits: 160 images in ten steps.
Arguments small(const Arguments& more = {}) {
  Arguments args = {"--size",    "32", "--width",        "2", "--batch",   "16",    "--images", "160",
                    "--threads", "1",  "--log-interval", "1", "--summary", "s.json"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

const Arguments kMetrics = {"--metrics", "frechet,kid", "--metrics-every", "64", "--metrics-samples", "130"};

Arguments small_with_metrics(const Arguments& more = {}) {
  Arguments args = small(kMetrics);
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// Trains the classifier and a small GAN once for all tests.
class GanMetrics : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = new Scratch;
    const Result r = gan(dir(), {"classifier", "--images", "1280", "--threads", "2"});
    ASSERT_EQ(r.status, 0) << r.output;
    ASSERT_TRUE(fs::exists(classifier())) << r.output;
    trained_ =
        gan(dir(),
            small_with_metrics({"--checkpoint-dir", "c", "--export", "w.safetensors", "--tensorboard", "t"}));
    ASSERT_EQ(trained_.status, 0) << trained_.output;
  }
  static void TearDownTestSuite() { delete scratch_; }
  static const fs::path& dir() { return scratch_->dir(); }
  static fs::path classifier() { return dir() / "gradus/gan/classifier_MNIST.safetensors"; }

  static json evaluate(const Arguments& more) {
    Arguments args = {"evaluate", "--summary", "e.json"};
    args.insert(args.end(), more.begin(), more.end());
    const Result r = gan(dir(), args);
    EXPECT_EQ(r.status, 0) << r.output;
    output_ = r.output;
    return r.status == 0 ? summary(dir() / "e.json") : json();
  }
  static void expect_error(const Arguments& args, const std::string& text) {
    const Result r = gan(dir(), args);
    EXPECT_EQ(r.status, 1) << text << '\n' << r.output;
    EXPECT_THAT(r.output, HasSubstr(text));
    // One error, without a stack trace.
    EXPECT_LE(count_of("\n", r.output), 4) << r.output;
    EXPECT_THAT(r.output, Not(HasSubstr("step 1 ")));
  }

  static inline Scratch* scratch_ = nullptr;
  static inline Result trained_;
  static inline std::string output_;
};

TEST_F(GanMetrics, OfATrainingAreThoseOfItsCheckpoint) {
  const json of_training = summary(dir() / "s.json");
  const json e = evaluate({"--checkpoint", "c/gan.ckpt", "--number", "130", "--metrics", kAllButSwd});
  EXPECT_EQ(e.at("mode"), "averaged weights");
  EXPECT_EQ(e.at("n"), 130);
  for (const char* name : {"frechet", "score", "score_std", "confident", "classes", "total_variation",
                           "ms_ssim", "kid", "precision", "recall"}) {
    const json& figure = e.at("metrics").at(name);
    EXPECT_TRUE(std::isfinite(figure.at("value").get<double>())) << name;
    EXPECT_TRUE(std::isfinite(figure.at("floor").get<double>())) << name;
    EXPECT_EQ(figure.at("n"), 130) << name;
    EXPECT_EQ(figure.contains("features_sha256"), std::string(name) != "ms_ssim") << name;
    EXPECT_THAT(output_, HasSubstr(std::string(name) + " "));
  }
  EXPECT_THAT(output_, HasSubstr("(n 130, averaged weights, floor "));
  EXPECT_THAT(output_,
              HasSubstr(", features " +
                        e["metrics"]["kid"]["features_sha256"].get<std::string>().substr(0, 16) + ")"));
  ASSERT_EQ(of_training.at("metrics").size(), 2u);
  for (const char* name : {"frechet", "kid"}) {
    EXPECT_EQ(of_training["metrics"].at(name), e["metrics"][name]) << name;
    EXPECT_EQ(of_training["metrics"][name]["value"], of_training.at(std::string("test_") + name));
  }
  const json plain = evaluate({"--checkpoint", "c/gan.ckpt", "--number", "130", "--plain"});
  EXPECT_EQ(plain.at("mode"), "plain weights");
  EXPECT_NE(plain["metrics"]["frechet"]["value"], e["metrics"]["frechet"]["value"]);
  EXPECT_EQ(plain["metrics"]["frechet"]["floor"], e["metrics"]["frechet"]["floor"]);
  EXPECT_EQ(plain["metrics"].size(), 6u);  // frechet and scores by default
}

TEST_F(GanMetrics, AreLoggedAndTheBestCheckpointIsKept) {
  EXPECT_EQ(count_of("metrics  frechet ", trained_.output), 3);  // after 64, 128 and 160 images
  EXPECT_THAT(trained_.output, HasSubstr("  kid "));
  const json s = summary(dir() / "s.json");
  ASSERT_EQ(s.at("history").size(), 3u);
  size_t best = 0;
  for (size_t i = 1; i < 3; ++i)
    if (s["history"][i].at("test_frechet") < s["history"][best].at("test_frechet")) best = i;
  EXPECT_EQ(s.at("best_test_frechet"), s["history"][best]["test_frechet"]);
  const auto kept = io::load_checkpoint(dir() / "c/gan.best.ckpt").checkpoint;
  EXPECT_EQ(kept.get<int64_t>("images"), s["history"][best].at("images"));
  const json e = evaluate({"--checkpoint", "c/gan.best.ckpt", "--number", "130"});
  EXPECT_EQ(e["metrics"]["frechet"]["value"], s["best_test_frechet"]);
  std::string events;
  for (const auto& file : fs::directory_iterator(dir() / "t")) events += bytes_of(file.path());
  EXPECT_THAT(events, HasSubstr("test/frechet"));
}

TEST_F(GanMetrics, ChangeNothingInTheTraining) {
  Scratch s;
  ASSERT_EQ(gan(s.dir(), small({"--export", "w.safetensors"})).status, 0);
  EXPECT_EQ(bytes_of(s.dir() / "w.safetensors"), bytes_of(dir() / "w.safetensors"));
}

TEST_F(GanMetrics, OfATrainingThatIsKilledAreThoseOfOneThatIsNot) {
  const json straight = summary(dir() / "s.json");
  Scratch s;
  const Arguments args = small_with_metrics({"--checkpoint-dir", "c", "--classifier", classifier().string()});
  const Result first = gan(s.dir(), args, SIGKILL, "step 6 ");
  EXPECT_NE(first.status, 0);
  const Result second = gan(s.dir(), args);
  ASSERT_EQ(second.status, 0) << second.output;
  EXPECT_THAT(second.output, HasSubstr("Resuming from c/gan.ckpt"));
  const json j = summary(s.dir() / "s.json");
  EXPECT_EQ(j.at("metrics"), straight.at("metrics"));
  EXPECT_EQ(j.at("best_test_frechet"), straight.at("best_test_frechet"));
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(j["history"][i]["test_kid"], straight["history"][i]["test_kid"]) << i;
  // Once more, when all has been done.
  ASSERT_EQ(gan(s.dir(), args).status, 0);
  EXPECT_EQ(summary(s.dir() / "s.json").at("metrics"), straight.at("metrics"));
}

// PGGAN has no batch norm, and at a learning rate of 1e-30 its weights do not change. It still grows.
TEST_F(GanMetrics, AreTheSameOnAnyNumberOfRanks) {
  json one;
  for (const std::string ranks : {"1", "3"}) {
    Arguments args = {"--model", "pggan", "--size", "32", "--width", "2", "--batch", "12", "--threads", "1"};
    args = with(args, {"--images", "96", "--images-per-scale", "4:24,8:24,16:24,32:24", "--lr", "1e-30"});
    args = with(args, {"--nproc", ranks, "--summary", "r.json", "--classifier", classifier().string()});
    args = with(args, {"--metrics", "ms_ssim,frechet,precision_recall", "--metrics-samples", "130"});
    const Result r = gan(dir(), with(args, {"--metrics-every", "30"}));
    ASSERT_EQ(r.status, 0) << r.output;
    EXPECT_EQ(count_of("metrics  ms_ssim ", r.output), 3) << r.output;  // after 36, 60 and 96 images
    const json metrics = summary(dir() / "r.json").at("metrics");
    if (one.is_null()) one = metrics;
    EXPECT_EQ(metrics, one) << ranks;
  }
}

TEST_F(GanMetrics, WithoutAClassifierSayHowToTrainIt) {
  Scratch s;
  const Result r = gan(s.dir(), small_with_metrics());
  EXPECT_EQ(r.status, 1);
  EXPECT_THAT(r.output, HasSubstr("no such file. Train it once: ./run gan classifier"));
  EXPECT_THAT(r.output, Not(HasSubstr("step 1 ")));
}

TEST_F(GanMetrics, OfAFolderOfImagesNeedNoClassifier) {
  Scratch s;
  manual_seed(1);
  fs::create_directories(s.dir() / "images");
  for (int i = 0; i < 44; ++i)
    io::save_image(s.dir() / "images" / (std::to_string(i) + ".png"), rand({3, 20 + i % 5, 22}));
  const Result r = gan(s.dir(), {"--data", "images", "--size", "32", "--width", "2", "--batch", "16",
                                 "--images", "48", "--metrics", "swd,ms_ssim", "--metrics-samples", "30",
                                 "--summary", "s.json", "--checkpoint-dir", "c"});
  ASSERT_EQ(r.status, 0) << r.output;
  const json metrics = summary(s.dir() / "s.json").at("metrics");
  EXPECT_EQ(metrics.at("swd").at("n"), 22);  // half of the folder is the reference
  EXPECT_EQ(metrics.at("ms_ssim").at("n"), 22);
  EXPECT_LT(metrics["swd"]["floor"], metrics["swd"]["value"]);
  EXPECT_FALSE(metrics["swd"].contains("features_sha256"));
  for (const char* level : {"swd_32", "swd_16"}) EXPECT_TRUE(metrics.contains(level)) << level;
  EXPECT_TRUE(fs::exists(s.dir() / "c/gan.best.ckpt"));
  const Result e = gan(s.dir(), {"evaluate", "--data", "images", "--checkpoint", "c/gan.ckpt", "--number",
                                 "30", "--metrics", "swd,ms_ssim", "--summary", "e.json"});
  ASSERT_EQ(e.status, 0) << e.output;
  const json evaluated = summary(s.dir() / "e.json").at("metrics");
  EXPECT_NEAR(evaluated["swd"]["floor"].get<double>(), metrics["swd"]["floor"].get<double>(), 1e-3);
  const auto expect_error = [&](const Arguments& args, const std::string& text) {
    const Result bad = gan(s.dir(), args);
    EXPECT_EQ(bad.status, 1) << text;
    EXPECT_THAT(bad.output, HasSubstr(text));
    EXPECT_THAT(bad.output, Not(HasSubstr("step 1 ")));
  };
  expect_error({"evaluate", "--data", "images", "--checkpoint", "c/gan.ckpt"},
               "--metrics swd,ms_ssim needs none");
  expect_error({"--data", "images", "--metrics", "kid"}, "--metrics swd,ms_ssim needs none");
  expect_error({"--data", "images", "--size", "8", "--width", "2", "--metrics", "swd"}, "at least 16 pixels");
  expect_error({"classifier", "--data", "images"}, "expected a folder with MNIST or CIFAR-10");
}

TEST_F(GanMetrics, TakeInceptionInTheClassifiersPlace) {
  Scratch s;
  manual_seed(1);
  io::save_weights(models::InceptionV3(models::fid_inception_v3()), s.dir() / "i.safetensors");
  const std::string weights = (s.dir() / "i.safetensors").string();
  const Arguments args = {"--checkpoint", "c/gan.ckpt", "--number",
                          "10",           "--metrics",  "kid,scores,precision_recall",
                          "--inception",  weights};
  const json tf = evaluate(args), clean = evaluate(with(args, {"--resize", "clean"}));
  for (const char* name : {"kid", "score", "score_std", "precision", "recall"}) {
    EXPECT_TRUE(std::isfinite(tf["metrics"].at(name)["value"].get<double>())) << name;
    EXPECT_EQ(tf["metrics"][name]["features_sha256"], data::sha256_of_file(weights)) << name;
  }
  EXPECT_EQ(tf["metrics"].size(), 5u);  // no comparison of classes
  EXPECT_NE(tf["metrics"]["kid"]["value"], clean["metrics"]["kid"]["value"]);
  Arguments evaluating = {"evaluate"};
  evaluating.insert(evaluating.end(), args.begin(), args.end());
  expect_error(with(evaluating, {"--classifier", classifier().string()}),
               "one of --inception and --classifier");
  expect_error(with(evaluating, {"--device", "tpu"}), "tpu");
  const Arguments ppl = {"evaluate", "--metrics", "ppl", "--number", "10"};
  expect_error(with(ppl, {"--checkpoint", "c/gan.ckpt"}), "ppl: expected --vgg and --lpips");
  expect_error(with({"evaluate", "--metrics", "ppl,kid,kid"}, {"--checkpoint", "c/gan.ckpt"}), "twice");
}

TEST_F(GanMetrics, OfNamesThatAreNoneAreErrors) {
  for (const char* list : {"fid", "frechet,", ",", "frechet,,kid", "kid,kid", "frechet kid"})
    expect_error({"evaluate", "--checkpoint", "c/gan.ckpt", "--metrics", list}, "--metrics");
  expect_error(small({"--metrics", "fid"}), "--metrics");
}

// ---- hostile files ----

// Writes a safetensors file with this header, and `claimed` as its length if not 0.
void write_file(const fs::path& file, const std::string& header, int64_t bytes, uint64_t claimed = 0) {
  std::ofstream out(file, std::ios::binary);
  uint64_t length = claimed ? claimed : header.size();
  out.write(reinterpret_cast<const char*>(&length), 8);
  out << header << std::string(size_t(bytes), 'a');
}
std::string header(const std::string& name, const std::string& dtype, const std::string& shape,
                   int64_t bytes) {
  return "{\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[0," +
         std::to_string(bytes) + "]}}";
}

TEST_F(GanMetrics, OfHostileFilesAreOneLine) {
  // A tensor, the bytes that the header claims and that follow, and a part of the error ("": no error).
  struct Hostile {
    const char *name, *dtype, *shape;
    int64_t claimed, given;
    const char* text;
  };
  const Hostile all[] = {{"other", "U8", "[10,1,32,32]", 10240, 10240, "expected a tensor \"images\""},
                         {"images", "F32", "[10,1,16,16]", 10240, 10240, "u8[N,C,H,W]"},
                         {"images", "U8", "[10,32,32]", 10240, 10240, "u8[N,C,H,W]"},
                         {"images", "U8", "[0,1,32,32]", 0, 0, "10 images or more"},
                         {"images", "U8", "[9,1,32,32]", 9216, 9216, "10 images or more"},
                         {"images", "U8", "[10,2,32,32]", 20480, 20480, "1 or 3 channels"},
                         {"images", "U8", "[10,1,32,16]", 5120, 5120, "square"},
                         {"images", "U8", "[10,1,0,0]", 0, 0, "4 to 1024 pixels"},
                         {"images", "U8", "[1099511627776,0,32,32]", 0, 0, "1 or 3 channels"},
                         {"images", "U8", "[4611686018427387904,1,32,32]", 10240, 10240, "h.safetensors"},
                         {"images", "U8", "[10,1,32,32]", 10240, 5000, "h.safetensors"},
                         {"images", "U8", "[10,1,28,28]", 7840, 7840, ""},  // fits
                         {"images", "U8", "[10,3,32,32]", 30720, 30720, "classifier"}};
  const fs::path file = dir() / "h.safetensors";
  const Arguments args = {"evaluate", "--samples", "h.safetensors", "--metrics", "frechet,scores"};
  for (const Hostile& h : all) {
    write_file(file, header(h.name, h.dtype, h.shape, h.claimed), h.given);
    if (*h.text)
      expect_error(args, h.text);
    else
      EXPECT_EQ(gan(dir(), args).status, 0);
  }
  write_file(file, "{}", 0, uint64_t{1} << 62);
  expect_error(args, "h.safetensors");
  fs::remove(file);
  expect_error(args, "h.safetensors");
}

TEST_F(GanMetrics, OfAnotherClassifierAreErrors) {
  const Arguments args = {"evaluate", "--checkpoint", "c/gan.ckpt",   "--number",
                          "20",       "--classifier", "x.safetensors"};
  expect_error(args, "./run gan classifier");
  fs::copy_file(dir() / "w.safetensors", dir() / "x.safetensors");  // weights of the GAN
  expect_error(args, "x.safetensors");
  const std::string whole = bytes_of(classifier());
  std::ofstream(dir() / "x.safetensors", std::ios::binary) << whole.substr(0, whole.size() / 2);
  expect_error(args, "x.safetensors");
  write_file(dir() / "x.safetensors", header("conv1.weight", "F32", "[4611686018427387904]", 8), 8);
  expect_error(args, "x.safetensors");
}

TEST_F(GanMetrics, OfHostileCheckpointsAreErrors) {
  const Arguments args = {"evaluate", "--checkpoint", "h.ckpt", "--number", "20"};
  const auto expect = [&](const std::function<void(io::Checkpoint&)>& change, const std::string& text) {
    io::Checkpoint c = io::load_checkpoint(dir() / "c/gan.ckpt").checkpoint;
    change(c);
    fs::remove(dir() / "h.ckpt"), fs::remove(dir() / "h.ckpt.previous");
    io::save_checkpoint(dir() / "h.ckpt", c);
    expect_error(args, text);
    expect_error({"sample", "--checkpoint", "h.ckpt"}, text);
  };
  expect([](io::Checkpoint& c) { c.put("program", "classifier"); }, "expected a checkpoint of ./run gan");
  for (const int64_t size : {0, -4, 3, 8, 64, 1 << 30})
    expect([&](io::Checkpoint& c) { c.put("scale_size", size); }, "the network has no scale of");
  for (const double fade : {-0.5, 0.5, 2.0, double(NAN)})
    expect([&](io::Checkpoint& c) { c.put("scale_fade", fade); }, "the network has no scale of");
  for (const char* size : {"1048576", "2048", "0", "-1", "x", ""})
    expect([&](io::Checkpoint& c) { c.put("fixed.size", size); }, "expected");
  expect([](io::Checkpoint& c) { c.put("fixed.size", "64"); }, "h.ckpt");
  expect([](io::Checkpoint& c) { c.put("fixed.size", "12"); }, "12");
  for (const char* width : {"4096", "1048576", "0"})
    expect([&](io::Checkpoint& c) { c.put("fixed.width", width); }, "");
  expect([](io::Checkpoint& c) { c.put("fixed.width", "4096"); }, "its options make a network with");
  expect([](io::Checkpoint& c) { c.put("fixed.latent", "65536"); }, "its options make a network with");
  expect([](io::Checkpoint& c) { c.put("fixed.classes", "65536"); }, "its options make a network with");
  expect([](io::Checkpoint& c) { c.put("fixed.model", "wgan_gp"); }, "h.ckpt");
  expect([](io::Checkpoint& c) { c.put("fixed.model", "biggan"); }, "expected a model of dcgan");
}

// ---- full disks ----

#ifdef __SANITIZE_THREAD__
constexpr bool kWritesFilesOfItsOwn = true;  // ThreadSanitizer's runtime, which the limit below would stop
#else
constexpr bool kWritesFilesOfItsOwn = false;
#endif

// During its lifetime, files of started programs cannot grow beyond `bytes`.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST(GanOnAFullDisk, GoesOnWithoutGrids) {
  if (kWritesFilesOfItsOwn) GTEST_SKIP();
  Scratch s;
  const FileSizeLimit limit(100);
  const Result r = gan(s.dir(), {"--size", "8", "--width", "2", "--batch", "16", "--images", "32"});
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output, HasSubstr("no grid was written"));
}

TEST(GanOnAFullDisk, KeepsThePreviousCheckpointWhole) {
  if (kWritesFilesOfItsOwn) GTEST_SKIP();
  Scratch s;
  const Arguments args = {"--size", "32", "--width", "8", "--batch", "16", "--checkpoint-dir", "c"};
  ASSERT_EQ(gan(s.dir(), with(args, {"--images", "16"})).status, 0);
  const fs::path file = s.dir() / "c/gan.ckpt";
  const std::string before = bytes_of(file);
  {
    const FileSizeLimit limit(before.size() / 2);
    const Result r = gan(s.dir(), with(args, {"--images", "32"}));
    EXPECT_EQ(r.status, 1) << r.output;
    EXPECT_THAT(r.output, HasSubstr("gan.ckpt"));
  }
  EXPECT_EQ(bytes_of(file), before);
  const Result r = gan(s.dir(), with(args, {"--images", "32"}));
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output, HasSubstr("Resuming from"));
}

TEST_F(GanMetrics, ThatCannotBeWrittenAreAnError) {
  const Arguments args = {"evaluate", "--checkpoint", "c/gan.ckpt", "--number", "20", "--metrics", "ms_ssim"};
  expect_error(with(args, {"--summary", "nowhere/e.json"}), "nowhere/e.json: cannot be written");
  const Result r = gan(dir(), with(args, {"--summary", "/dev/full"}));
  EXPECT_EQ(r.status, 1) << r.output;
  EXPECT_THAT(r.output, HasSubstr("/dev/full: cannot be written"));
  EXPECT_THAT(r.output, HasSubstr("ms_ssim "));  // they were printed
}

TEST_F(GanMetrics, OfATrainingWhoseSummaryCannotBeWrittenLeaveItsCheckpoint) {
  Scratch s;
  const Result r = gan(s.dir(), {"--size", "8", "--width", "2", "--batch", "16", "--images", "32",
                                 "--summary", "/dev/full", "--checkpoint-dir", "c"});
  EXPECT_EQ(r.status, 1);
  EXPECT_THAT(r.output, HasSubstr("/dev/full"));
  EXPECT_EQ(io::load_checkpoint(s.dir() / "c/gan.ckpt").checkpoint.get<int64_t>("images"), 32);
}

}  // namespace
}  // namespace gradus::examples
