// TrainingState: everything that a training needs to resume, as one checkpoint of all ranks.
//
//   TrainingState state{
//       {"net", net}, {"opt", opt}, {"schedule", schedule}, {"loader", loader}, {"steps", steps}};
//   state.resume("runs/last.ckpt");  // loads it, if it exists
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

// The generator of the current Context is always a part, "generator". Each rank has its own generators: a
// checkpoint holds one state for all ranks if they are equal, else one for each, and ranks that the writing
// job did not have get new ones. Of all other parts the state of the first rank serves all ranks:
// data-parallel training keeps them equal.
class TrainingState {
 public:
  // A name and an object that is saved and loaded under it: a module, also DistributedDataParallel, an
  // optimizer, a schedule, an average, a loader, a scaler, a generator, or anything else io::Stateful; or a
  // variable: a number, a string, a tensor. The object must outlive the TrainingState.
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
    // A pipeline and the optimizer of its parameters, saved as {"model", net} and {"optimizer", opt} of the
    // undivided model. All ranks then share the part "generator".
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

  // Errors: ValueError for a name that is empty, repeated, "generator", or a prefix of another name ("net"
  // and "net.head"); for a second pipeline, and for a pipeline with a group.
  TrainingState(std::initializer_list<Part> parts, TrainingStateOptions options = {});
  TrainingState(std::vector<Part> parts, TrainingStateOptions options = {});

  // Writes all parts and `more`, as io::save_checkpoint does, and makes the folder of the file. In the body
  // of a loader's loop the state of the loader is that after the current batch. Collective. Only the first
  // rank of the group writes, and other ranks do not wait for the file; the ranks of a pipeline all write and
  // wait.
  // Errors: as save_checkpoint, on the rank that writes. dist::DistributedError if a rank does not call save.
  // StateError between the batches of an optimizer's step.
  void save(const std::filesystem::path& path, const io::Checkpoint& more = {},
            const io::SaveOptions& options = {}) const;

  // Loads a file that save has written, and returns its content, with the `more` of save, and
  // load_checkpoint's warning, if any. The first rank of the group reads for all; the ranks of a pipeline
  // read their own stages. Collective. `check` is called with the content before a part changes (tensors of a
  // pipeline have no data); it may throw to refuse the file, and must not communicate.
  // Errors, the same on all ranks: as load_checkpoint; those of `check`; FileError for a missing part; those
  // of a part that does not fit, after which the parts before it are loaded.
  io::LoadedCheckpoint load(const std::filesystem::path& path,
                            const std::function<void(const io::LoadedCheckpoint&)>& check = {}) const;
  // Loads `path` if the first rank of the group finds it or its previous file. Returns whether it did. Prints
  // a warning of load to std::cerr. Collective.
  bool resume(const std::filesystem::path& path) const;

  // As save and load, without a file and without a pipeline. collect is collective. restore is not: all ranks
  // must have the same checkpoint (dist::bcast_checkpoint).
  io::Checkpoint collect() const;
  void restore(const io::Checkpoint& checkpoint) const;

  // Compares the parameters and buffers of modules over all ranks, and the parameters of a pipeline over its
  // replicas. Collective.
  // Errors: MismatchError with the first tensor that differs.
  void check_synchronized() const;
  // Return the parts that are optimizers, with their names, and those that are modules.
  std::vector<std::pair<std::string, optim::Optimizer*>> optimizers() const;
  std::vector<nn::Module*> modules() const;

 private:
  const Part* pipeline() const;  // null: none

  std::vector<Part> parts_;
  dist::Group group_;
};

}  // namespace gradus
