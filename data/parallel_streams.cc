// Implementation of ParallelStreams: a thread and a bounded queue of samples for each part, taken in turn.
#include "gradus/data/parallel_streams.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "gradus/data/sample_reading.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/environment.h"
#include "gradus/tensor/runtime/fork.h"

namespace gradus::data {
namespace {

// A thread that reads a part in advance.
class PartReader {
 public:
  // `generator`: of the part's random numbers.
  PartReader(std::shared_ptr<const IterableDataset> part, uint64_t epoch, size_t prefetch,
             std::shared_ptr<RandomGenerator> generator)
      : prefetch_(prefetch),
        thread_([this, part = std::move(part), epoch, generator = std::move(generator),
                 context = Context::current().snapshot()]() mutable {
          name_thread("data stream");
          context.threads = 1;
          context.generator = std::move(generator);
          ContextScope scope(context);
          run(*part, epoch);
        }) {}
  ~PartReader() {
    stop();
    thread_.join();
  }
  PartReader(const PartReader&) = delete;
  PartReader& operator=(const PartReader&) = delete;

  // Lets the thread end after the read in progress.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
  }
  // Returns the next sample; nullopt at the end. Errors: those of the part, again in each later call.
  std::optional<Sample> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !ready_.empty(); });
    if (ready_.front().error) std::rethrow_exception(ready_.front().error);
    std::optional<Sample> sample = std::move(ready_.front().sample);
    if (sample) ready_.pop_front();  // the end stays
    changed_.notify_all();
    return sample;
  }

 private:
  struct Result {
    std::optional<Sample> sample;  // none: the end, or an error
    std::exception_ptr error = {};
  };

  void run(const IterableDataset& part, uint64_t epoch) {
    internal::SampleGenerator generator;
    std::unique_ptr<SampleStream> stream;
    for (int64_t position = -1;; ++position) {
      Result result;
      try {
        generator.begin_sample(position);
        if (position < 0) {
          stream = part.open(epoch);
          if (!stream) throw ValueError("ParallelStreams", part.name(), ": open() returned null");
          continue;
        }
        result.sample = stream->next();
      } catch (...) {
        result.error = std::current_exception();
      }
      const bool is_last = !result.sample;
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || ready_.size() < prefetch_; });
      if (stopping_) return;
      ready_.push_back(std::move(result));
      changed_.notify_all();
      if (is_last) return;
    }
  }

  const size_t prefetch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Result> ready_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the members above
};

class MergedStream : public SampleStream {
 public:
  explicit MergedStream(std::vector<std::unique_ptr<PartReader>> parts) : parts_(std::move(parts)) {}
  // All threads are stopped before the first is joined: together they take the time of one read. In a fork()ed child
  // the threads do not exist, and destroying a condition that they waited for could hang: nothing is destroyed.
  ~MergedStream() override {
    if (is_in_child())
      gradus::internal::abandon(std::move(parts_));
    else
      for (const auto& part : parts_) part->stop();
  }
  std::optional<Sample> next() override {
    if (is_in_child())
      throw StateError(
          "ParallelStreams",
          "this process was made by fork(), and the threads are its parent's: open the stream here");
    while (!parts_.empty()) {
      if (next_ >= parts_.size()) next_ = 0;
      if (std::optional<Sample> sample = parts_[next_]->take()) {
        ++next_;
        return sample;
      }
      parts_.erase(parts_.begin() + int64_t(next_));
    }
    return std::nullopt;
  }

 private:
  bool is_in_child() const { return process_ != gradus::internal::fork_count(); }

  const int process_ = gradus::internal::fork_count();
  std::vector<std::unique_ptr<PartReader>> parts_;  // those that have not ended
  size_t next_ = 0;
};

}  // namespace

ParallelStreams::ParallelStreams(std::vector<std::shared_ptr<const IterableDataset>> parts,
                                 const ParallelStreamsOptions& options)
    : parts_(std::move(parts)), options_(options) {
  constexpr int64_t kMaxPrefetch = 1 << 20;
  if (parts_.empty()) throw ValueError("ParallelStreams", "needs at least one part, got none");
  for (const auto& part : parts_)
    if (!part) throw ValueError("ParallelStreams", "a null part was given");
  if (options_.prefetch < 1 || options_.prefetch > kMaxPrefetch)
    throw ValueError("ParallelStreams", "prefetch must be 1 to ", kMaxPrefetch, ", got ", options_.prefetch);
}

std::string ParallelStreams::name() const {
  return concat(parts_.size(), " parallel streams of ", parts_[0]->name());
}

std::unique_ptr<SampleStream> ParallelStreams::open(uint64_t epoch) const {
  const PhiloxKey key = Context::current().generator->next();
  std::vector<std::unique_ptr<PartReader>> readers;
  for (const auto& part : parts_) {
    auto generator = std::make_shared<RandomGenerator>(
        internal::first_64_bits(philox(key.seed, key.stream, uint64_t(readers.size()))));
    readers.push_back(
        std::make_unique<PartReader>(part, epoch, size_t(options_.prefetch), std::move(generator)));
  }
  return std::make_unique<MergedStream>(std::move(readers));
}

}  // namespace gradus::data
