// The gpt program from outside: what it learns, that a pipeline trains as one process does, that a run which
// is killed and resumed ends as one that was not, what it writes, and what it says of mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gradus/data/sets/generated_text.h"
#include "gradus/tests/examples/program_run.h"

namespace gradus::examples {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

using Arguments = std::vector<std::string>;

Result gpt(const fs::path& dir, const Arguments& args, int signal = 0, const std::string& text = "") {
  return examples::run("gpt", dir, args, signal, text);
}

// A network that sees 16 characters, in so many steps of 32 sequences.
Arguments small(const std::string& steps, const Arguments& more = {}) {
  Arguments args = {"--heads",   "2",  "--width",   "48",     "--context",    "16",
                    "--warmup",  "20", "--batch",   "32",     "--lr",         "1e-2",
                    "--threads", "1",  "--summary", "s.json", "--iterations", steps};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(GptProgram, LearnsMoreThanASingleCharacterTells) {
  Scratch s;
  const Result r = gpt(s.dir(), small("800", {"--layers", "1", "--validation-interval", "300"}));
  ASSERT_EQ(r.status, 0) << r.output;
  const nlohmann::json j = summary(s.dir() / "s.json");
  const data::MarkovSource source;
  const data::GeneratedText text({.context = 16});
  EXPECT_EQ(j.at("entropy"), source.entropy());
  EXPECT_EQ(j.at("least_loss"), text.least_loss());
  // Of 16,000 characters, each with a deviation of about 1: 4 / sqrt(16,000) = 0.03.
  EXPECT_GT(j.at("validation_loss"), text.least_loss() - 0.03);
  EXPECT_LT(j.at("validation_loss"), text.least_loss() + 0.1) << r.output;
  const double of_order_one = source.entropy(2) - source.entropy(1);
  EXPECT_LT(j.at("validation_loss").get<double>() + 0.2, of_order_one);
  EXPECT_EQ(j.at("history").size(), 3u);  // after 300, 600 and 800 steps
  EXPECT_EQ(count_of("Validation loss", r.output), 3);
  EXPECT_EQ(j.at("parameters"), 27 * 48 + 16 * 48 + 12 * 48 * 48 + 13 * 48 + 2 * 48);
  EXPECT_EQ(j.at("ranks"), 1);
  EXPECT_EQ(j.at("characters"), 27);
}

// f32 rounds a loss of 3 by 2e-7, and each of 30 steps adds to that.
constexpr double kSameLoss = 1e-5;

TEST(GptProgram, TrainsInAPipelineAsInOneProcess) {
  Scratch s;
  const Result alone = gpt(s.dir(), small("30"));
  ASSERT_EQ(alone.status, 0) << alone.output;
  const nlohmann::json want = summary(s.dir() / "s.json");
  const auto expect_same = [&](const Arguments& more, int ranks) {
    const std::string what = testing::PrintToString(more);
    const Result r = gpt(s.dir(), small("30", more));
    ASSERT_EQ(r.status, 0) << what << r.output;
    const nlohmann::json j = summary(s.dir() / "s.json");
    EXPECT_EQ(j.at("ranks"), ranks) << what;
    for (const char* loss : {"loss", "validation_loss"})
      EXPECT_NEAR(j.at(loss), want.at(loss).get<double>(), kSameLoss) << loss << what;
    EXPECT_EQ(j.at("parameters"), want.at("parameters")) << what;
  };
  expect_same({"--micro-batches", "3"}, 1);
  expect_same({"--replicas", "2"}, 2);
  expect_same({"--pipeline", "2"}, 2);
  expect_same({"--pipeline", "2", "--micro-batches", "auto"}, 2);
  expect_same({"--pipeline", "2", "--schedule", "zb-h1", "--micro-batches", "3"}, 2);
  expect_same({"--pipeline", "2", "--recompute", "always"}, 2);
  expect_same({"--pipeline", "2", "--recompute", "every-1"}, 2);
  expect_same({"--pipeline", "2", "--recompute", "auto-1e9"}, 2);
  expect_same({"--pipeline", "2", "--interleave", "2", "--schedule", "zb-v"}, 2);
  expect_same({"--pipeline", "2", "--replicas", "2"}, 4);
}

TEST(GptProgram, LearnsTheSameInMixedPrecision) {
  Scratch s;
  ASSERT_EQ(gpt(s.dir(), small("60")).status, 0);
  const double want = summary(s.dir() / "s.json").at("validation_loss");
  const Result r = gpt(s.dir(), small("60", {"--amp", "bf16", "--pipeline", "2"}));
  ASSERT_EQ(r.status, 0) << r.output;
  // bf16 rounds a number by up to 2^-9 of it; in a mean over many, most of that cancels.
  EXPECT_NEAR(summary(s.dir() / "s.json").at("validation_loss"), want, 0.01);
}

TEST(GptProgram, GoesOnWhereItWasKilled) {
  const Arguments args = small("30", {"--dropout", "0.1", "--checkpoint-dir", "c", "--checkpoint-interval",
                                      "4", "--log-interval", "1"});
  Scratch straight, s;
  ASSERT_EQ(gpt(straight.dir(), args).status, 0);
  EXPECT_EQ(gpt(s.dir(), args, SIGKILL, "step 10 ").status, 128 + SIGKILL);
  const Result more = gpt(s.dir(), args);
  ASSERT_EQ(more.status, 0) << more.output;
  EXPECT_THAT(more.output, HasSubstr("Resuming from c/gpt.ckpt: epoch 1, "));
  const nlohmann::json a = summary(s.dir() / "s.json"), b = summary(straight.dir() / "s.json");
  EXPECT_EQ(a.at("loss"), b.at("loss"));
  EXPECT_EQ(a.at("validation_loss"), b.at("validation_loss"));

  const Result longer = gpt(s.dir(), small("40", {"--checkpoint-dir", "c"}));
  EXPECT_EQ(longer.status, 1);
  EXPECT_THAT(longer.output, HasSubstr("was trained with number of steps 30, not with 40"));
}

// A text of which every character follows from the one before.
fs::path write_rhyme(const fs::path& dir, int64_t times = 300) {
  std::ofstream out(dir / "rhyme.txt", std::ios::binary);
  while (times-- > 0) out << "to be\n";
  return dir / "rhyme.txt";
}

TEST(GptProgram, WritesTextLikeThatOfItsFile) {
  Scratch s;
  write_rhyme(s.dir());
  const Result r =
      gpt(s.dir(),
          small("120", {"--data", "rhyme.txt", "--layers", "1", "--sample", "40", "--checkpoint-dir", "c"}));
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output, HasSubstr("sequences of 6 characters, rhyme.txt; cpu, 1 threads; seed 1"));
  EXPECT_LT(summary(s.dir() / "s.json").at("validation_loss"), 0.05);
  EXPECT_THAT(r.output, HasSubstr("\nto be\nto be\n"));

  const Arguments sample = {"sample", "--checkpoint", "c/gpt.ckpt", "--length", "50", "--temperature", "0.1"};
  std::string want = "be\n";
  while (want.size() < 50 + 2) want += "to be\n";
  EXPECT_EQ(gpt(s.dir(), with(sample, {"--prompt", "be"})).output, want.substr(0, 52) + "\n");
  const Result unknown = gpt(s.dir(), with(sample, {"--prompt", "x"}));
  EXPECT_EQ(unknown.status, 1);
  EXPECT_THAT(unknown.output, HasSubstr("gpt sample: [Characters] the byte 120 is none of the 6"));
}

TEST(GptProgram, MistakesAreErrorsBeforeTheFirstStep) {
  Scratch s;
  write_rhyme(s.dir(), 5);
  const auto expect_mistake = [&](const Arguments& args, int status, const std::string& text) {
    const Result r = gpt(s.dir(), args);
    EXPECT_EQ(r.status, status) << testing::PrintToString(args) << r.output;
    EXPECT_THAT(r.output, HasSubstr(text));
    EXPECT_THAT(r.output, Not(HasSubstr("step ")));
  };
  expect_mistake({"--layers", "0"}, 2, "--layers");
  expect_mistake({"--schedule", "fastest"}, 2, "zb-h1");
  expect_mistake({"--amp", "f8"}, 2, "--amp");
  expect_mistake({"--heads", "5"}, 1, "a multiple of the 5 heads");
  expect_mistake({"--data", "nowhere.txt"}, 1, "nowhere.txt");
  expect_mistake({"--data", "rhyme.txt"}, 1, "expected a text longer than the context of 64 characters");
  expect_mistake({"--micro-batches", "0"}, 1, "expected auto, or a number from 1 to 2^20, given 0");
  expect_mistake({"--recompute", "every-0"}, 1, "expected never, always, except-last, every-N");
  expect_mistake({"--recompute", "auto"}, 1, "or auto-BYTES, given auto");
  expect_mistake({"--pipeline", "5"}, 1, "as many stages as the 4 blocks");
  expect_mistake({"--pipeline", "2", "--nproc", "3"}, 1, "3 ranks cannot be cut into");
  expect_mistake({"--replicas", "2", "--nproc", "3"}, 1, "expected 2 ranks, given 3");
  expect_mistake({"--pipeline", "2", "--sample", "9"}, 1, "do not go with --pipeline");
  expect_mistake({"--pipeline", "2", "--schedule", "zb-v"}, 1, "zb-v");
  expect_mistake({"sample", "--checkpoint", "nothing.ckpt"}, 1, "nothing.ckpt");
  expect_mistake({"sample", "--checkpoint", "rhyme.txt"}, 1, "rhyme.txt");
}

}  // namespace
}  // namespace gradus::examples
