// examples/gan as a process: every model under every kind of data parallelism, on a folder of images of many
// sizes; an interrupted or killed run resumes to the same bits; errors. Exit codes: 1 error, 130 interrupted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gradus/io/safetensors.h"
#include "gradus/io/save_image.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tests/examples/program_run.h"

namespace gradus::examples {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

using Arguments = std::vector<std::string>;

Result gan(const fs::path& dir, const Arguments& args, int signal = 0, const std::string& text = "") {
  return examples::run("gan", dir, args, signal, text);
}

// Two classes of 20 images each, gray and colored, from 5x9 to 24x28 pixels.
void make_images(const fs::path& dir) {
  manual_seed(1);
  for (int i = 0; i < 40; ++i) {
    const fs::path folder = dir / "images" / (i % 2 ? "a" : "b");
    fs::create_directories(folder);
    io::save_image(folder / (std::to_string(i) + ".png"), rand({i % 3 ? 3 : 1, 5 + i / 2, 9 + i / 2}));
  }
}

struct Model {
  std::string name;
  Arguments args;  // of a small one
};

const std::vector<Model>& all_models() {
  static const std::vector<Model> all = {
      {"dcgan", {"--size", "8", "--width", "2"}},
      {"lsgan", {"--size", "32", "--width", "2"}},
      {"wgan_gp", {"--size", "8", "--width", "4", "--disc-steps", "2"}},
      {"pggan", {"--size", "8", "--width", "2", "--images-per-scale", "4:64,8:96", "--fade", "32"}},
      {"flow", {"--size", "8", "--width", "8"}},
      {"stylegan1",
       {"--size", "8", "--width", "2", "--latent", "8", "--images-per-scale", "4:64,8:96", "--fade", "32"}},
      {"stylegan2", {"--size", "8", "--width", "2", "--latent", "8"}},
      {"sngan", {"--size", "16", "--width", "4", "--disc-steps", "2"}},
      {"r3gan", {"--size", "8", "--width", "8"}}};
  return all;
}

// Arguments of ten steps with 16 images (of all ranks together) each.
Arguments small(const Model& m, const Arguments& more = {}) {
  Arguments args = {"--model", m.name,      "--data", "images",         "--batch", "16",        "--images",
                    "160",     "--threads", "1",      "--log-interval", "1",       "--summary", "s.json"};
  args.insert(args.end(), m.args.begin(), m.args.end());
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(GanOptions, AreThoseOfDcgan) {
  Scratch s;
  make_images(s.dir());
  const Arguments args = {"--dataset",   "folder", "--dataroot",   "images", "--workers",   "1",
                          "--batchSize", "16",     "--nz",         "10",     "--imageSize", "8",
                          "--ngf",       "2",      "--ndf",        "3",      "--lr",        "1e-3",
                          "--beta1",     "0.4",    "--manualSeed", "3",      "--ngpu",      "2",
                          "--threads",   "1",      "--summary",    "s.json"};
  const Result r = gan(s.dir(), with(args, {"--niter", "1", "--outf", "c", "--export", "w.safetensors"}));
  ASSERT_EQ(r.status, 0) << r.output;
  const nlohmann::json j = summary(s.dir() / "s.json");
  EXPECT_EQ(j.at("epochs"), 1);
  EXPECT_EQ(j.at("d_steps"), 2);
  EXPECT_EQ(j.at("seed"), 3);
  EXPECT_EQ(j.at("world_size"), 2);
  EXPECT_EQ(j.at("options").at("beta1"), 0.4);
  const io::SafetensorsFile weights = io::load_safetensors(s.dir() / "w.safetensors");
  EXPECT_EQ(weights.at("gen.main.0.weight").shape(), (Shape{10, 2, 4, 4}));
  EXPECT_EQ(weights.at("disc.main.0.weight").shape(), (Shape{3, 3, 4, 4}));
  EXPECT_EQ(gan(s.dir(), {"sample", "--checkpoint", "c/gan.ckpt"}).status, 0);

  // A learning rate of almost 0 keeps the weights of --netG and --netD.
  io::NamedTensors gen, disc;
  for (const auto& [name, x] : weights.tensors)
    if (name.starts_with("gen."))
      gen.emplace_back(name.substr(4), x);
    else
      disc.emplace_back(name.substr(5), x);
  io::save_safetensors(s.dir() / "netG.safetensors", gen);
  io::save_safetensors(s.dir() / "netD.safetensors", disc);
  Arguments again = with(args, {"--netG", "netG.safetensors", "--netD", "netD.safetensors", "--iterations",
                                "1", "--export", "v.safetensors"});
  std::ranges::replace(again, "1e-3", "1e-30");
  ASSERT_EQ(gan(s.dir(), again).status, 0);
  const io::SafetensorsFile same = io::load_safetensors(s.dir() / "v.safetensors");
  for (const char* name : {"gen.main.0.weight", "disc.main.0.weight"})
    EXPECT_EQ(same.at(name).to_vector<double>(), weights.at(name).to_vector<double>()) << name;

  const Result other = gan(s.dir(), {"--dataset", "cifar10", "--dataroot", "images"});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.output, HasSubstr("expected --data with images of CIFAR10, got ImageFolder"));
  const Result shared = gan(s.dir(), {"--model", "pggan", "--ndf", "3", "--iterations", "1"});
  EXPECT_EQ(shared.status, 1);
  EXPECT_THAT(shared.output, HasSubstr("--disc-width: the networks of pggan share a width"));
}

class GanProgram : public testing::TestWithParam<Model> {};
INSTANTIATE_TEST_SUITE_P(Models, GanProgram, testing::ValuesIn(all_models()),
                         [](const auto& info) { return info.param.name; });

TEST_P(GanProgram, TrainsUnderEveryKindOfDataParallelism) {
  Scratch s;
  make_images(s.dir());
  for (const auto& [ranks, ddp] : {std::pair<std::string, std::string>("2", "separate"),
                                   {"4", "separate"},
                                   {"4", "whole"},
                                   {"2", "callbacks"}}) {
    const Result r = gan(s.dir(), small(GetParam(), {"--nproc", ranks, "--ddp", ddp}));
    ASSERT_EQ(r.status, 0) << ddp << ", " << ranks << " ranks: " << r.output;
    const nlohmann::json j = summary(s.dir() / "s.json");
    EXPECT_EQ(j.at("model"), GetParam().name);
    EXPECT_EQ(j.at("ddp"), ddp);
    EXPECT_EQ(j.at("images"), 160);
    const bool has_disc = GetParam().name != "flow";
    EXPECT_EQ(j.at("d_steps"), has_disc ? 10 : 0);
    const bool has_two_disc_steps = GetParam().name == "wgan_gp" || GetParam().name == "sngan";
    EXPECT_EQ(j.at("g_steps"), has_two_disc_steps ? 5 : 10);
    for (const std::string& key :
         has_disc ? Arguments{"loss_d", "loss_g", "d_real", "d_fake"} : Arguments{"loss"})
      EXPECT_TRUE(std::isfinite(j.at(key).get<double>())) << key;
    EXPECT_GT(j.at("bytes_sent_g"), 0);
    EXPECT_EQ(j.at("bytes_sent_d") > 0, has_disc);
  }
}

TEST_P(GanProgram, GoesOnToTheSameBitsAfterBeingInterruptedOrKilled) {
  const Arguments args = small(GetParam(), {"--checkpoint-dir", "c", "--checkpoint-interval", "2", "--export",
                                            "w.safetensors", "--sample-every", "32"});
  Scratch straight;
  make_images(straight.dir());
  ASSERT_EQ(gan(straight.dir(), args).status, 0);
  const std::string last = "c/samples/" + GetParam().name + "_000000160_ema.png";
  ASSERT_FALSE(bytes_of(straight.dir() / last).empty());
  for (const int signal : {SIGINT, SIGKILL}) {
    Scratch s;
    make_images(s.dir());
    const Result first = gan(s.dir(), args, signal, "step 5 ");
    EXPECT_EQ(first.status, signal == SIGINT ? 130 : 128 + SIGKILL) << first.output;
    EXPECT_THAT(first.output, Not(HasSubstr("step 10 ")));
    const Result second = gan(s.dir(), args);
    ASSERT_EQ(second.status, 0) << second.output;
    EXPECT_THAT(second.output, HasSubstr("Resuming from c/gan.ckpt"));
    EXPECT_EQ(bytes_of(s.dir() / "w.safetensors"), bytes_of(straight.dir() / "w.safetensors"));
    EXPECT_EQ(bytes_of(s.dir() / last), bytes_of(straight.dir() / last));
  }
}

TEST_P(GanProgram, TakesTheStepsThatItIsAskedFor) {
  if (GetParam().name == "flow") GTEST_SKIP() << "it has no discriminator";
  Scratch s;
  make_images(s.dir());
  std::string generators[2];
  for (const int steps : {1, 2}) {
    Arguments args = {"--model",      GetParam().name,      "--data", "images",    "--batch",
                      "16",           "--iterations",       "2",      "--threads", "1",
                      "--disc-steps", std::to_string(steps)};
    for (const char* more : {"--log-interval", "1", "--export", "w.safetensors"}) args.emplace_back(more);
    for (size_t i = 0; i + 1 < GetParam().args.size(); i += 2)
      if (GetParam().args[i] != "--disc-steps")
        args.insert(args.end(), {GetParam().args[i], GetParam().args[i + 1]});
    const Result r = gan(s.dir(), args);
    ASSERT_EQ(r.status, 0) << r.output;
    EXPECT_THAT(r.output, HasSubstr("step 2 "));
    EXPECT_THAT(r.output, Not(HasSubstr("step 3 ")));
    EXPECT_EQ(count_of("loss/g", r.output), 3 - steps);
    generators[steps - 1] = bytes_of(s.dir() / "w.safetensors");
  }
  EXPECT_NE(generators[0], generators[1]);
}

// Of 16 steps those that are not among the first four are replays; with --disc-steps 2 steps with and without the
// generator's have a recording each. A grid of samples would end the recordings.
TEST_P(GanProgram, TrainsToTheSameBitsWithCapturedSteps) {
  if (GetParam().name == "pggan" || GetParam().name == "stylegan1") GTEST_SKIP() << "it grows";
  const bool has_disc = GetParam().name != "flow";
  std::vector<Arguments> variants = {{}, {"--ddp", "whole", "--amp", "bf16"}};
  if (has_disc) variants[1].emplace_back("--joined-forward");
  if (GetParam().name == "dcgan" || !has_disc) variants.push_back({"--conditional", "--ddp", "callbacks"});
  for (const Arguments& more : variants) {
    Arguments args = small(GetParam(), {"--export", "w.safetensors", "--sample-every", "1000"});
    std::ranges::replace(args, "160", "256");
    args.insert(args.end(), more.begin(), more.end());
    Scratch plain, captured;
    for (const Scratch* s : {&plain, &captured}) {
      make_images(s->dir());
      const Result r = gan(s->dir(), s == &plain ? args : with(args, {"--capture"}));
      ASSERT_EQ(r.status, 0) << r.output;
    }
    const nlohmann::json a = summary(captured.dir() / "s.json"), b = summary(plain.dir() / "s.json");
    for (const std::string& key : has_disc ? Arguments{"loss_d", "loss_g", "d_real", "d_fake", "diversity",
                                                       "grad_norm_disc", "grad_norm_gen"}
                                           : Arguments{"loss", "grad_norm_gen"})
      EXPECT_EQ(a.at(key), b.at(key)) << key << testing::PrintToString(more);
    EXPECT_EQ(bytes_of(captured.dir() / "w.safetensors"), bytes_of(plain.dir() / "w.safetensors"))
        << testing::PrintToString(more);
  }
}

// `plan` has SIZE:IMAGES:BATCH:LR per size. Below, size 8 begins within an epoch, at step 5.
Arguments growing(const std::string& plan, const Arguments& more = {}) {
  Arguments args = {"--model",
                    "pggan",
                    "--data",
                    "images",
                    "--size",
                    "8",
                    "--width",
                    "2",
                    "--fade",
                    "32",
                    "--images",
                    "160",
                    "--threads",
                    "1",
                    "--log-interval",
                    "1",
                    "--images-per-scale",
                    plan,
                    "--export",
                    "w.safetensors",
                    "--summary",
                    "s.json"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(GanGrowth, ChangesTheBatchAndGoesOnToTheSameBits) {
  const Arguments args =
      growing("4:64:16:2e-3,8:96:8:1e-3", {"--checkpoint-dir", "c", "--checkpoint-interval", "1"});
  Scratch straight;
  make_images(straight.dir());
  const Result r = gan(straight.dir(), args);
  ASSERT_EQ(r.status, 0) << r.output;
  for (const char* line : {"step 4  64 images", "step 5  72 images", "step 16  160 images"})
    EXPECT_THAT(r.output, HasSubstr(line));
  using Kill = std::pair<int, std::string>;
  for (const auto& [signal, step] : {Kill{SIGINT, "step 4 "}, Kill{SIGKILL, "step 3 "},
                                     Kill{SIGKILL, "step 4 "}, Kill{SIGKILL, "step 5 "}}) {
    Scratch s;
    make_images(s.dir());
    EXPECT_NE(gan(s.dir(), args, signal, step).status, 0) << step;
    const Result second = gan(s.dir(), args);
    ASSERT_EQ(second.status, 0) << second.output;
    EXPECT_THAT(second.output, HasSubstr("Resuming from c/gan.ckpt"));
    EXPECT_EQ(bytes_of(s.dir() / "w.safetensors"), bytes_of(straight.dir() / "w.safetensors")) << step;
  }
  const Result other = gan(straight.dir(), growing("4:64:16:2e-3,8:96:16:1e-3", {"--checkpoint-dir", "c"}));
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.output, HasSubstr("growth 4:64:16:0.002,8:0:8:0.001 fade 32"));
}

TEST(GanGrowth, TakesTheSameStepsOnAnyNumberOfRanks) {
  Scratch s;
  make_images(s.dir());
  for (const std::string ranks : {"1", "2", "4"}) {
    const Result r = gan(s.dir(), growing("4:64:16,8:96:8", {"--nproc", ranks}));
    ASSERT_EQ(r.status, 0) << r.output;
    EXPECT_THAT(r.output, HasSubstr("step 5  72 images"));
    EXPECT_EQ(summary(s.dir() / "s.json").at("d_steps"), 16);
  }
}

TEST(GanGrowth, ChangesTheLearningRate) {
  Scratch s;
  make_images(s.dir());
  const auto weights = [&](const std::string& plan, const Arguments& more = {}) {
    const Result r = gan(s.dir(), growing(plan, more));
    EXPECT_EQ(r.status, 0) << r.output;
    return bytes_of(s.dir() / "w.safetensors");
  };
  const std::string both = weights("4:64:16:2e-3,8:96:8:2e-3");
  EXPECT_EQ(weights("4:64:16,8:96:8", {"--lr", "2e-3"}), both);
  EXPECT_NE(weights("4:64:16:2e-3,8:96:8:1e-3"), both);
  EXPECT_NE(weights("4:64:16:1e-3,8:96:8:2e-3"), both);
}

class GanPictures : public testing::TestWithParam<Model> {};
INSTANTIATE_TEST_SUITE_P(Models, GanPictures,
                         testing::Values(all_models()[3], all_models()[4], all_models()[5], all_models()[6]),
                         [](const auto& info) { return info.param.name; });

TEST_P(GanPictures, AreMadeOfACheckpointAlone) {
  Scratch s;
  make_images(s.dir());
  ASSERT_EQ(gan(s.dir(), small(GetParam(), {"--checkpoint-dir", "c"})).status, 0);
  const Arguments of = {"--checkpoint", "c/gan.ckpt"};
  const auto run = [&](const Arguments& command) {
    const Result r = gan(s.dir(), command);
    EXPECT_EQ(r.status, 0) << r.output;
  };
  run({"sample", of[0], of[1], "--number", "9", "--out", "a.png"});
  run({"sample", of[0], of[1], "--number", "9", "--out", "b.png"});
  run({"sample", of[0], of[1], "--number", "9", "--out", "c.png", "--seed", "2"});
  run({"interpolate", of[0], of[1], "--number", "2", "--steps", "3", "--out", "walk.png"});
  if (GetParam().name.starts_with("stylegan")) {
    run({"sample", of[0], of[1], "--number", "9", "--out", "t.png", "--truncation", "0.5"});
    EXPECT_NE(bytes_of(s.dir() / "a.png"), bytes_of(s.dir() / "t.png"));
    run({"mix", of[0], of[1], "--number", "3", "--out", "mix.png"});
    EXPECT_THAT(bytes_of(s.dir() / "mix.png"), HasSubstr("PNG"));
  } else {
    EXPECT_THAT(gan(s.dir(), {"mix", of[0], of[1]}).output, HasSubstr("has no styles"));
    EXPECT_THAT(gan(s.dir(), {"sample", of[0], of[1], "--truncation", "0.5"}).output,
                HasSubstr("has no styles"));
  }
  EXPECT_THAT(bytes_of(s.dir() / "a.png"), HasSubstr("PNG"));
  EXPECT_EQ(bytes_of(s.dir() / "a.png"), bytes_of(s.dir() / "b.png"));
  EXPECT_NE(bytes_of(s.dir() / "a.png"), bytes_of(s.dir() / "c.png"));
  EXPECT_THAT(bytes_of(s.dir() / "walk.png"), HasSubstr("PNG"));

  std::ofstream(s.dir() / "bad.ckpt") << "this is no checkpoint";
  for (const std::string file : {"bad.ckpt", "none.ckpt"}) {
    const Result r = gan(s.dir(), {"sample", "--checkpoint", file});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.output, HasSubstr(file));
  }
}

// After a short training, images of averaged weights resemble those of the last weights, not the first.
TEST(GanAverage, OfAYoungAverageAreNotThoseOfTheFirstWeights) {
  Scratch s;
  make_images(s.dir());
  for (const std::string images : {"16", "160"}) {  // one step, ten steps
    Arguments args = small(all_models()[0], {"--lr", "0.05", "--checkpoint-dir", "after_" + images});
    std::ranges::replace(args, "160", images);
    ASSERT_EQ(gan(s.dir(), args).status, 0);
  }
  const auto sampled = [&](const std::string& folder, const Arguments& more) {
    Arguments args = {"sample", "--checkpoint", folder + "/gan.ckpt", "--number",
                      "16",     "--out",        "x.safetensors"};
    args.insert(args.end(), more.begin(), more.end());
    EXPECT_EQ(gan(s.dir(), args).status, 0);
    return io::load_safetensors((s.dir() / "x.safetensors").string()).at("images").to_vector<double>();
  };
  const std::vector<double> first = sampled("after_16", {"--plain"}),
                            last = sampled("after_160", {"--plain"}), averaged = sampled("after_160", {});
  const auto distance = [](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
    return sum;
  };
  EXPECT_LT(distance(averaged, last), distance(averaged, first) / 2);
}

TEST(GanMistakes, AreToldBeforeTheFirstStep) {
  Scratch s;
  make_images(s.dir());
  fs::create_directories(s.dir() / "empty");
  const Model &dcgan = all_models()[0], &pggan = all_models()[3], &flow = all_models()[4];
  const auto expect_error = [&](const Arguments& args, const std::string& text) {
    const Result r = gan(s.dir(), args);
    EXPECT_EQ(r.status, 1) << text;
    EXPECT_THAT(r.output, HasSubstr(text));
    EXPECT_THAT(r.output, Not(HasSubstr("step 1 ")));
  };
  expect_error({"--data", "nowhere"}, "nowhere");
  expect_error({"--data", "empty"}, "expected the files of MNIST or of CIFAR-10, or images");
  expect_error({"--data", "images", "--size", "12"}, "12");
  expect_error(small(dcgan, {"--fade", "10"}), "dcgan does not grow");
  expect_error(small(all_models()[1], {"--conditional"}), "lsgan takes no labels");
  for (const Arguments& option : {Arguments{"--disc-steps", "2"}, {"--latent", "10"}, {"--joined-forward"}})
    expect_error(small(flow, option),
                 "flow has neither latents of another size than the images' nor a discriminator");
  expect_error(small(flow, {"--netD", "d.safetensors"}), "--netD: flow has no discriminator");
  expect_error(small(pggan, {"--capture"}),
               "--capture: pggan grows; a replay keeps the size and the fade of its recording");
  expect_error(small(dcgan, {"--capture", "--on-nan", "skip"}),
               "--capture does not go with --on-nan skip: a replay skips no steps");
  expect_error(small(dcgan, {"--capture", "--nproc", "2"}),
               "--capture on the CPU goes with one rank alone, got 2");
  fs::create_directories(s.dir() / "flat");
  for (int i = 0; i < 8; ++i)
    io::save_image(s.dir() / "flat" / (std::to_string(i) + ".png"), zeros({1, 8, 8}));
  expect_error({"--data", "flat", "--size", "8", "--width", "2", "--batch", "8", "--conditional"},
               "the images have no labels");
  expect_error(small(dcgan, {"--init", "none.safetensors"}), "none.safetensors");
  for (const std::string plan : {"4", "4:", "4:x", "8:10k,4:10k", "4:10k,16:10k", ":5", "4:-1", "4:10k,",
                                 "4:10k:0", "4:10k:8:", "4:10k:8:nan", "4:10k:8:1:1"}) {
    Arguments args = {"--model",           "pggan", "--data", "images", "--size", "16", "--images", "16",
                      "--images-per-scale"};
    args.push_back(plan);
    const Result r = gan(s.dir(), args);
    EXPECT_EQ(r.status, 1) << plan << r.output;
  }
  expect_error({"--data", "images", "--size", "8", "--width", "2", "--batch", "41"}, "no full batch of 41");

  expect_error({"--data", "images", "--size", "8", "--width", "2", "--batch", "15", "--nproc", "2"},
               "--batch 15: expected a multiple of the 2 ranks");
  expect_error({"--model", "pggan", "--data", "images", "--size", "8", "--width", "2", "--batch", "6"},
               "--batch 6: expected a multiple of 4");

  const auto with_plan = [&](const std::string& plan, const Arguments& more = {}) {
    Arguments args = {
        "--model", "pggan", "--data", "images", "--size", "8", "--width", "2", "--images-per-scale", plan};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  expect_error(with_plan("4:64:16,8:96:6"), "--images-per-scale, size 8: batch 6: expected a multiple of 4");
  expect_error(with_plan("4:64:16,8:96:7", {"--nproc", "2"}),
               "--images-per-scale, size 8: batch 7: expected a multiple of the 2 ranks");
  expect_error(with_plan("4:64:16,8:96:64"), "no full batch of 64 among the 40 samples");

  ASSERT_EQ(gan(s.dir(), small(dcgan, {"--checkpoint-dir", "c"})).status, 0);
  expect_error({"--data", "images", "--size", "16", "--width", "2", "--batch", "16", "--checkpoint-dir", "c"},
               "size 8");
  expect_error(with(small(pggan), {"--checkpoint-dir", "c"}), "model dcgan");
}

TEST(GanMistakes, OfTheDiskDoNotEndTheTraining) {
  Scratch s;
  make_images(s.dir());
  std::ofstream(s.dir() / "file") << "not a folder";
  const Result r = gan(s.dir(), small(all_models()[0], {"--samples", "file/below"}));
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output, HasSubstr("no grid was written"));
}

TEST(GanMistakes, InImageFilesEndItOrAreSkipped) {
  Scratch s;
  make_images(s.dir());
  std::ofstream(s.dir() / "images" / "a" / "1.png") << "this is no image";
  const Result fail = gan(s.dir(), small(all_models()[0]));
  EXPECT_EQ(fail.status, 1);
  EXPECT_THAT(fail.output, HasSubstr("1.png"));
  const Result skip = gan(s.dir(), small(all_models()[0], {"--on-error", "skip"}));
  EXPECT_EQ(skip.status, 0) << skip.output;
}

// A replay does not check gradients; their norms in the log end the training.
TEST(GanProgramNotFinite, EndsATrainingOfCapturedSteps) {
  Scratch s;
  make_images(s.dir());
  const Result r =
      gan(s.dir(), small(all_models().front(), {"--capture", "--lr", "1e30", "--sample-every", "1000"}));
  EXPECT_EQ(r.status, 1) << r.output;
  EXPECT_THAT(r.output, HasSubstr("step 1: "));
}

TEST(GanProgramNotFinite, EndsAllRanksOrLeavesStepsOut) {
  Scratch s;
  make_images(s.dir());
  const Model& dcgan = all_models().front();
  const Result stopped = gan(s.dir(), small(dcgan, {"--nproc", "2", "--lr", "1e30"}));
  EXPECT_NE(stopped.status, 0);
  EXPECT_THAT(stopped.output,
              HasSubstr("step 1, gen: rank 0 has NaN or infinity in the gradient of gen.main."));
  EXPECT_THAT(stopped.output, HasSubstr(" on rank 1"));
  const Result skipped = gan(s.dir(), small(dcgan, {"--nproc", "2", "--lr", "1e30", "--on-nan", "skip"}));
  EXPECT_EQ(skipped.status, 0) << skipped.output;
  EXPECT_THAT(skipped.output, HasSubstr("Left out: step 1, gen: "));
  EXPECT_GE(summary(s.dir() / "s.json").at("skipped"), 10);
}

// Trains a DCGAN on images that are entirely black or white.
Result trained_on_black_and_white(const fs::path& dir, std::vector<std::string> more) {
  fs::create_directories(dir / "images");
  for (int i = 0; i < 16; ++i)
    io::save_image(dir / "images" / (std::to_string(i) + ".png"), full({1, 8, 8}, double(i % 2)));
  std::vector<std::string> args{"--data",  "images", "--size",    "8", "--width",  "2",
                                "--batch", "16",     "--threads", "1", "--images", "16000"};
  args.insert(args.end(), more.begin(), more.end());
  return gan(dir, args);
}

TEST(GanProgramWarning, OfAGeneratorThatMakesOneImage) {
  Scratch s;
  const Result r = trained_on_black_and_white(s.dir(), {"--lr", "1e-9"});
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output,
              HasSubstr("Warning: the generator makes one image: for 300 steps its images have differed"));
}

TEST(GanProgramWarning, OfADiscriminatorThatHasWon) {
  Scratch s;
  const Result r = trained_on_black_and_white(s.dir(), {"--lr", "0.1", "--disc-steps", "1000"});
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output,
              HasSubstr("Warning: the discriminator has won: for 300 steps d/real has been 1.0000"));
}

TEST_P(GanProgram, JudgesRealAndGeneratedImagesAsOneBatchToo) {
  if (GetParam().name == "flow") GTEST_SKIP() << "it has no discriminator";
  Scratch s;
  make_images(s.dir());
  const Result r = gan(s.dir(), small(GetParam(), {"--joined-forward", "--nproc", "2", "--syncbn"}));
  EXPECT_EQ(r.status, 0) << r.output;
}

}  // namespace
}  // namespace gradus::examples
