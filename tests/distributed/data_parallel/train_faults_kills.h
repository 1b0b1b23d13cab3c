// Kills of a job's ranks, at moments that are seen from outside: what becomes of its checkpoint's file, and
// which steps its sample log names.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gradus/tests/distributed/data_parallel/train_faults_history.h"
#include "gradus/tests/distributed/subprocess.h"

namespace gradus::dist {

using Random = std::mt19937_64;

double uniform(Random& random, double low, double high);
int one_of(Random& random, int low, int high);
// Returns 0 for no values.
double median(std::vector<double> values);
int count_of(const std::string& part, const std::string& text);

// What a job does with DIR/NAME.ckpt, and with its sample log.
class Watch {
 public:
  Watch(std::string folder, const std::string& name, std::string log, const Epochs& epochs);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  int begun = 0;      // a checkpoint's temporary file was opened
  int replacing = 0;  // it is complete, and the one before got its second name
  int done = 0;       // it has its name
  std::function<void()> when_done;
  int runs = 0;                  // the log's, since the job's start
  std::optional<Position> step;  // the end of the last step that the latest run has begun
  std::vector<double> save_seconds, step_seconds;

  // Waits for events, a moment.
  void look();
  // Return whether a checkpoint is being written, and whether it replaces the one before, just now.
  bool is_writing() const;
  bool is_replacing() const;
  // Returns the bytes of the sample log.
  size_t log_size() const;

 private:
  using Clock = std::chrono::steady_clock;
  void note(uint32_t mask, const std::string& name);
  void read_log();

  const std::string folder_, file_, log_;
  const Epochs epochs_;
  int fd_;
  Clock::time_point begun_at_, step_at_;
  size_t read_ = 0;  // of the log
};

// What was the case when a rank had been killed.
struct Moment {
  bool writing = false, replacing = false;
  size_t log_size = 0;
};

// When to kill whom.
struct Kill {
  int Watch::*event = nullptr;        // after so many of these; none: from the start, or the kill before
  int count = 0;                      // of events
  std::optional<Position> step = {};  // instead: when the step that ends there, or a later one, has begun
  double delay = 0;                   // and so many seconds
  int rank = 0;
  bool Moment::*hits = nullptr;  // what it is meant for: when it came too late another kill follows
};

struct Attended {
  std::vector<Moment> kills;
  std::vector<std::string> wrong;
};

// Waits for the end of a job of so many ranks, and kills on the way.
Attended attend(Subprocess& job, int nproc, Watch& watch, const std::vector<Kill>& kills);

}  // namespace gradus::dist
