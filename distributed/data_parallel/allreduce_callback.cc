#include "gradus/distributed/data_parallel/allreduce_callback.h"

#include <algorithm>
#include <cctype>

#include "gradus/distributed/data_parallel/internal/reducer.h"

namespace gradus::dist {

NoSync::NoSync(std::vector<std::shared_ptr<internal::Reducer>> reducers) : reducers_(std::move(reducers)) {
  for (const auto& reducer : reducers_) reducer->enter_no_sync();
}
NoSync::~NoSync() {
  for (const auto& reducer : reducers_) reducer->leave_no_sync();
}

AllReduceCallback::AllReduceCallback(ReduceOp op, AllReduceCallbackOptions options, internal::Op maker)
    : reducer_(std::make_shared<internal::Reducer>(op, std::move(options), maker)) {}
AllReduceCallback::~AllReduceCallback() = default;

NoSync AllReduceCallback::no_sync() { return NoSync({reducer_}); }
void AllReduceCallback::drop_pending() { reducer_->drop_pending(); }

const ReducerStats& AllReduceCallback::stats() const { return reducer_->stats(); }
std::vector<std::string> AllReduceCallback::unused_parameters(int backwards) const {
  return reducer_->unused_parameters(backwards);
}
std::vector<std::string> AllReduceCallback::locally_unused_parameters() const {
  return reducer_->locally_unused_parameters();
}

void AllReduceCallback::attached_to(const Tensor& param) { reducer_->attached_to(param); }
void AllReduceCallback::recording_opened(GradManager&) { reducer_->recording_opened(); }
void AllReduceCallback::begin(const std::vector<Tensor>& attached, const std::vector<bool>& reached) {
  reducer_->begin(attached, reached);
}
std::optional<Tensor> AllReduceCallback::ready(const Tensor& param, const Tensor& grad) {
  return reducer_->ready(param, grad);
}
std::vector<GradCallback::Delivery> AllReduceCallback::landed() { return reducer_->landed(); }
std::vector<GradCallback::Delivery> AllReduceCallback::finish() { return reducer_->finish(); }
void AllReduceCallback::abandon(std::exception_ptr error) noexcept { reducer_->abandon(std::move(error)); }

std::shared_ptr<AllReduceCallback> make_allreduce_cb(ReduceOp op, AllReduceCallbackOptions options) {
  return std::make_shared<AllReduceCallback>(op, std::move(options), internal::Op::kMakeAllreduceCb);
}

std::shared_ptr<AllReduceCallback> make_allreduce_cb(std::string_view op, const Group& group) {
  std::string name(op);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  if (name == "sum") return make_allreduce_cb(ReduceOp::kSum, {.group = group});
  if (name == "mean") return make_allreduce_cb(ReduceOp::kMean, {.group = group});
  throw ValueError("make_allreduce_cb", "expected \"sum\" or \"mean\", given \"", op, '"');
}

}  // namespace gradus::dist
