// The examples of docs/guide/data.md: that they compile and do what the page says. Ranks are threads here.
// Copies of the page's code: change both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <mutex>
#include <set>

#include "gradus/gradus.h"

namespace gradus {
namespace {

using testing::ElementsAre;

struct Net : nn::Layer {
  nn::Linear fc{this, "fc", {.in = 784, .out = 10}};
  Tensor forward(const Tensor& x) override { return fc(flatten(x, 1)); }
};

void step(const Tensor& input, const Tensor& target) { ASSERT_EQ(input.size(0), target.size(0)); }

TEST(DataPage, Loader) {
  data::GeneratedDigits train({.train = true, .size = 1000});
  data::DataLoader loader(train, {.batch_size = 64, .shuffle = true, .num_workers = 2});
  for (int epoch = 0; epoch < 3; ++epoch)
    for (const data::Batch& b : loader) step(b.input, b.target);
  EXPECT_EQ(loader.epoch(), 3u);
}

TEST(DataPage, PartsOfADataSet) {
  const data::GeneratedDigits digits({.size = 100});
  const std::vector<data::Subset> parts = data::random_split(digits, {0.8, 0.2}, /*seed=*/1);
  data::DataLoader train(parts[0], {.batch_size = 32, .shuffle = true}),
      validation(parts[1], {.batch_size = 32});
  int64_t samples = 0;
  for (const data::Batch& b : train) samples += b.size();
  EXPECT_EQ(samples, 80);
  EXPECT_EQ(validation.size(), 1);
  for (const data::Fold& fold : data::k_fold(digits.size(), 5, {.shuffle = true, .seed = 1})) {
    const data::Subset train(digits, fold.train), validation(digits, fold.validation);
    EXPECT_EQ(train.size(), 80);
    EXPECT_EQ(validation.size(), 20);
  }
}

TEST(DataPage, SizesThatChange) {
  const data::GeneratedDigits train({.size = 1000});
  data::DataLoader loader(train,
                          {.global_batch_sizes = {{0, 64}, {640, 32}}, .shuffle = true, .num_workers = 2});
  EXPECT_EQ(loader.size(), 22);  // ten batches of 64 and eleven of 32; eight are left
  for (const data::Batch& b : loader) step(b.input, b.target);
  EXPECT_EQ(loader.state().shown, 1000);
  EXPECT_EQ(loader.global_batch_size(), 32);
}

TEST(DataPage, TheMeanOverUnequalSharesIsThatOfTheGlobalBatch) {
  const data::GeneratedDigits train({.size = 7});
  const auto gradient = [&](int ranks) {
    std::vector<float> of_fc;
    dist::run_ranks(ranks, [&] {
      manual_seed(1);
      Net net;
      GradManager gm;
      gm.attach(net.parameters(), dist::make_allreduce_cb(dist::ReduceOp::kMean));
      data::DataLoader loader(train, {.global_batch_size = 7});
      for (const data::Batch& b : loader) {
        auto recording = gm.record();
        Tensor losses = nn::cross_entropy(net(b.input), b.target, {.reduction = Reduction::kSum});
        Tensor loss = losses * (double(dist::get_world_size()) / double(b.global_size));
        gm.backward(loss);
      }
      if (dist::get_rank() == 0) of_fc = net.fc.weight.grad().to_vector<float>();
    });
    return of_fc;
  };
  const std::vector<float> alone = gradient(1), shared = gradient(3);
  ASSERT_EQ(alone.size(), shared.size());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(shared[i], alone[i], 1e-6) << i;
}

// Returns {count, the number of samples whose largest logit is the target's}, of the first `count` samples.
Tensor count_right(const Tensor& logits, const Tensor& target, int64_t count) {
  const auto best = argmax(logits, 1).to_vector<int64_t>(), classes = target.to_vector<int64_t>();
  int64_t right = 0;
  for (size_t i = 0; i < size_t(count); ++i) right += best[i] == classes[i];
  return tensor<int64_t>({count, right}, {2});
}

TEST(DataPage, EvaluationCountsEachSampleOnce) {
  for (int64_t size : {103, 2})
    dist::run_ranks(3, [&] {
      const data::GeneratedDigits test({.train = false, .size = size});
      Net net;
      data::DataLoader loader(test, {.batch_size = 100});
      Tensor seen_and_right = zeros({2}, {.dtype = DType::kI64});
      for (const data::Batch& b : loader)
        seen_and_right = seen_and_right + count_right(net(b.input), b.target, b.size() - b.padding);
      dist::all_reduce(seen_and_right);
      EXPECT_EQ(seen_and_right.to_vector<int64_t>()[0], size);
    });
}

TEST(DataPage, GoesOnWithAnotherNumberOfRanks) {
  const data::GeneratedDigits train({.size = 200});
  std::mutex mutex;
  std::multiset<int64_t> seen;
  const auto take = [&](const data::Batch& b) {
    std::lock_guard lock(mutex);
    seen.insert(b.indices.begin(), b.indices.end() - b.padding);
  };
  dist::run_ranks(2, [&] {
    data::DataLoader loader(train, {.batch_size = 16, .shuffle = true, .seed = 1});
    for (const data::Batch& b : loader) {
      take(b);
      if (loader.state().samples < 64) continue;
      if (dist::get_rank() == 0) {
        io::Checkpoint c;
        c.put("loader", loader);
        io::save_checkpoint(testing::TempDir() + "/data_page.ckpt", c);
      }
      break;
    }
  });
  const io::Checkpoint c = io::load_checkpoint(testing::TempDir() + "/data_page.ckpt").checkpoint;
  dist::run_ranks(3, [&] {
    data::DataLoader resumed(train, {.batch_size = 32, .shuffle = true, .seed = 1});
    c.get("loader", resumed);
    for (const data::Batch& b : resumed) take(b);
  });
  EXPECT_EQ(seen.size(), 200u);
  EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 200u);
}

TEST(DataPage, ABatchSooner) {
  const data::GeneratedDigits train({.size = 200});
  data::DataLoader divided(train, {.batch_size = 64, .num_workers = 4, .divide = true});
  int64_t samples = 0;
  for (const data::Batch& b : divided) samples += b.size();
  EXPECT_EQ(samples, 200);
}

TEST(DataPage, NoiseOfRanksDiffers) {
  const uint64_t seed = 5;
  std::vector<std::vector<float>> drawn(2);
  dist::run_ranks(2, [&] {
    manual_seed(seed + uint64_t(dist::get_rank()));
    const Tensor noise = randn({8, 100});
    drawn[size_t(dist::get_rank())] = noise.to_vector<float>();
  });
  EXPECT_NE(drawn[0], drawn[1]);
}

TEST(DataPage, Endless) {
  int64_t samples = 0;
  const auto train_discriminator = [&](const Tensor& real) { samples += real.size(0); };
  const data::GeneratedDigits train({.size = 20});
  data::DataLoader loader(train, {.batch_size = 8});
  data::Endless batches(loader);
  for (int step = 0; step < 100; ++step) {
    const Tensor real = batches.next().input;
    train_discriminator(real);
  }
  EXPECT_EQ(samples, 33 * 20 + 8);
}

TEST(DataPage, Samplers) {
  const data::GeneratedDigits three({.size = 3});
  const std::vector<double> weights = {1, 1, 4};  // of each sample
  data::DataLoader loader(
      three,
      {.batch_size = 8, .sampler = std::make_shared<data::ReplacementSampler>(weights, 1000, /*seed=*/1)});
  EXPECT_EQ(loader.size(), 125);
}

TEST(DataPage, Collate) {
  class Words : public data::Dataset {
   public:
    int64_t size() const override { return 2; }
    data::Sample get(int64_t i) const override { return {ones({i + 1}), {}}; }
  };
  const Words words;
  const auto padded = [](const std::vector<data::Sample>& samples, std::span<const int64_t>) {
    int64_t longest = 0;
    for (const data::Sample& s : samples) longest = std::max(longest, s.input.size(0));
    std::vector<Tensor> rows;
    for (const data::Sample& s : samples)
      rows.push_back(cat({s.input, zeros({longest - s.input.size(0)})}, 0));
    return data::Batch{.input = stack(rows, 0)};
  };
  data::DataLoader loader(words, {.batch_size = 2, .collate = padded});
  EXPECT_THAT(loader.begin()->input.to_vector<float>(), ElementsAre(1, 0, 1, 1));
}

TEST(DataPage, Memory) {
  dist::run_ranks(2, [] {
    const data::GeneratedDigits train({.size = 10});
    const data::MemoryUse memory = train.memory();
    if (dist::get_rank() == 0)
      std::cout << memory.own << " bytes own, " << memory.shared << " shared" << std::endl;
    EXPECT_EQ(memory.own, 0);
    EXPECT_EQ(memory.shared, 10 * 785);
    dist::group_barrier();
  });
}

TEST(DataPage, TextOfAFile) {
  std::ofstream("input.txt") << std::string(100, 'a') << std::string(100, 'b');
  const std::string text = data::read_text("input.txt");  // or input.txt.gz
  const data::Characters characters(text);
  const data::TextWindows train(characters, text, {.context = 64});
  data::DataLoader loader(train, {.batch_size = 16, .shuffle = true});  // input and target i64[16,64]
  EXPECT_EQ(describe(loader.begin()->target), "i64[16,64] cpu");
  EXPECT_EQ(train.size(), 136);
}

TEST(DataPage, GeneratedText) {
  const data::GeneratedText train({.context = 64}), validation({.train = false, .context = 64});
  std::cout << train.entropy() << ' ' << train.least_loss() << '\n';
  EXPECT_LT(train.entropy(), train.least_loss());
}

class Lines : public data::IterableDataset {
  struct Stream : data::SampleStream {
    std::ifstream file{"numbers.txt"};
    std::optional<data::Sample> next() override {
      float x;
      if (file >> x) return data::Sample{scalar(x)};
      return std::nullopt;
    }
  };
  std::unique_ptr<data::SampleStream> open(uint64_t) const override { return std::make_unique<Stream>(); }
};

TEST(DataPage, DataOfUnknownLength) {
  std::ofstream("numbers.txt") << "1 2 3 4 5";
  data::IterableLoader loader(Lines(), {.batch_size = 2});
  std::vector<float> read;
  for (const data::Batch& b : loader)
    for (float x : b.input.to_vector<float>()) read.push_back(x);
  EXPECT_THAT(read, ElementsAre(1, 2, 3, 4, 5));
}

TEST(DataPage, SeveralStreamsAtOnce) {
  std::ofstream("numbers.txt") << "1 2 3";
  std::vector<std::vector<float>> batches;
  const auto step = [&](const Tensor& x) { batches.push_back(x.to_vector<float>()); };
  std::vector<std::shared_ptr<const data::IterableDataset>> files = {std::make_shared<Lines>(),
                                                                     std::make_shared<Lines>()};
  data::IterableLoader merged(data::ParallelStreams(files), {.batch_size = 2});
  for (const data::Batch& b : merged) step(b.input);
  EXPECT_THAT(batches, ElementsAre(ElementsAre(1, 1), ElementsAre(2, 2), ElementsAre(3, 3)));
}

}  // namespace
}  // namespace gradus
