// The training and its faults (run_as_rank), and the checks (run_fault). Ranks are started as "PROGRAM --rank FAULT",
// with the fault as text. They append events with their time to a file, which run_fault() reads:
// "RANK TIME EVENT TEXT".
#include "gradus/tests/cuda/ranks/rank_fault.h"

#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <tuple>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/base/rank_error.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/distributed/data_parallel/sync_batch_norm.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/store/store_server.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/distributed/subprocess.h"
#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/memory.h"

namespace gradus::dist {
namespace {

// Of calls where a rank does not come, and of others.
constexpr Milliseconds kShortTimeout{2'000}, kTimeout{20'000};
constexpr double kLimit = 2;       // seconds from the fault, or from a timeout, to the errors
constexpr unsigned kAlarm = 30;    // seconds until a rank that hangs is killed
constexpr int64_t kElements = 64;  // of the tensors of explicit collectives
constexpr const char* kOnPurpose = "on purpose";

constexpr std::array kPoints = {"init", "model",   "forward", "loss",    "hook", "backward",    "call",
                                "wait", "updated", "end",     "leaving", "any",  "library_call"};
constexpr std::array kWays = {"kill",   "stop",         "pause",       "throw",        "exit",
                              "return", "kernel_error", "lose_device", "skip",         "shape",
                              "op",     "other_call",   "on_host",     "library_error"};

bool is_stop(Way way) { return way == Way::kStop || way == Way::kPause; }
bool is_of_gpu(Way way) {
  return way == Way::kKernelError || way == Way::kLoseDevice || way == Way::kLibraryError;
}
bool is_mismatch(Way way) { return way >= Way::kSkip && way <= Way::kOnHost; }

template <size_t n> int index_of(const std::array<const char*, n>& names, const std::string& name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) throw ValueError("rank_fault", "there is no '", name, "'");
  return int(found - names.begin());
}

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

// ---- a rank ----

RankFault fault;
int rank = -1, step = -1;  // -1: outside of the steps
bool is_first_job = true;

void note(const std::string& event, std::string text = "") {
  std::ranges::replace(text, '\n', '|');
  const std::string line = concat(rank, ' ', now_ns(), ' ', event, ' ', text, '\n');
  FILE* file = std::fopen(std::getenv("FAULT_LOG"), "a");
  std::fwrite(line.data(), 1, line.size(), file);
  std::fclose(file);
}

Device own_device() { return {DeviceType::kCUDA, int16_t(rank)}; }
struct ReturnFromMain {};

// Fails here if that is the fault. Returns true where the caller itself has to do it.
bool at(Point point, int64_t count = 0) {
  const bool in_step = point >= Point::kForward && point <= Point::kUpdated;
  if (!is_first_job || rank != fault.rank || point != fault.point || count != fault.count) return false;
  if (in_step && step != fault.step) return false;
  note("fault");
  switch (fault.way) {
    case Way::kKill:
      raise(SIGKILL);
      break;
    case Way::kStop:
    case Way::kPause:
      raise(SIGSTOP);
      break;
    case Way::kThrow:
      throw StateError("rank_fault", kOnPurpose);
    case Way::kExit:
      std::exit(3);
    case Way::kReturn:
      throw ReturnFromMain();
    case Way::kKernelError:
      embedding(raw::to(tensor(std::vector<int64_t>{9}, {1}), own_device()),
                ones({4, 2}, {.device = own_device()}));
      break;
    case Way::kLoseDevice:
      cuda::emulated::lose_device(cudaErrorLaunchFailure);
      break;
    default:
      break;
  }
  return true;
}

struct Net : nn::Layer {
  nn::Linear first{this, "first", {.in = 6, .out = 16}};
  nn::BatchNorm1d norm{this, "norm", {.features = 16}};
  nn::Linear second{this, "second", {.in = 16, .out = 2}};
  Tensor forward(const Tensor& x) override {
    const Tensor y = first(x);
    at(Point::kForward);
    return second(norm.relu(y));
  }
};

void call_all_reduce(Work* work) {
  const Tensor x = full({kElements}, 1, {.device = own_device()});
  const Way way = at(Point::kCall) && is_mismatch(fault.way) ? fault.way : Way::kLibraryError;
  switch (way) {
    case Way::kSkip:
      return;
    case Way::kShape:
      *work = all_reduce(full({kElements + 1}, 1, {.device = own_device()}), {.async_op = true});
      return;
    case Way::kOp:
      *work = all_reduce(x, {.op = ReduceOp::kMax, .async_op = true});
      return;
    case Way::kOtherCall:
      *work = broadcast(x, {.src = 0, .async_op = true});
      return;
    case Way::kOnHost:
      *work = all_reduce(ones({kElements}), {.async_op = true});
      return;
    default:
      *work = all_reduce(x, {.async_op = true});
      at(Point::kWait);
      work->wait();
      if (x.to_vector<float>()[0] != float(get_world_size())) throw StateError("rank_fault", "a wrong sum");
  }
}

void train() {
  at(Point::kModel);
  manual_seed(1);
  Net net;
  convert_sync_batchnorm(net);
  net.to(own_device());
  DistributedDataParallel ddp(net, {.bucket_cap_mb = 1e-4});
  GradManager gm;
  int64_t complete = 0;
  gm.attach(net.parameters(), [&](const Tensor&, const Tensor& grad) {
    at(Point::kHook, complete++);
    return grad;
  });
  ddp.attach(gm);
  optim::SGD optimizer(net.parameters(), {.lr = 0.1});
  for (step = 0; step < kSteps; ++step) {
    complete = 0;
    {
      auto recording = gm.record();
      const Tensor loss = mean(square(ddp(randn({4, 6}, {.device = own_device()}))));
      at(Point::kLoss);
      gm.backward(loss);
    }
    at(Point::kBackward);
    Work work;
    call_all_reduce(&work);
    broadcast(full({kElements}, step, {.device = own_device()}), {.src = step % get_world_size()});
    optimizer.step().clear_grad();
    at(Point::kUpdated);
    synchronize(own_device());
  }
  step = -1;
  note("end");
  at(Point::kEnd);
  barrier();
  at(Point::kLeaving);
}

// The ranks that are left after the fault.
std::vector<int> remaining() {
  std::vector<int> ranks;
  for (int r = 0; r < kRanks; ++r)
    if (r != fault.second && (r != fault.rank || is_mismatch(fault.way))) ranks.push_back(r);
  return ranks;
}

void join_first_job() {
  const bool is_short = is_stop(fault.way) || fault.point == Point::kInit;
  InitOptions options{.backend = fault.by_nccl ? "cpu:gloo,cuda:nccl" : "gloo",
                      .world_size = kRanks,
                      .rank = rank,
                      .timeout = is_short ? kShortTimeout : kTimeout};
  if (fault.rank_0_has_store) options.init_method = concat("file://", std::getenv("FAULT_FOLDER"), "/first");
  at(Point::kInit);
  init_process_group(options);
  note("joined");
}

// Uses the GPU, and trains in a job of the remaining ranks.
void train_on() {
  const Tensor x = ones({kElements}, {.device = own_device()});
  if ((x + x).to_vector<float>() != std::vector<float>(kElements, 2))
    throw StateError("rank_fault", "a wrong sum");
  synchronize(own_device());
  note("computed");
  const std::vector<int> ranks = remaining();
  const auto own = std::ranges::find(ranks, rank);
  if (own == ranks.end()) return;
  init_process_group({.backend = fault.by_nccl ? "cpu:gloo,cuda:nccl" : "gloo",
                      .init_method = concat("file://", std::getenv("FAULT_FOLDER"), "/second"),
                      .world_size = int(ranks.size()),
                      .rank = int(own - ranks.begin()),
                      .timeout = kTimeout});
  train();
  destroy_process_group();
  note("trained");
}

template <class E> bool is(const DistributedError& e) { return dynamic_cast<const E*>(&e) != nullptr; }

void note_library_error(const std::exception& e) {
  const bool is_own = rank == fault.rank && fault.way == Way::kLibraryError;
  if (is_own && std::string_view(e.what()).find(fault.function) != std::string_view::npos) note("fault");
}

int be_rank() {
  cuda::emulated::set_devices(kRanks, size_t(256) << 20);
  if (rank == fault.rank && fault.way == Way::kLibraryError)
    cuda::emulated::fail_call_of(fault.function, fault.count, fault.status);
  try {
    join_first_job();
    train();
    note("finished");
  } catch (const ReturnFromMain&) {
    return 0;
  } catch (const DistributedError& e) {
    note_library_error(e);
    const char* const type = is<PeerError>(e)       ? "PeerError"
                             : is<TimeoutError>(e)  ? "TimeoutError"
                             : is<MismatchError>(e) ? "MismatchError"
                                                    : "another";
    note("error", concat(type, ' ', e.rank(), ' ', e.what()));
    if (rank == fault.second) raise(SIGKILL);
  } catch (const std::exception& e) {
    note_library_error(e);
    throw;  // ends the process
  }
  cuda::emulated::fail_call_of("", -1, 0);
  destroy_process_group();
  is_first_job = false;
  train_on();
  return 0;
}

// ---- the checks ----

struct Event {
  int rank = -1;
  int64_t time = 0;
  std::string name, text;
};

std::vector<Event> events_in(const std::string& log) {
  std::vector<Event> events;
  std::istringstream lines(read_whole(log));
  for (std::string line; std::getline(lines, line);) {
    Event e;
    std::istringstream words(line);
    words >> e.rank >> e.time >> e.name;
    std::getline(words >> std::ws, e.text);
    events.push_back(e);
  }
  return events;
}

std::optional<Event> find_event(const std::vector<Event>& events, int rank, const std::string& name) {
  for (const Event& e : events)
    if (e.rank == rank && e.name == name) return e;
  return {};
}

class Run {
 public:
  explicit Run(const RankFault& f) : fault_(f) {}

  FaultReport run() {
    StoreServer server({.token = "secret"});
    for (int r = 0; r < kRanks; ++r) processes_.push_back(start(r, server.port()));
    if (fault_.point == Point::kAny) send_signal();
    for (int r = 0; r < kRanks; ++r)
      if (r != fault_.rank) processes_[size_t(r)]->wait();
    if (is_stop(fault_.way))
      processes_[size_t(fault_.rank)]->kill(fault_.way == Way::kPause ? SIGCONT : SIGKILL);
    processes_[size_t(fault_.rank)]->wait();
    events_ = events_in(log_);
    for (const Event& e : events_)
      if (e.name == "fault") fault_time_ = e.time;
    report_.has_happened = fault_time_ != 0;
    for (int r = 0; r < kRanks; ++r) check(r);
    for (int r = 0; r < kRanks && !report_.wrong.empty(); ++r)
      add("rank ", r, " wrote: ", processes_[size_t(r)]->out(), processes_[size_t(r)]->err());
    if (!report_.wrong.empty()) add("events:\n", read_whole(log_));
    return report_;
  }

 private:
  template <class... Parts> void add(const Parts&... parts) { report_.wrong.push_back(concat(parts...)); }

  std::unique_ptr<Subprocess> start(int r, int port) {
    return std::make_unique<Subprocess>(
        std::vector<std::string>{"/proc/self/exe", "--rank", describe(fault_)},
        Subprocess::Variables{{"RANK", std::to_string(r)},
                              {"WORLD_SIZE", std::to_string(kRanks)},
                              {"GRADUS_STORE", concat("127.0.0.1:", port)},
                              {"GRADUS_TOKEN", "secret"},
                              {"GRADUS_EMULATED_SEED", std::to_string(fault_.seed)},
                              {"OMP_NUM_THREADS", "1"},
                              {"FAULT_LOG", log_},
                              {"FAULT_FOLDER", folder_.path()}});
  }

  // Ends or stops the rank at fault from outside.
  void send_signal() {
    for (int i = 0; i < 10'000 && !find_event(events_in(log_), fault_.rank, "joined"); ++i) usleep(1000);
    usleep(useconds_t(fault_.count));
    if (find_event(events_in(log_), fault_.rank, "finished")) return;
    fault_time_ = now_ns();
    processes_[size_t(fault_.rank)]->kill(is_stop(fault_.way) ? SIGSTOP : SIGKILL);
  }

  void check(int r) {
    const Subprocess& p = *processes_[size_t(r)];
    const int status = processes_[size_t(r)]->wait();
    if (status == -SIGALRM) add("rank ", r, " hung");
    if (!p.left().empty()) add("rank ", r, " has left processes");
    const bool is_at_fault = report_.has_happened && r == fault_.rank;
    if (is_at_fault && !is_mismatch(fault_.way) && fault_.way != Way::kPause) return check_end(r, status);
    const bool has_error = check_error(r);
    if (r == fault_.second && has_error) {
      if (status != -SIGKILL) add("rank ", r, " ended with status ", status, ", which was to be killed");
      return;
    }
    if (status != 0) add("rank ", r, " ended with status ", status);
    if (status != 0 || (!report_.has_happened && r == fault_.rank)) return;
    const bool trains = r != fault_.second && (r != fault_.rank || is_mismatch(fault_.way));
    if (!find_event(events_, r, trains ? "trained" : "computed")) add("rank ", r, " did not train on");
  }

  // Checks the exit status of the rank at fault.
  void check_end(int r, int status) {
    const bool dies = fault_.way == Way::kKill || fault_.way == Way::kStop;
    const int expected = dies                         ? -SIGKILL
                         : fault_.way == Way::kExit   ? 3
                         : fault_.way == Way::kReturn ? 0
                                                      : -SIGABRT;
    // An error of the GPU may end a call on another thread. Then the program throws the job's failure.
    const bool has_thrown = is_of_gpu(fault_.way) && find_event(events_, r, "error") && status == 0;
    if (status != expected && fault_.point != Point::kAny && !has_thrown)
      add("rank ", r, " at fault ended with status ", status, ", not ", expected);
  }

  // Returns whether the rank has thrown.
  bool check_error(int r) {
    const auto error = find_event(events_, r, "error");
    if (!error) {
      // A rank that fails in the last barrier, or later, may have done its part in the barrier, which needs no GPU.
      const bool is_late = fault_.point >= Point::kLeaving || is_of_gpu(fault_.way) || r == fault_.rank;
      const bool may_finish = is_late && find_event(events_, fault_.rank, "end");
      if (report_.has_happened && !may_finish) add("rank ", r, " threw nothing");
      if (!find_event(events_, r, "finished")) add("rank ", r, " did not finish");
      return false;
    }
    std::istringstream words(error->text);
    std::string type, text;
    int named = -1;
    words >> type >> named;
    std::getline(words >> std::ws, text);
    if (!report_.has_happened) return add("rank ", r, " threw without a fault: ", text), true;
    const double seconds = double(error->time - fault_time_) / 1e9;
    const bool waits = is_stop(fault_.way) || ends_before_joining();
    if (r != fault_.rank && seconds > kLimit + (waits ? double(kShortTimeout.count()) / 1e3 : 0))
      add("rank ", r, "'s error took ", seconds, " s");
    const std::vector<std::string> expected = expectation();
    if (type != expected[0]) add("rank ", r, " threw ", type, ", not ", expected[0], ": ", text);
    const bool is_store = fault_.rank_0_has_store && fault_.rank == 0 && named == -1;
    // A rank that comes when the others have given up finds rank 0's store gone, and says so.
    const bool is_late = r == fault_.rank && ends_before_joining() && fault_.rank_0_has_store && named == 0;
    if (named != fault_.rank && !is_store && !is_late)
      add("rank ", r, "'s error has rank ", named, ": ", text);
    if (text.find(concat("rank ", is_late ? 0 : fault_.rank)) == text.npos)
      add("rank ", r, "'s error does not name rank ", fault_.rank, ": ", text);
    if (!is_store && expected.size() > 1 && text.find(expected[1]) == text.npos)
      add("rank ", r, "'s error has no '", expected[1], "': ", text);
    if (text.find('[') == text.npos || text.find("] ") == text.npos)
      add("rank ", r, "'s error does not name a call: ", text);
    return true;
  }

  bool ends_before_joining() const { return fault_.point == Point::kInit && !is_of_gpu(fault_.way); }

  // Returns the type of the other ranks' errors, and a part of their texts.
  std::vector<std::string> expectation() const {
    if (ends_before_joining() || is_stop(fault_.way)) return {"TimeoutError"};
    if (is_mismatch(fault_.way)) return {"MismatchError", "all_reduce"};
    switch (fault_.way) {
      case Way::kThrow:
        return {"PeerError", kOnPurpose};
      case Way::kExit:
        return {"PeerError", "exited with code 3"};
      case Way::kReturn:
        return {"PeerError", "has left"};
      case Way::kKernelError:
        return {"PeerError", "index 9"};
      case Way::kLibraryError:
        return {"PeerError", fault_.function};
      default:
        return {"PeerError"};
    }
  }

  const RankFault fault_;
  TestFolder folder_;
  const std::string log_ = folder_ / "log";
  std::vector<std::unique_ptr<Subprocess>> processes_;
  std::vector<Event> events_;
  int64_t fault_time_ = 0;  // 0: the fault did not happen
  FaultReport report_;
};

}  // namespace

std::string describe(const RankFault& f) {
  return concat(f.by_nccl ? "nccl" : "host", ' ', kWays[size_t(f.way)], ' ', kPoints[size_t(f.point)],
                " rank=", f.rank, " step=", f.step, " count=", f.count,
                f.function.empty() ? "" : " function=", f.function, " status=", f.status,
                " rank_0_has_store=", f.rank_0_has_store, " second=", f.second, " seed=", f.seed);
}

RankFault parse_fault(const std::string& text) {
  RankFault f;
  std::istringstream words(text);
  std::string backend, way, point, word;
  words >> backend >> way >> point;
  f.by_nccl = backend == "nccl";
  f.way = Way(index_of(kWays, way));
  f.point = Point(index_of(kPoints, point));
  while (words >> word) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
    if (name == "function") {
      f.function = value;
      continue;
    }
    const int64_t number = std::stoll(value);
    if (name == "rank") f.rank = int(number);
    if (name == "step") f.step = int(number);
    if (name == "count") f.count = number;
    if (name == "status") f.status = int(number);
    if (name == "rank_0_has_store") f.rank_0_has_store = number != 0;
    if (name == "second") f.second = int(number);
    if (name == "seed") f.seed = uint64_t(number);
  }
  return f;
}

FaultReport run_fault(const RankFault& f) { return Run(f).run(); }

std::optional<int> run_as_rank(int argc, char** argv) {
  if (argc != 3 || argv[1] != std::string("--rank")) return {};
  alarm(kAlarm);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  fault = parse_fault(argv[2]);
  rank = std::atoi(std::getenv("RANK"));
  return be_rank();
}

}  // namespace gradus::dist
