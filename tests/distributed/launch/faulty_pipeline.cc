#include "gradus/tests/distributed/launch/faulty_pipeline.h"

#include <utility>

#include "gradus/autograd/graph/record.h"
#include "gradus/distributed/group/process_group.h"

namespace gradus::dist {

FaultyPipeline::Block::Block(Module* parent, std::string name) : Layer(parent, std::move(name)) {
  register_parameter("scale", scale);
}

Tensor FaultyPipeline::Block::forward(const Tensor& x) {
  const auto run = [this](const char* part) {
    if (throws_in == part) throw StateError("faults", "on purpose");
  };
  run("F");
  const Tensor h = fc(x);
  const Tensor y = detach(h * scale);
  if (Recorder r{"block", h, scale})
    r.record(y,
             wrt(h,
                 [run, s = scale](const Tensor& dy) {
                   run("I");
                   return dy * s;
                 }),
             wrt(scale, [run, h = detach(h)](const Tensor& dy) {
               run("W");
               return sum(dy * h, {0});
             }));
  return is_narrow ? narrow(tanh(y), 1, 0, 5) : tanh(y);
}

FaultyPipeline::Blocks::Blocks(int count) {
  for (int i = 0; i < count; ++i) blocks.add();
}

Tensor FaultyPipeline::Blocks::forward(const Tensor& x) {
  Tensor y = x;
  for (size_t i = 0; i < blocks.size(); ++i) y = blocks[i](y);
  return y;
}

FaultyPipeline::FaultyPipeline(std::string kind, bool at_fault, int64_t seed)
    : kind_(std::move(kind)), seed_(seed) {
  const int count = stages(get_world_size(), seed);
  PipelineOptions options{.stages = count, .schedule = Schedule::kZeroBubbleH1, .micro_batch_size = 2};
  for (int s = 0; s + 1 < count; ++s) options.cut_after.push_back("blocks." + std::to_string(s));
  if (at_fault && kind_ == "pipeline-schedule") options.schedule = Schedule::kGPipe;
  pipe_ = std::make_unique<Pipeline<Blocks>>([count] { return std::make_unique<Blocks>(count); },
                                             zeros({2, 6}), options);
  pipe_->attach(gm_);
}

void FaultyPipeline::step() {
  pipe_->step(gm_, randn({rows_, 6}), randn({rows_, 6}), nn::mse_loss);
  for (const Tensor& p : pipe_->parameters()) p.set_grad({});
}

void FaultyPipeline::fault() {
  const std::string part = action(kind_, get_world_size(), get_rank(), seed_);
  Block& own = pipe_->module().blocks[size_t(get_rank() % stages(get_world_size(), seed_))];
  if (kind_ == "pipeline-shape") {
    step();  // has looked at the model: what differs comes later
    own.is_narrow = true;
  } else if (!part.empty()) {
    own.throws_in = kind_ == "pipeline-input-gradient" ? "I" : part.substr(part.size() - 1);
  }
  if (kind_ == "pipeline-micro-batches") rows_ = 8;
  if (kind_ == "pipeline-evaluation")
    pipe_->eval_step(randn({rows_, 6}), randn({rows_, 6}), nn::mse_loss);
  else
    step();
}

int FaultyPipeline::thrower(const std::string& kind, int world, int victim, int64_t seed) {
  const int count = stages(world, seed);
  // The last stage's own loss refuses it.
  return kind == "pipeline-shape" && victim % count + 1 < count ? victim + 1 : victim;
}

std::string FaultyPipeline::action(const std::string& kind, int world, int victim, int64_t seed) {
  const std::string in = "in " + std::to_string(thrower(kind, world, victim, seed) % stages(world, seed));
  if (kind == "pipeline-forward" || kind == "pipeline-shape") return in + "F";
  // The first stage's input needs no gradient: what leads to it belongs to W.
  if (kind == "pipeline-input-gradient") return in + (in.back() == '0' ? "W" : "I");
  if (kind == "pipeline-weight-gradient") return in + "W";
  return "";
}

}  // namespace gradus::dist
