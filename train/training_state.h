// TrainingState: all that a training needs to go on where it was, as one checkpoint of all ranks.
//
//   TrainingState state{
//       {"net", net}, {"opt", opt}, {"schedule", schedule}, {"loader", loader}, {"steps", steps}};
//   state.resume("runs/last.ckpt");  // goes on from it, if there is one
//   while (loader.epoch() < 14) {
//     for (const data::Batch& b : loader) {
//       ...
//       if (++steps % 1000 == 0) state.save("runs/last.ckpt");
//     }
//     schedule.step();
//     state.save("runs/last.ckpt");
//   }
//
// A GAN lists its two networks, its two optimizers, ...: {"gen", gen}, {"disc", disc}, {"opt_g", opt_g}, ...
// A dist::Pipeline goes with the optimizer of its parameters, without names of their own: {pipe, opt}.
// Any number of ranks reads what any number has written.
#pragma once

#include <concepts>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "gradus/distributed/group/group.h"
#include "gradus/distributed/pipeline/pipeline_base.h"
#include "gradus/io/checkpoint.h"
#include "gradus/nn/module.h"
#include "gradus/optim/optimizer.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus {

struct TrainingStateOptions {
  dist::Group group = {};  // the ranks that train together; by default all
};

// The current Context's random numbers are a part by themselves, "generator". Each rank's generators are
// its own, as those that are seeded differently must be; ranks that the writing job had not get numbers of
// their own where its ranks' differed. Of all else the first rank's state is everyone's, as data parallel
// training makes it.
class TrainingState {
 public:
  // A name, and what is saved and loaded under it: a model, also within DistributedDataParallel, an
  // optimizer, a schedule, an average, a loader, a scaler, a generator (io::Stateful says what else); or a
  // variable: a number, a string, a tensor. It must outlive the TrainingState.
  class Part {
   public:
    template <class T>
    Part(std::string name, T& object)
        : name_(std::move(name)),
          put_([&object](io::Checkpoint& c, const std::string& key) { c.put(key, object); }),
          get_([&object](const io::Checkpoint& c, const std::string& key) { c.get(key, object); }) {
      if constexpr (std::derived_from<T, nn::Module>) module_ = &object;
      if constexpr (std::derived_from<T, optim::Optimizer>) optimizer_ = &object;
    }
    Part(std::string name, RandomGenerator& generator) : name_(std::move(name)), generator_(&generator) {}
    // A pipeline writes and reads its parts itself: "model" and "optimizer", with the undivided model's
    // names, and "generator", which all ranks then share. The same as {"model", net}, {"optimizer", opt}.
    Part(dist::internal::PipelineBase& pipeline, optim::Optimizer& optimizer)
        : pipeline_(&pipeline), optimizer_(&optimizer) {}

   private:
    friend class TrainingState;
    std::string name_;
    std::function<void(io::Checkpoint&, const std::string&)> put_;
    std::function<void(const io::Checkpoint&, const std::string&)> get_;
    RandomGenerator* generator_ = nullptr;  // instead of put_ and get_
    nn::Module* module_ = nullptr;          // if it is one
    dist::internal::PipelineBase* pipeline_ = nullptr;
    optim::Optimizer* optimizer_ = nullptr;
  };

  // Errors: ValueError for a name that is empty, repeated, "generator", or lies below another one:
  // "net" and "net.head"; for a second pipeline, and for one with a group.
  TrainingState(std::initializer_list<Part> parts, TrainingStateOptions options = {})
      : TrainingState(std::vector<Part>(parts), std::move(options)) {}
  TrainingState(std::vector<Part> parts, TrainingStateOptions options = {});

  // Writes all of it, and `more`, as io::save_checkpoint does; makes the file's folder. In the body of a
  // loader's loop it is the state after the batch at hand. Collective: all ranks call it, not the first alone.
  // Only the group's first rank writes, and the others do not wait for the file, unless there is a pipeline.
  // Errors: as save_checkpoint, on the group's first rank; with a pipeline on all. A dist::DistributedError
  // where some ranks do not call it. StateError between the batches of an optimizer's step.
  void save(const std::filesystem::path& path, const io::Checkpoint& more = {},
            const io::SaveOptions& options = {}) const;

  // Reads what save has written, on the group's first rank for all; the ranks of a pipeline all read, each
  // its own part. Collective. Returns what was read, for what else it holds and for its warning. `check` is
  // called before anything is changed, with the file's path and all that it holds, of a pipeline's tensors
  // without data; it throws to refuse the file, and must not communicate.
  // Errors: as load_checkpoint; what `check` throws; FileError for a part that is not there; those of parts
  // that do not fit. They are the same on all ranks. Parts in front of the one that does not fit are loaded.
  io::LoadedCheckpoint load(const std::filesystem::path& path,
                            const std::function<void(const io::LoadedCheckpoint&)>& check = {}) const;
  // Loads `path` if the group's first rank finds it or its previous one; returns whether. Prints the warning,
  // if there is one, to std::cerr. Collective.
  bool resume(const std::filesystem::path& path) const;

  // The same without files, and without what a pipeline writes and reads itself. Collective; restore is not,
  // and wants the same checkpoint on all ranks (dist::bcast_checkpoint).
  io::Checkpoint collect() const;
  void restore(const io::Checkpoint& checkpoint) const;

  // Compares the parameters and buffers of all parts that are modules, over all ranks; the parameters of a
  // pipeline over its replicas. Collective.
  // Errors: MismatchError naming the first tensor that differs.
  void check_synchronized() const;
  // Returns the optimizers, with their names.
  std::vector<std::pair<std::string, optim::Optimizer*>> optimizers() const;

 private:
  const Part* pipeline() const;  // the part that is one; null: none

  std::vector<Part> parts_;
  dist::Group group_;
};

}  // namespace gradus
