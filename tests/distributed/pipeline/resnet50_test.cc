// A ResNet-50 of full width from one file: its ranks give the logits of the undivided network, and each reads
// little more than its own tensors.
#include <gtest/gtest.h>

#include <fstream>
#include <mutex>

#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/pipeline/pipeline.h"
#include "gradus/io/safetensors.h"
#include "gradus/models/resnet.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/io/testing.h"
#include "gradus/tests/ops/values.h"

namespace gradus::dist {
namespace {

// Returns how many bytes this thread has read from files. -1: the system does not count.
int64_t bytes_read() {
  std::ifstream counts("/proc/thread-self/io");
  std::string name;
  int64_t bytes = -1;
  counts >> name >> bytes;
  return name == "rchar:" ? bytes : -1;
}

TEST(ResNet50, LoadedInStagesGivesTheUndividedNetworksLogits) {
  io::TempDir dir;
  const Tensor x = random_tensor({2, 3, 64, 64});
  std::vector<float> want;
  run_ranks(1, [&] {
    set_num_threads(1);
    manual_seed(5);
    models::ResNet net(models::resnet50());
    net(random_tensor({2, 3, 64, 64}, DType::kF32, 7));  // running statistics
    net.eval();
    want = net(x).to_vector<float>();
    io::save_safetensors(dir / "resnet50", net.state_dict());
  });
  for (const int ranks : {2, 4}) {
    int64_t parameters = 0;
    std::mutex mutex;
    run_ranks(ranks, [&] {
      set_num_threads(1);
      manual_seed(6);
      std::vector<std::string> cuts = {"layer1", "layer2", "layer3"};
      if (ranks == 2) cuts = {"layer3.2"};
      Pipeline<models::ResNet> pipe([] { return std::make_unique<models::ResNet>(models::resnet50()); }, x,
                                    {.micro_batches = 1, .cut_after = cuts});
      int64_t own = 0;
      for (const auto& [name, t] : pipe.module().state_dict())
        if (t.device() == kCPU) own += t.nbytes();
      const int64_t before = bytes_read();
      pipe.load_weights(dir / "resnet50");
      if (before >= 0) {
        EXPECT_GE(bytes_read() - before, own);
        EXPECT_LE(double(bytes_read() - before), 1.1 * double(own));
      }
      pipe.eval();
      const Tensor logits = pipe.forward(x);
      EXPECT_EQ(logits.defined(), get_rank() == ranks - 1);
      EXPECT_EQ(logits.defined() ? logits.to_vector<float>() : want, want);
      const std::lock_guard lock(mutex);
      for (const Tensor& p : pipe.parameters()) parameters += p.numel();
    });
    EXPECT_EQ(parameters, 25'557'032);
  }
}

}  // namespace
}  // namespace gradus::dist
