// IterableLoader in jobs of 1, 2 and 3 ranks: one stream shared by all ranks and its checkpoint, which another
// number of ranks resumes; loaders that differ; streams of each rank's own under join.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/data/iterable_loader.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/io/checkpoint.h"
#include "gradus/nn/nn.h"
#include "gradus/tests/distributed/threads.h"

namespace gradus::dist {
namespace {

using testing::HasSubstr;

class Count : public data::IterableDataset {
 public:
  explicit Count(int64_t size) : size_(size) {}
  std::unique_ptr<data::SampleStream> open(uint64_t) const override {
    return std::make_unique<Stream>(size_);
  }

 private:
  struct Stream : data::SampleStream {
    explicit Stream(int64_t size_) : size(size_) {}
    std::optional<data::Sample> next() override {
      if (at == size) return std::nullopt;
      return data::Sample{full({1}, float(at++))};
    }
    const int64_t size;
    int64_t at = 0;
  };
  int64_t size_;
};

TEST(IterableRanks, AnotherNumberOfRanksResumesFromACheckpoint) {
  constexpr int64_t kSize = 29;
  for (int before : {1, 2, 3})
    for (int after : {1, 2, 3}) {
      std::mutex mutex;
      std::vector<int64_t> seen;
      io::Checkpoint checkpoint;
      const auto add = [&](const data::Batch& b) {
        const std::lock_guard lock(mutex);
        seen.insert(seen.end(), b.indices.begin(), b.indices.end() - b.padding);
      };
      run_ranks(before, [&] {
        data::IterableLoader loader(Count(kSize), {.batch_size = 2});
        int steps = 0;
        for (const data::Batch& b : loader) {
          add(b);
          const Tensor n = scalar(double(b.size()));
          all_reduce(n);
          EXPECT_EQ(n.item<double>(), double(b.global_size));
          if (++steps == 3) break;
        }
        if (get_rank() == 0) checkpoint.put("loader", loader);
      });
      run_ranks(after, [&] {
        data::IterableLoader loader(Count(kSize), {.batch_size = 3});
        checkpoint.get("loader", loader);
        for (const data::Batch& b : loader) {
          add(b);
          barrier();  // ranks have the same number of batches
        }
        EXPECT_EQ(loader.epoch(), 1u);
      });
      std::sort(seen.begin(), seen.end());
      std::vector<int64_t> all(kSize);
      for (int64_t i = 0; i < kSize; ++i) all[size_t(i)] = i;
      EXPECT_EQ(seen, all) << before << " ranks, then " << after;
    }
}

TEST(IterableRanks, LoadersThatDifferAreAnErrorOnARank) {
  const auto errors = errors_of(2, [] {
    data::IterableLoader loader(Count(8), {.batch_size = get_rank() == 0 ? 2 : 4});
    barrier();
  });
  EXPECT_THAT(errors[0] + errors[1], HasSubstr("must be alike"));
}

TEST(IterableRanks, StreamsOfTheRanksOwnEndUnevenlyUnderJoin) {
  for (int world : {1, 2, 3})
    run_ranks(world, [] {
      nn::Linear net({.in = 1, .out = 1});
      DistributedDataParallel ddp(net);
      GradManager gm;
      ddp.attach(gm);
      data::IterableLoader loader(Count(2 + 3 * get_rank()), {.world_size = 1});
      int64_t steps = 0;
      ddp.join([&] {
        for (const data::Batch& b : loader) {
          auto recording = gm.record();
          gm.backward(mean(net(b.input)));
          ++steps;
        }
      });
      EXPECT_EQ(steps, 2 + 3 * get_rank());
      barrier();
    });
}

}  // namespace
}  // namespace gradus::dist
