// convert_sync_batchnorm and related functions visit a module's layers and set or reset their
// StatisticsReduction, through which a layer in training gathers tensors of all ranks: BatchNorm its count,
// mean and sum of squared deviations, MinibatchStdDev its input. The all-gather is differentiable. Without a
// reduction, layers are local.
#include "gradus/distributed/data_parallel/sync_batch_norm.h"

#include "gradus/autograd/ops/view.h"
#include "gradus/distributed/group/functional.h"
#include "gradus/distributed/group/group_state.h"
#include "gradus/nn/layers/batch_norm.h"
#include "gradus/nn/layers/gan/norm.h"

namespace gradus::dist {
namespace {

class GroupStatisticsReduction final : public nn::StatisticsReduction {
 public:
  explicit GroupStatisticsReduction(Group group) : group_(std::move(group)) {}
  int size() const override { return group_.size(); }
  int rank() const override { return group_.rank(); }
  Tensor all_gather(const Tensor& x) override {  // x [k] of each rank -> [size, k]
    return functional::cat_all_gather(reshape(x, {1, x.numel()}), 0, {group_});
  }
  int64_t sum(int64_t local) override {
    int64_t total = 0;
    internal::Collective call{
        .op = "SyncBatchNorm", .record = {.op = internal::Op::kSyncBatchNorm}, .sizes = {local}};
    call.is_agreement = true;
    call.move = [&](internal::MatchedCall& matched) {
      for (const auto& sizes : matched.sizes)
        for (const int64_t n : sizes) total += n;
    };
    group_.state().run(std::move(call), false, {});
    return total;
  }

 private:
  const Group group_;
};

// Sets the reduction of all layers of type L; null: none. Returns the number of layers.
template <class L>
int set_reduction(nn::Module& module, const std::shared_ptr<nn::StatisticsReduction>& reduction) {
  int count = 0;
  module.apply([&](nn::Module& m) {
    if (auto* layer = dynamic_cast<L*>(&m)) {
      layer->set_reduction(reduction);
      ++count;
    }
  });
  return count;
}

}  // namespace

int convert_sync_batchnorm(nn::Module& module, const Group& group) {
  group.state().check_member("convert_sync_batchnorm");
  return set_reduction<nn::BatchNorm>(module, std::make_shared<GroupStatisticsReduction>(group));
}

int revert_sync_batchnorm(nn::Module& module) { return set_reduction<nn::BatchNorm>(module, nullptr); }

int convert_sync_minibatch_stddev(nn::Module& module, const Group& group) {
  group.state().check_member("convert_sync_minibatch_stddev");
  return set_reduction<nn::MinibatchStdDev>(module, std::make_shared<GroupStatisticsReduction>(group));
}

int revert_sync_minibatch_stddev(nn::Module& module) {
  return set_reduction<nn::MinibatchStdDev>(module, nullptr);
}

}  // namespace gradus::dist
