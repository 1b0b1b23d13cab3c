// ReadAhead: the batches of one pass over a data set, which threads read in advance, in order. A loader gives it a
// BatchReader.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gradus/data/dataloader.h"
#include "gradus/data/internal/device_copies.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/fork.h"

namespace gradus::data::internal {

// Reads the batches of one pass.
class BatchReader {
 public:
  struct Read {
    Batch batch;        // where the data set and the transforms make it
    LoaderState after;  // the loader's state once the batch is delivered
  };
  virtual ~BatchReader() = default;
  // Returns batch `number` (0, 1, ...); nullopt if the pass has fewer. `context` is the calling thread's Context,
  // whose generator read() may replace. Several threads call it concurrently, each with other numbers; a single
  // one calls it in order.
  virtual std::optional<Read> read(Context& context, int64_t number) = 0;
  // Returns the indices of batch `number`'s samples, for an error. `before`: the state before that batch. Is
  // called during read().
  virtual std::vector<int64_t> indices(int64_t number, const LoaderState& before) const = 0;

  // read() may return nullopt from now on: nobody takes its batches.
  void cancel() { is_cancelled_.store(true, std::memory_order_relaxed); }

 protected:
  bool is_cancelled() const { return is_cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> is_cancelled_{false};
};

// A loader's position, which it shares with its iterators. Only the loop's thread uses it.
struct LoaderPosition {
  LoaderState current;  // of the current pass, or else of the last one
  LoaderState next;     // from which the next pass starts
  int64_t skipped = 0;  // unreadable samples in the current pass

  void move_to(const LoaderState& state) { current = next = state; }
  // Starts a pass at `next`, and returns its state.
  LoaderState begin_pass();
};

constexpr std::chrono::milliseconds kMaxTimeout = std::chrono::hours(24 * 365);

struct ReadAheadOptions {
  std::string_view loader;                  // "DataLoader": for errors
  std::string dataset;                      // its name, for errors
  int64_t threads = 0;                      // 0: the loop's thread reads each batch when it is taken
  int64_t slots = 1;                        // batches that the threads read in advance
  std::chrono::milliseconds timeout{0};     // of the wait for a batch; 0: no limit
  std::optional<DeviceCopies> copies = {};  // none: batches stay where they are made
};

class BatchQueue;

class ReadAhead {
 public:
  // Begins a pass at position->current. The threads run in copies of the caller's Context, and share ownership of
  // the reader, since a blocked one may outlive the loader.
  ReadAhead(std::shared_ptr<BatchReader> reader, std::shared_ptr<LoaderPosition> position,
            ReadAheadOptions options);
  ~ReadAhead() { stop(); }
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Returns the next batch and moves the position behind it; nullopt at the end, after which the position is at
  // the start of the next epoch.
  // Errors: the reader's, in place of the batch; LoaderTimeoutError; StateError in a fork()ed child.
  std::optional<Batch> take();

 private:
  std::optional<BatchReader::Read> take_from_device();
  void stop();

  const std::shared_ptr<LoaderPosition> position_;
  const ReadAheadOptions options_;
  const std::shared_ptr<BatchQueue> queue_;
  LoaderState delivered_;  // the state after the batches that the loop has received
  struct Copy {
    DeviceCopies::Queued batch;
    LoaderState after;
  };
  std::optional<Copy> next_copy_;  // of the next batch to the device
  const int process_ = gradus::internal::fork_count();
  std::vector<std::thread> threads_;
};

}  // namespace gradus::data::internal
