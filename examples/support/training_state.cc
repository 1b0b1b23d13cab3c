#include "gradus/examples/support/training_state.h"

#include "gradus/tensor/context.h"

namespace gradus::examples {
namespace {

void put(io::Checkpoint& c, const std::string& name, const optim::State& state) {
  c.put(name + ".tensors", state.tensors);
  for (const auto& [key, value] : state.numbers) c.put(name + ".numbers." + key, value);
}

optim::State get(const io::Checkpoint& c, const std::string& name) {
  optim::State state{.tensors = c.tensors(name + ".tensors"), .numbers = {}};
  const io::Checkpoint numbers = c.section(name + ".numbers");
  for (const std::string& key : numbers.names()) state.numbers.emplace_back(key, numbers.get<double>(key));
  return state;
}

}  // namespace

io::Checkpoint TrainingState::save() const {
  io::Checkpoint c;
  c.put("model", model.state_dict());
  put(c, "optimizer", optimizer.state_dict());
  put(c, "schedule", schedule.state_dict());
  const data::LoaderState at = loader.state();
  c.put("loader.epoch", at.epoch);
  c.put("loader.samples", at.samples);
  c.put("loader.seed", at.seed);
  c.put("loader.dataset_size", at.dataset_size);
  const auto [seed, draws] = Context::current().generator->state();
  c.put("generator.seed", seed);
  c.put("generator.draws", draws);
  return c;
}

void TrainingState::load(const io::Checkpoint& c) const {
  loader.set_state({.epoch = c.get<uint64_t>("loader.epoch"),
                    .samples = c.get<int64_t>("loader.samples"),
                    .seed = c.get<uint64_t>("loader.seed"),
                    .dataset_size = c.get<int64_t>("loader.dataset_size")});
  model.load_state_dict(c.tensors("model"));
  optimizer.load_state_dict(get(c, "optimizer"));
  schedule.load_state_dict(get(c, "schedule"));
  Context::current().generator->set_state(
      {c.get<uint64_t>("generator.seed"), c.get<uint64_t>("generator.draws")});
}

}  // namespace gradus::examples
