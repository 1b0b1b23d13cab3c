// Datasets for models that predict the next character: text from files, and text drawn from a Markov source,
// whose entropies (in nats) are compared with sums over all texts of up to 8 characters.
#include "gradus/data/sets/text.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "gradus/data/dataloader.h"
#include "gradus/data/sets/generated_text.h"
#include "gradus/tests/support/error.h"
#include "gradus/tests/support/scratch.h"

namespace gradus::data {
namespace {

// ---- files ----

TEST(ReadText, ReadsPlainAndGzipFiles) {
  const Scratch dir;
  std::string text(3 << 20, 'x');
  text += "the end\n\xff";
  EXPECT_EQ(read_text(dir.write("a.txt", text)), text);
  const gzFile packed = gzopen((dir / "a.gz").c_str(), "wb");
  ASSERT_EQ(gzwrite(packed, text.data(), unsigned(text.size())), int(text.size()));
  ASSERT_EQ(gzclose(packed), Z_OK);
  EXPECT_EQ(read_text(dir / "a.gz"), text);
  EXPECT_EQ(read_text(dir / "a.gz", {.max_bytes = int64_t(text.size())}), text);
  EXPECT_ERROR(FileError, read_text(dir / "a.gz", {.max_bytes = int64_t(text.size()) - 1}),
               "expected at most 3145736 bytes");
}

TEST(ReadText, FilesThatCannotBeReadAreErrors) {
  const Scratch dir;
  EXPECT_THROW(read_text(dir / "nothing"), FileError);
  EXPECT_THROW(read_text(dir.dir()), FileError);
  EXPECT_ERROR(FileError, read_text(dir.write("empty", "")), "is empty");
  EXPECT_THROW(read_text(dir.write("damaged.gz", "\x1f\x8b\x08 and no more")), FileError);
}

// ---- characters and windows ----

TEST(Characters, AreNumberedInAscendingOrder) {
  const Characters c("no\xff one\n");
  EXPECT_EQ(c.all(), "\n eno\xff");
  EXPECT_EQ(c.size(), 6);
  EXPECT_EQ(c.encode("one").to_vector<int64_t>(), (std::vector<int64_t>{4, 3, 2}));
  EXPECT_EQ(c.decode(c.encode("e\xff n")), "e\xff n");
  EXPECT_EQ(Characters(c.all()).all(), c.all());
  EXPECT_ERROR(ValueError, c.encode("on!"), "the byte 33");
  EXPECT_THROW(c.decode(tensor({6})), IndexError);
  EXPECT_THROW(c.decode(tensor({-1})), IndexError);
  EXPECT_THROW(Characters(""), ValueError);
}

TEST(TextWindows, AreCharactersAndThoseThatFollow) {
  const std::string text = "abcdefghij";
  const Characters c(text);
  const TextWindows windows(c, text, {.context = 4, .stride = 3});
  ASSERT_EQ(windows.size(), 2);
  EXPECT_EQ(c.decode(windows.get(1).input), "defg");
  EXPECT_EQ(c.decode(windows.get(1).target), "efgh");
  EXPECT_EQ(TextWindows(c, text, {.context = 4}).size(), 6);
  EXPECT_EQ(TextWindows(c, text, {.context = 9}).size(), 1);
  EXPECT_EQ(c.decode(TextWindows(c, text, {.context = 4}).get(5).target), "ghij");
  EXPECT_THROW(windows.get(2), IndexError);
  EXPECT_THROW(TextWindows(c, text, {.context = 10}), ValueError);
  EXPECT_THROW(TextWindows(c, text, {.context = 0}), ValueError);
  EXPECT_THROW(TextWindows(c, text, {.context = 4, .stride = 0}), ValueError);
  EXPECT_THROW(TextWindows(Characters("abc"), text, {.context = 4}), ValueError);
}

// ---- a source of known entropy ----

// Entropies of texts of 1, 2, ..., `length` characters: -sum p log p over all such texts.
std::vector<double> entropies(const MarkovSource& source, int64_t characters, int64_t order, int length) {
  std::vector<double> of_length;
  std::vector<double> blocks = source.stationary();  // of `order` characters
  std::vector<std::vector<double>> by_length(size_t(length) + 1);
  by_length[size_t(order)] = blocks;
  for (int64_t n = order; n > 0; --n) {
    auto& shorter = by_length[size_t(n - 1)];
    shorter.assign(by_length[size_t(n)].size() / size_t(characters), 0);
    for (size_t i = 0; i < by_length[size_t(n)].size(); ++i)
      shorter[i / size_t(characters)] += by_length[size_t(n)][i];
  }
  for (int64_t n = order; n < length; ++n)
    for (size_t i = 0; i < by_length[size_t(n)].size(); ++i)
      for (const double p : source.next(int64_t(i % source.stationary().size())))
        by_length[size_t(n + 1)].push_back(by_length[size_t(n)][i] * p);
  for (int n = 1; n <= length; ++n) {
    double h = 0;
    for (const double p : by_length[size_t(n)]) h -= p * std::log(p);
    of_length.push_back(h);
  }
  return of_length;
}

TEST(MarkovSource, ItsEntropiesAreThoseOfAllTextsAddedUp) {
  for (const int64_t order : {1, 2, 3}) {
    const MarkovSource source({.characters = 3, .order = order, .seed = 5});
    const std::vector<double> expected = entropies(source, 3, order, 8);
    // Sums of up to 3^8 terms below 1, each rounded to 1e-16 of itself.
    for (int n = 1; n <= 8; ++n) EXPECT_NEAR(source.entropy(n), expected[size_t(n - 1)], 1e-12) << order;
    EXPECT_NEAR(source.entropy(), expected[7] - expected[6], 1e-12) << order;
    EXPECT_EQ(source.entropy(int64_t{0}), 0);
  }
}

TEST(MarkovSource, ItsDistributionIsStationary) {
  const MarkovSource source;
  const std::vector<double>& p = source.stationary();
  ASSERT_EQ(p.size(), 729u);
  EXPECT_NEAR(std::accumulate(p.begin(), p.end(), 0.0), 1, 1e-12);
  std::vector<double> after(p.size());
  for (size_t s = 0; s < p.size(); ++s)
    for (size_t c = 0; c < 27; ++c) after[(s * 27 + c) % 729] += p[s] * source.next(int64_t(s))[c];
  for (size_t s = 0; s < p.size(); ++s) EXPECT_NEAR(after[s], p[s], 1e-14);
}

// The mean of -log p over independent texts is within 5 standard errors of the entropy. By default, a state
// is the last two of 27 characters.
TEST(MarkovSource, DrawsTextsOfItsEntropy) {
  const MarkovSource source;
  double sum = 0, squares = 0;
  const int texts = 2000, length = 102;
  for (int i = 0; i < texts; ++i) {
    const std::vector<uint8_t> text = source.draw(length, 3, uint64_t(i));
    ASSERT_EQ(text.size(), size_t(length));
    double mean = 0;
    for (size_t t = 2; t < text.size(); ++t)
      mean -= std::log(source.next(text[t - 2] * 27 + text[t - 1])[text[t]]) / (length - 2);
    sum += mean, squares += mean * mean;
  }
  const double mean = sum / texts, deviation = std::sqrt(squares / texts - mean * mean);
  EXPECT_NEAR(mean, source.entropy(), 5 * deviation / std::sqrt(texts));
  EXPECT_GT(source.entropy(), 1);
  EXPECT_LT(source.entropy(), source.entropy(3) - source.entropy(2) + 1e-12);
  EXPECT_LT(source.entropy() + 0.2, source.entropy(2) - source.entropy(1)) << "order 1 says as much";
}

TEST(MarkovSource, ABeginningIsDrawnLikeTheRest) {
  const MarkovSource source;
  EXPECT_EQ(source.draw(0, 1, 1).size(), 0u);
  const std::vector<uint8_t> text = source.draw(5, 1, 1), longer = source.draw(9, 1, 1);
  EXPECT_TRUE(std::equal(text.begin(), text.end(), longer.begin()));
  EXPECT_EQ(source.draw(1, 1, 1)[0], text[0]);
  EXPECT_NE(source.draw(9, 1, 2), longer);
  EXPECT_NE(source.draw(9, 2, 1), longer);
}

TEST(MarkovSource, RefusesWhatItCannotHold) {
  EXPECT_THROW(MarkovSource({.characters = 1}), ValueError);
  EXPECT_THROW(MarkovSource({.characters = 257}), ValueError);
  EXPECT_THROW(MarkovSource({.order = 0}), ValueError);
  EXPECT_THROW(MarkovSource({.order = 4}), ValueError);
  EXPECT_THROW(MarkovSource({.order = int64_t{1} << 40}), ValueError);
  EXPECT_THROW(MarkovSource().entropy(-1), ValueError);
}

TEST(GeneratedText, IsADatasetOfNextCharacters) {
  const GeneratedText text({.size = 100, .context = 30});
  EXPECT_EQ(text.size(), 100);
  EXPECT_EQ(text.characters().size(), 27);
  const Sample a = text.get(7);
  EXPECT_EQ(describe(a.input), "i64[30] cpu");
  const std::string input = text.characters().decode(a.input), target = text.characters().decode(a.target);
  EXPECT_EQ(input.substr(1), target.substr(0, 29));
  EXPECT_EQ(input, text.characters().decode(GeneratedText({.size = 8, .context = 30}).get(7).input));
  EXPECT_NE(input, text.characters().decode(text.get(8).input));
  EXPECT_NE(input, text.characters().decode(GeneratedText({.train = false, .context = 30}).get(7).input));
  EXPECT_NE(input, text.characters().decode(GeneratedText({.context = 30, .seed = 1}).get(7).input));
  DataLoader loader(text, {.batch_size = 4});
  EXPECT_EQ(describe(loader.begin()->target), "i64[4,30] cpu");
  EXPECT_THROW(text.get(100), IndexError);
  EXPECT_THROW(GeneratedText({.size = 0}), ValueError);
  EXPECT_THROW(GeneratedText({.context = 0}), ValueError);
  EXPECT_THROW(GeneratedText({.context = (1 << 20) + 1}), ValueError);
}

TEST(GeneratedText, KnowsTheLeastLossOfItsTargets) {
  const MarkovSource source;
  EXPECT_NEAR(GeneratedText({.context = 1}).least_loss(), source.entropy(2) - source.entropy(1), 1e-12);
  // Only the first of 64 targets has less than two characters before it.
  EXPECT_NEAR(GeneratedText().least_loss(),
              (source.entropy(2) - source.entropy(1) + 63 * source.entropy()) / 64, 1e-12);
  EXPECT_EQ(GeneratedText().entropy(), source.entropy());
}

}  // namespace
}  // namespace gradus::data
