#include "gradus/examples/support/training_state.h"

#include <cstdio>
#include <memory>
#include <utility>

#include "gradus/distributed/object.h"
#include "gradus/distributed/wire.h"
#include "gradus/examples/support/ranks.h"
#include "gradus/io/file.h"
#include "gradus/tensor/context.h"
#include "gradus/tensor/error.h"

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

io::LoadedCheckpoint from_first_rank(io::LoadedCheckpoint loaded) {
  using Texts = std::vector<std::string>;  // path, warning, content of the file
  Texts texts = {loaded.path, loaded.warning};
  if (!loaded.path.empty() && is_first_rank()) texts.push_back(io::read_file(loaded.path, int64_t{1} << 40));
  texts = dist::from_wire<Texts>(dist::broadcast_object(dist::to_wire(texts)));
  if (is_first_rank() || texts[0].empty()) return loaded;
  // A file without a name: it is gone when it is closed.
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::tmpfile(), &std::fclose);
  if (!file || std::fwrite(texts[2].data(), 1, texts[2].size(), file.get()) != texts[2].size() ||
      std::fflush(file.get()) != 0)
    throw FileError("resume", "cannot write a temporary file");
  loaded = io::load_checkpoint("/proc/self/fd/" + std::to_string(fileno(file.get())));
  loaded.path = texts[0];
  loaded.warning = texts[1];
  return loaded;
}

}  // namespace gradus::examples
