// CallRecorder: the kernel calls of a step on the CPU, in order, and the memory of their intermediate results.
#pragma once

#include <functional>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gradus/tensor/runtime/capture.h"
#include "gradus/tensor/runtime/stream.h"
#include "gradus/tensor/stored_call.h"

namespace gradus::internal {

class CallRecorder final : public Capture {
 public:
  Device device() const override { return kCPU; }
  bool is_recording() const override { return true; }
  void add(const KernelCall& call) override;
  void allocated(const Storage& storage) override { own_.insert(&storage); }
  void use(const Ref<Storage>&) override {}
  Stream side_stream() override { return Stream::of(kCPU); }
  bool is_own(const Storage& storage) const override { return own_.contains(&storage); }
  void run_on_host(const char* op, std::function<void()> f) override;
  void after_replay(std::function<void()> f) override { after_replay_.push_back(std::move(f)); }

  // Ends the recording. Intermediate results, which only the recorded calls refer to, move into one arena,
  // where results that are not needed at the same time share memory.
  void finish();
  // Runs the calls again, in order, and increments the versions of the storages that they write.
  // Errors: those of the kernels, such as IndexError; later calls have then not run.
  void replay() const;
  // Returns whether the tensors from before the recording still have their storages, and all conditions of a
  // replay hold.
  bool is_current() const;
  // Returns whether a call uses the storage, which exists since before the recording.
  bool uses(const Storage& storage) const;
  // Bytes of the arena, and the sum of the sizes of the intermediate results in it.
  int64_t arena_bytes() const { return arena_bytes_; }
  int64_t intermediate_bytes() const { return intermediate_bytes_; }

 private:
  // A kernel call, or a function of run_on_host.
  struct Entry {
    std::unique_ptr<const StoredCall> call;
    std::function<void()> on_host;
    std::vector<Ref<Storage>> written;  // whose version is incremented after the entry
    bool in_training = false;           // Context::replays_training while it runs again
  };
  struct KnownStorage {
    Ref<Storage> storage;
    uint32_t version;  // at the end of the last entry
  };

  void note_writes();
  bool drop_history();
  void plan_memory();

  std::vector<Entry> entries_;
  std::vector<std::function<void()>> after_replay_;
  std::unordered_set<const Storage*> own_;   // allocated during the recording
  std::unordered_set<const Storage*> seen_;  // the storages of all arguments so far
  std::vector<KnownStorage> known_;          // the storages in seen_, with their versions
  std::vector<Ref<Storage>> persistent_;     // of tensors that live longer than the step
  int64_t arena_bytes_ = 0, intermediate_bytes_ = 0;
};

}  // namespace gradus::internal
