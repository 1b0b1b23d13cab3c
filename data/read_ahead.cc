// Implementation of ReadAhead and BatchIterator. The threads fill a ring of slots, whose size limits how far they
// run ahead of the loop; without threads, the loop's thread reads.
#include "gradus/data/read_ahead.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include "gradus/data/sample_reading.h"
#include "gradus/tensor/runtime/environment.h"

namespace gradus::data::internal {

LoaderState LoaderPosition::begin_pass() {
  current = next;
  next = {current.epoch + 1, 0, current.seed, current.dataset_size, current.shown};
  skipped = 0;
  return current;
}

// Batches on the host, in order.
class BatchQueue {
 public:
  BatchQueue(std::shared_ptr<BatchReader> reader, const ReadAheadOptions& options, const LoaderState& state)
      : reader_(std::move(reader)),
        options_(options),
        slots_(size_t(options.threads > 0 ? options.slots : 0)),
        taken_(state) {}

  // The main loop of a reading thread. Returns at the end of the pass, and after an error, behind which nobody takes
  // batches.
  void run_thread(Context& context) {
    std::unique_lock lock(mutex_);
    for (bool is_last = false; !is_last;) {
      slot_free_.wait(lock, [&] {
        return stopping_ || next_to_read_ < next_to_take_ + static_cast<int64_t>(slots_.size());
      });
      if (stopping_) return;
      const int64_t number = next_to_read_++;
      ++reading_;
      lock.unlock();
      Slot result = {.is_ready = true};
      try {
        result.read = read(context, number);
      } catch (...) {
        result.error = std::current_exception();
      }
      is_last = !result.read;
      lock.lock();
      if (--reading_ == 0) last_read_.notify_all();
      slot_of(number) = std::move(result);
      if (number == next_to_take_) batch_ready_.notify_one();
    }
  }

  // Returns the next batch; nullopt at the end.
  std::optional<BatchReader::Read> take() {
    if (slots_.empty()) {
      Context context = Context::current().snapshot();
      ContextScope scope(context);
      return read(context, next_to_take_++);
    }
    const RunningRange running = observed({.kind = RangeKind::kData, .name = "wait for batch"});
    std::unique_lock lock(mutex_);
    Slot& slot = slot_of(next_to_take_);
    const auto is_ready = [&] { return slot.is_ready; };
    if (options_.timeout.count() == 0) {
      batch_ready_.wait(lock, is_ready);
    } else if (!batch_ready_.wait_for(lock, options_.timeout, is_ready)) {
      timed_out_ = true;
      throw LoaderTimeoutError(options_.dataset, options_.timeout, reader_->indices(next_to_take_, taken_));
    }
    Slot taken = std::exchange(slot, Slot{});
    ++next_to_take_;
    lock.unlock();
    slot_free_.notify_one();
    if (taken.error) std::rethrow_exception(taken.error);
    if (taken.read) taken_ = taken.read->after;
    return std::move(taken.read);
  }

  // Returns whether take() would return a batch without waiting or reading.
  bool has_next() {
    const std::lock_guard lock(mutex_);
    return !slots_.empty() && slot_of(next_to_take_).read;
  }

  // Stops the threads. Waits for batches being read, for at most the timeout. Returns false if a thread is still
  // blocked and must not be joined.
  bool stop() {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    reader_->cancel();
    slot_free_.notify_all();
    if (options_.timeout.count() == 0 || reading_ == 0) return true;
    return !timed_out_ && last_read_.wait_for(lock, options_.timeout, [&] { return reading_ == 0; });
  }

 private:
  struct Slot {
    bool is_ready = false;
    std::optional<BatchReader::Read> read;  // none: the end, or an error
    std::exception_ptr error;
  };

  std::optional<BatchReader::Read> read(Context& context, int64_t number) {
    std::optional<BatchReader::Read> read = reader_->read(context, number);
    if (read && options_.copies) read->batch = options_.copies->pin(std::move(read->batch));
    return read;
  }
  Slot& slot_of(int64_t number) { return slots_[static_cast<size_t>(number) % slots_.size()]; }

  const std::shared_ptr<BatchReader> reader_;
  const ReadAheadOptions options_;

  std::mutex mutex_;
  std::condition_variable batch_ready_, slot_free_, last_read_;
  std::vector<Slot> slots_;  // none without threads
  LoaderState taken_;        // after the batches that were taken
  int64_t next_to_take_ = 0, next_to_read_ = 0;
  int64_t reading_ = 0;  // number of threads that are reading a batch
  bool stopping_ = false;
  bool timed_out_ = false;  // LoaderTimeoutError was thrown
};

ReadAhead::ReadAhead(std::shared_ptr<BatchReader> reader, std::shared_ptr<LoaderPosition> position,
                     ReadAheadOptions options)
    : position_(std::move(position)),
      options_(std::move(options)),
      queue_(std::make_shared<BatchQueue>(std::move(reader), options_, position_->current)),
      delivered_(position_->current) {
  try {
    for (int64_t i = 0; i < options_.threads; ++i)
      threads_.emplace_back([queue = queue_, context = Context::current().snapshot()]() mutable {
        name_thread("data loader");
        context.threads = 1;  // the cores belong to the training loop
        ContextScope scope(context);
        queue->run_thread(context);
      });
  } catch (...) {
    stop();
    throw;
  }
}

// Joins the threads, or detaches them if one is blocked. In a fork()ed child the threads do not exist: their
// std::thread objects are abandoned.
void ReadAhead::stop() {
  if (process_ != gradus::internal::fork_count()) {
    for (std::thread& thread : threads_) gradus::internal::abandon(std::move(thread));
    return;
  }
  const bool can_join = queue_->stop();
  for (std::thread& thread : threads_) can_join ? thread.join() : thread.detach();
  threads_.clear();
}

std::optional<Batch> ReadAhead::take() {
  if (!threads_.empty() && process_ != gradus::internal::fork_count())
    throw StateError(
        options_.loader,
        "this process was made by fork(), and the loader's threads are its parent's: begin another "
        "pass here");
  std::optional<BatchReader::Read> read = options_.copies ? take_from_device() : queue_->take();
  if (!read) {
    if (position_->current == delivered_) position_->current = position_->next;
    return std::nullopt;
  }
  position_->current = delivered_ = read->after;
  position_->next.shown = delivered_.shown;
  position_->skipped += read->batch.skipped;
  return std::move(read->batch);
}

// Returns the next batch on the device. Starts the copy of the batch after it if that has been read.
std::optional<BatchReader::Read> ReadAhead::take_from_device() {
  const auto copy_next = [&] {
    if (std::optional<BatchReader::Read> read = queue_->take())
      next_copy_ = Copy{options_.copies->queue(std::move(read->batch)), read->after};
  };
  if (!next_copy_) copy_next();
  if (!next_copy_) return std::nullopt;
  Copy copy = *std::exchange(next_copy_, std::nullopt);
  if (queue_->has_next()) copy_next();
  return BatchReader::Read{options_.copies->receive(std::move(copy.batch)), copy.after};
}

}  // namespace gradus::data::internal

namespace gradus::data {

BatchIterator::BatchIterator(std::unique_ptr<internal::ReadAhead> batches) : batches_(std::move(batches)) {
  ++*this;
}
BatchIterator::BatchIterator(BatchIterator&&) noexcept = default;
BatchIterator& BatchIterator::operator=(BatchIterator&&) noexcept = default;
BatchIterator::~BatchIterator() = default;

BatchIterator& BatchIterator::operator++() {
  batch_ = Batch{};
  // If take() throws, destroying `batches` stops the threads before the exception reaches the caller.
  std::unique_ptr<internal::ReadAhead> batches = std::move(batches_);
  std::optional<Batch> batch = batches ? batches->take() : std::nullopt;
  if (!batch) return *this;
  batch_ = std::move(*batch);
  batches_ = std::move(batches);
  return *this;
}

}  // namespace gradus::data
