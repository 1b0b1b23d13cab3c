// TrainingState: saves and loads the objects of a training (parts) as one checkpoint of all ranks. Generators
// are gathered from all ranks; every other part is written from the group's first rank, since data
// parallelism keeps the parts equal. To load, the first rank reads the file and broadcasts it. With a
// pipeline part, the pipeline writes and reads the file itself, because each rank has only its stages.
#include "gradus/train/training_state.h"

#include <algorithm>
#include <iostream>
#include <span>
#include <system_error>

#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/data_parallel/bcast_checkpoint.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/group/group_state.h"
#include "gradus/distributed/group/object.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

constexpr const char* kOp = "TrainingState";
constexpr const char* kContextGenerator = "generator";

std::string name_of_rank(const std::string& name, size_t rank) { return concat(name, ".ranks.", rank); }

// Whether the dotted name a is below b: "net.head" below "net".
bool is_below(const std::string& a, const std::string& b) {
  return a.size() > b.size() && a.starts_with(b) && a[b.size()] == '.';
}

// Puts the generators of all ranks, in the group's order: the first rank's under `name` and, if they differ,
// each rank's under "NAME.ranks.RANK".
void put(io::Checkpoint& c, const std::string& name, const std::vector<RandomGenerator>& ranks) {
  c.put(name, ranks[0]);
  const bool differ = std::any_of(ranks.begin(), ranks.end(),
                                  [&](const RandomGenerator& g) { return g.state() != ranks[0].state(); });
  if (!differ) return;
  for (size_t rank = 0; rank < ranks.size(); ++rank) c.put(name_of_rank(name, rank), ranks[rank]);
}

// Gets a rank's generator. A rank that the writing job did not have gets a new seed, derived from the first
// rank's state and the rank, if the generators differed.
void get(const io::Checkpoint& c, const std::string& name, size_t rank, RandomGenerator& generator) {
  const std::string own = name_of_rank(name, rank);
  if (c.contains(own + ".seed")) {
    c.get(own, generator);
    return;
  }
  c.get(name, generator);
  if (c.names(name + ".ranks").empty()) return;
  const auto [seed, draws] = generator.state();
  const auto bits = philox(seed, draws, rank);
  generator.manual_seed(uint64_t(bits[0]) << 32 | bits[1]);
}

// Calls f. Adds to errors between ranks that all ranks must call `function`.
template <class F> auto collective(const char* function, F f) {
  try {
    return f();
  } catch (dist::DistributedError& error) {
    error.add_context(concat("in ", kOp, "::", function, ", which all ranks must call"));
    throw;
  }
}

}  // namespace

TrainingState::TrainingState(std::initializer_list<Part> parts, TrainingStateOptions options)
    : TrainingState(std::vector<Part>(parts), std::move(options)) {}

TrainingState::TrainingState(std::vector<Part> parts, TrainingStateOptions options)
    : parts_(std::move(parts)), group_(std::move(options.group)) {
  std::vector<std::string> names;
  int pipelines = 0;
  for (const Part& part : parts_) {
    if (!part.pipeline_) {
      names.push_back(part.name_);
      continue;
    }
    if (++pipelines > 1) throw ValueError(kOp, "two pipelines: a checkpoint holds one");
    if (!group_.is_default()) throw ValueError(kOp, "a pipeline's checkpoint is that of the whole job");
    names.insert(names.end(), {"model", "optimizer"});
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    if (name.empty()) throw ValueError(kOp, "part ", i, " has no name");
    if (name == kContextGenerator || is_below(name, kContextGenerator))
      throw ValueError(kOp, "the name '", name,
                       "' is that of the Context's generator, which is always a part");
    for (size_t j = 0; j < i; ++j) {
      const std::string& other = names[j];
      if (name == other) throw ValueError(kOp, "two parts are named '", name, "'");
      if (is_below(name, other) || is_below(other, name))
        throw ValueError(kOp, "the names '", other, "' and '", name, "' lie one below the other");
    }
  }
}

const TrainingState::Part* TrainingState::pipeline() const {
  const auto found = std::ranges::find_if(parts_, [](const Part& p) { return p.pipeline_ != nullptr; });
  return found == parts_.end() ? nullptr : &*found;
}

io::Checkpoint TrainingState::collect() const {
  std::vector<std::pair<std::string, RandomGenerator>> generators;
  if (!pipeline()) generators.emplace_back(kContextGenerator, *Context::current().generator);
  io::Checkpoint c;
  for (const Part& part : parts_)
    if (part.generator_)
      generators.emplace_back(part.name_, *part.generator_);
    else if (!part.pipeline_)
      part.put_(c, part.name_);
  dist::WireWriter local;
  for (const auto& [name, generator] : generators)
    for (const uint64_t number : generator.state()) local.put(number);
  const std::vector<std::string> all =
      dist::internal::gather_strings(group_.state(), dist::internal::Op::kSaveTrainingState, local.release());
  std::vector<std::vector<RandomGenerator>> of_ranks(generators.size());
  for (const std::string& bytes : all) {
    dist::WireReader wire(bytes);
    for (std::vector<RandomGenerator>& ranks : of_ranks) {
      std::array<uint64_t, 2> state{};
      for (uint64_t& number : state) wire.get(number);
      ranks.emplace_back().set_state(state);
    }
  }
  for (size_t i = 0; i < generators.size(); ++i) put(c, generators[i].first, of_ranks[i]);
  return c;
}

void TrainingState::restore(const io::Checkpoint& checkpoint) const {
  const auto rank = static_cast<size_t>(group_.rank());
  for (const Part& part : parts_)
    if (part.generator_)
      get(checkpoint, part.name_, rank, *part.generator_);
    else if (!part.pipeline_)
      part.get_(checkpoint, part.name_);
  if (!pipeline()) get(checkpoint, kContextGenerator, rank, *Context::current().generator);
}

void TrainingState::save(const fs::path& path, const io::Checkpoint& more,
                         const io::SaveOptions& options) const {
  io::Checkpoint c = collective("save", [&] { return collect(); });
  more.each([&](const std::string& name, const auto& value) { c.put(name, value); });
  if (const Part* part = pipeline()) return part->pipeline_->save(path, *part->optimizer_, c, options);
  if (group_.rank() != 0) return;
  std::error_code error;  // save_checkpoint reports a missing folder
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  io::save_checkpoint(path, c, options);
}

io::LoadedCheckpoint TrainingState::load(
    const fs::path& path, const std::function<void(const io::LoadedCheckpoint&)>& check) const {
  const Part* part = pipeline();
  const io::LoadedCheckpoint loaded =
      part ? part->pipeline_->load(path, *part->optimizer_, check) : collective("load", [&] {
        return dist::bcast_checkpoint([&] { return io::load_checkpoint(path); }, {.group = group_});
      });
  if (check && !part) check(loaded);
  try {
    restore(loaded.checkpoint);
  } catch (Error& e) {
    e.add_context("while loading " + loaded.path);
    throw;
  }
  return loaded;
}

bool TrainingState::resume(const fs::path& path) const {
  const auto is_there = [](const fs::path& p) {
    std::error_code error;  // an unreadable file counts as present: load_checkpoint reports the reason
    return fs::status(p, error).type() != fs::file_type::not_found;
  };
  const bool found = group_.rank() == 0 && (is_there(path) || is_there(path.string() + ".previous"));
  const std::string answer = collective("resume", [&] {
    return dist::broadcast_object(found ? "found" : "", {.src = group_.ranks()[0], .group = group_});
  });
  if (answer.empty()) return false;
  const io::LoadedCheckpoint loaded = load(path);
  if (!loaded.warning.empty() && group_.rank() == 0) std::cerr << "gradus: " << loaded.warning << std::endl;
  return true;
}

void TrainingState::check_synchronized() const {
  for (const Part& part : parts_)
    if (part.module_)
      dist::check_synchronized(*part.module_, group_);
    else if (part.pipeline_)
      dist::check_synchronized(part.pipeline_->named_parameters(), part.pipeline_->grid().group("replica"));
}

std::vector<std::pair<std::string, optim::Optimizer*>> TrainingState::optimizers() const {
  std::vector<std::pair<std::string, optim::Optimizer*>> found;
  for (const Part& part : parts_)
    if (part.optimizer_) found.emplace_back(part.pipeline_ ? "optimizer" : part.name_, part.optimizer_);
  return found;
}

std::vector<nn::Module*> TrainingState::modules() const {
  std::vector<nn::Module*> found;
  for (const Part& part : parts_)
    if (part.module_) found.push_back(part.module_);
  return found;
}

}  // namespace gradus
