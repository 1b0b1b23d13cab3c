#include "gradus/train/training_state.h"

#include <algorithm>
#include <iostream>
#include <span>
#include <system_error>

#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/data_parallel/bcast_checkpoint.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/group/object.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

constexpr const char* kOp = "TrainingState";
constexpr const char* kContextGenerator = "generator";

std::string name_of_rank(const std::string& name, size_t rank) { return concat(name, ".ranks.", rank); }

bool lies_below(const std::string& a, const std::string& b) {
  return a.size() > b.size() && a.starts_with(b) && a[b.size()] == '.';
}

// A generator of all ranks, in the group's order: the first rank's, and each one's where they differ.
void put(io::Checkpoint& c, const std::string& name, const std::vector<RandomGenerator>& ranks) {
  c.put(name, ranks[0]);
  const bool differ = std::any_of(ranks.begin(), ranks.end(),
                                  [&](const RandomGenerator& g) { return g.state() != ranks[0].state(); });
  if (!differ) return;
  for (size_t rank = 0; rank < ranks.size(); ++rank) c.put(name_of_rank(name, rank), ranks[rank]);
}

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

}  // namespace

TrainingState::TrainingState(std::vector<Part> parts, TrainingStateOptions options)
    : parts_(std::move(parts)), group_(std::move(options.group)) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    const std::string& name = parts_[i].name_;
    if (name.empty()) throw ValueError(kOp, "part ", i, " has no name");
    if (name == kContextGenerator || lies_below(name, kContextGenerator))
      throw ValueError(kOp, "the name '", name,
                       "' is that of the Context's generator, which is always a part");
    for (size_t j = 0; j < i; ++j) {
      const std::string& other = parts_[j].name_;
      if (name == other) throw ValueError(kOp, "two parts are named '", name, "'");
      if (lies_below(name, other) || lies_below(other, name))
        throw ValueError(kOp, "the names '", other, "' and '", name, "' lie one below the other");
    }
  }
}

io::Checkpoint TrainingState::collect() const {
  std::vector<std::pair<std::string, RandomGenerator>> generators = {
      {kContextGenerator, *Context::current().generator}};
  io::Checkpoint c;
  for (const Part& part : parts_)
    if (part.generator_)
      generators.emplace_back(part.name_, *part.generator_);
    else
      part.put_(c, part.name_);

  dist::WireWriter mine;
  for (const auto& [name, generator] : generators)
    for (const uint64_t number : generator.state()) mine.put(number);
  const std::vector<std::string> all = dist::all_gather_object(mine.take(), {.group = group_});
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
    else
      part.get_(checkpoint, part.name_);
  get(checkpoint, kContextGenerator, rank, *Context::current().generator);
}

void TrainingState::save(const fs::path& path, const io::SaveOptions& options) const {
  const io::Checkpoint c = collect();
  if (group_.rank() != 0) return;
  std::error_code error;  // save_checkpoint says what is wrong
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  io::save_checkpoint(path, c, options);
}

io::LoadedCheckpoint TrainingState::load(const fs::path& path) const {
  return load([&] { return io::load_checkpoint(path); });
}

bool TrainingState::resume(const fs::path& path) const {
  const auto is_there = [](const fs::path& p) {
    std::error_code error;  // what cannot be looked at may be there: load_checkpoint says why
    return fs::status(p, error).type() != fs::file_type::not_found;
  };
  const io::LoadedCheckpoint loaded = load([&] {
    return is_there(path) || is_there(path.string() + ".previous") ? io::load_checkpoint(path)
                                                                   : io::LoadedCheckpoint();
  });
  if (!loaded.warning.empty() && group_.rank() == 0) std::cerr << "gradus: " << loaded.warning << std::endl;
  return !loaded.path.empty();
}

io::LoadedCheckpoint TrainingState::load(const std::function<io::LoadedCheckpoint()>& read) const {
  io::LoadedCheckpoint loaded = dist::bcast_checkpoint(read, {.group = group_});
  if (loaded.path.empty()) return loaded;
  try {
    restore(loaded.checkpoint);
  } catch (Error& e) {
    e.add_context("while loading " + loaded.path);
    throw;
  }
  return loaded;
}

void TrainingState::check_synchronized() const {
  for (const Part& part : parts_)
    if (part.module_) dist::check_synchronized(*part.module_, group_);
}

std::vector<std::pair<std::string, optim::Optimizer*>> TrainingState::optimizers() const {
  std::vector<std::pair<std::string, optim::Optimizer*>> found;
  for (const Part& part : parts_)
    if (part.optimizer_) found.emplace_back(part.name_, part.optimizer_);
  return found;
}

}  // namespace gradus
