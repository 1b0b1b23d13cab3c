// read_environment: finds the launcher that started this process by the variables it sets, in the order
// torchrun (and gradus-run), Open MPI, Slurm, PMI, Kubernetes, and reads rank, sizes and rendezvous address
// from them. MASTER_ADDR, MASTER_PORT and GRADUS_* override derived values. Malformed values throw.
#include "gradus/tensor/runtime/environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/job.h"

namespace gradus {
namespace {

constexpr int kMaxRanks = 1'000'000;
constexpr size_t kMaxText = 4096;

template <class... Parts> [[noreturn]] void fail(const Parts&... parts) {
  throw ValueError("environment", parts...);
}

// Returns a value for messages, quoted and truncated to 80 bytes.
std::string quoted(std::string_view value) {
  return concat('\'', value.substr(0, 80), value.size() > 80 ? "..." : "", '\'');
}

// Reads variables. An empty variable counts as not set.
class Variables {
 public:
  explicit Variables(const GetVariable& get) : get_(get) {}

  bool has(const char* name) const { return !raw(name).empty(); }

  // Returns the first of the names that is set; null when none is.
  const char* first(std::initializer_list<const char*> names) const {
    for (const char* name : names)
      if (has(name)) return name;
    return nullptr;
  }

  // Returns a decimal number in [low, high]. number_of: of the first name that is set, else `otherwise`.
  int number(const char* name, int low, int high) const {
    const std::string_view text = raw(name);
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
      fail(name, " is ", quoted(text), ", not a number between ", low, " and ", high);
    return value;
  }
  int number_of(std::initializer_list<const char*> names, int low, int high, int otherwise) const {
    const char* name = first(names);
    return name ? number(name, low, high) : otherwise;
  }

  // Returns a text without control characters. text_of: of the first name that is set, else `otherwise`.
  std::string text(const char* name) const {
    const std::string_view value = raw(name);
    if (value.size() > kMaxText)
      fail(name, " has ", value.size(), " bytes; at most ", kMaxText, " are expected");
    if (std::any_of(value.begin(), value.end(), [](unsigned char c) { return c < ' ' || c == 127; }))
      fail(name, " has control characters");
    return std::string(value);
  }
  std::string text_of(std::initializer_list<const char*> names, const std::string& otherwise) const {
    const char* name = first(names);
    return name ? text(name) : otherwise;
  }

 private:
  std::string_view raw(const char* name) const {
    const char* value = get_ ? get_(name) : std::getenv(name);
    return value ? value : "";
  }
  const GetVariable& get_;
};

// The names of a launcher's variables. Null: the launcher does not set it.
struct LauncherVariables {
  const char *source, *rank, *world_size, *local_rank, *local_world_size, *node;
};

constexpr LauncherVariables kTorchrun{"RANK",      "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                      "GROUP_RANK"};
constexpr LauncherVariables kOpenMpi{"Open MPI",
                                     "OMPI_COMM_WORLD_RANK",
                                     "OMPI_COMM_WORLD_SIZE",
                                     "OMPI_COMM_WORLD_LOCAL_RANK",
                                     "OMPI_COMM_WORLD_LOCAL_SIZE",
                                     nullptr};
constexpr LauncherVariables kPmi{"PMI",  "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
                                 nullptr};
constexpr LauncherVariables kSlurm{"Slurm",         "SLURM_PROCID", "SLURM_NTASKS",
                                   "SLURM_LOCALID", nullptr,        "SLURM_NODEID"};
constexpr LauncherVariables kSlurmStep{"Slurm",         "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
                                       "SLURM_LOCALID", nullptr,        "SLURM_NODEID"};
constexpr LauncherVariables kKubernetes{"Kubernetes", "JOB_COMPLETION_INDEX", "WORLD_SIZE", nullptr, nullptr,
                                        nullptr};

// Returns the variables of the launcher that started this process, or null if none did.
const LauncherVariables* detect_launcher(const Variables& v) {
  if (v.has(kTorchrun.rank)) return &kTorchrun;
  if (v.has(kOpenMpi.rank) && v.has(kOpenMpi.world_size)) return &kOpenMpi;
  // In a batch script Slurm sets rank 0 too, but only srun starts ranks.
  const bool step = v.first({"SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_TASKS"}) != nullptr;
  const bool script = !step && v.text_of({"ENVIRONMENT"}, "") == "BATCH";
  if (v.has(kSlurm.rank) && !script) {
    if (v.has(kSlurmStep.world_size)) return &kSlurmStep;
    if (v.has(kSlurm.world_size)) return &kSlurm;
  }
  if (v.has(kPmi.rank) && v.has(kPmi.world_size)) return &kPmi;
  // Requires WORLD_SIZE: many indexed jobs are not distributed.
  if (v.has(kKubernetes.rank) && v.has(kKubernetes.world_size)) return &kKubernetes;
  if (v.has("WORLD_SIZE")) fail("WORLD_SIZE is set but RANK is not");
  return nullptr;
}

// Returns the number of ranks on a node, from a list such as "2(x3),1" (two on each of the first three nodes,
// one on the fourth); -1 if the list is too short.
int tasks_of_node(const Variables& v, const char* name, int node) {
  const std::string list = v.text(name);
  std::string_view rest = list;
  const auto skip = [&](std::string_view token) {
    if (!rest.starts_with(token)) fail(name, " is ", quoted(list), ", not a list such as 2(x3),1");
    rest.remove_prefix(token.size());
  };
  const auto number = [&] {
    int value = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc() || value < 1 || value > kMaxRanks)
      fail(name, " is ", quoted(list), ", not a list such as 2(x3),1");
    rest.remove_prefix(size_t(end - rest.data()));
    return value;
  };
  for (int64_t nodes = 0;; skip(",")) {
    const int tasks = number();
    if (rest.starts_with("(")) {
      skip("(x");
      nodes += number();
      skip(")");
    } else {
      ++nodes;
    }
    if (node < nodes) return tasks;
    if (rest.empty()) return -1;
  }
}

// Reads the variables that only Slurm sets: the first host, ranks per node, and the job id, from which a port
// follows.
void read_slurm(const Variables& v, Environment& e) {
  if (const char* tasks = v.first({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
      tasks && e.node >= 0)
    e.local_world_size = tasks_of_node(v, tasks, e.node);
  if (const char* nodes = v.first({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}))
    e.master_addr = first_slurm_host(v.text(nodes));
  if (const char* job = v.first({"SLURM_JOB_ID", "SLURM_JOBID"})) {
    const int id = v.number(job, 0, 2'147'483'647);
    e.master_port = 15'000 + id % 10'000;  // below the ephemeral ports
    e.job_id = concat("slurm-", id, '-', v.text_of({"SLURM_STEP_ID", "SLURM_STEPID"}, "0"));
  }
}

// Returns whether text is "host:port", or "[address]:port".
bool is_host_and_port(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  const char* end = text.data() + text.size();
  int port = 0;
  const auto [parsed, error] = std::from_chars(text.data() + colon + 1, end, port);
  return error == std::errc() && parsed == end && port >= 1 && port <= 65535;
}

}  // namespace

std::string first_slurm_host(const std::string& node_list) {
  const auto malformed = [&](const char* why) {
    throw ValueError("environment", "the Slurm node list ", quoted(node_list), ' ', why);
  };
  constexpr const char* kDigits = "0123456789";
  std::string host;
  for (size_t i = 0; i < node_list.size() && node_list[i] != ',';) {
    const char c = node_list[i];
    if (c == '[') {
      const size_t close = node_list.find(']', i);
      if (close == std::string::npos) malformed("has a [ without a ]");
      const size_t end = node_list.find_first_not_of(kDigits, i + 1);
      if (end == i + 1) malformed("has no number after a [");
      if (node_list.find_first_not_of("0123456789,-", i + 1) != close)
        malformed("has something else than numbers between [ and ]");
      host.append(node_list, i + 1, end - i - 1);
      i = close + 1;
    } else {
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.' && c != '_')
        malformed("has a character that no host name has");
      host += c;
      ++i;
    }
  }
  if (host.empty()) malformed("does not begin with a host");
  if (host.size() > 253) malformed("begins with a host name that is too long");
  return host;
}

std::optional<Environment> read_environment(const GetVariable& get) {
  const Variables v(get);
  const LauncherVariables* names = detect_launcher(v);
  if (!names) return {};
  if (!v.has(names->world_size)) fail(names->rank, " is set but ", names->world_size, " is not");

  Environment e;
  e.source = names->source;
  e.world_size = v.number(names->world_size, 1, kMaxRanks);
  e.rank = v.number(names->rank, 0, kMaxRanks - 1);
  if (names->local_rank) e.local_rank = v.number_of({names->local_rank}, 0, kMaxRanks - 1, -1);
  if (names->local_world_size) e.local_world_size = v.number_of({names->local_world_size}, 1, kMaxRanks, -1);
  if (names->node) e.node = v.number_of({names->node}, 0, kMaxRanks - 1, -1);

  if (names == &kSlurm || names == &kSlurmStep) read_slurm(v, e);
  if (names == &kKubernetes) {  // one rank per pod
    e.local_rank = 0;
    e.local_world_size = 1;
    e.node = e.rank;
  }

  if (e.rank >= e.world_size)
    fail(names->rank, " is ", e.rank, ", but ", names->world_size, " is ", e.world_size);
  if (e.local_rank > e.rank)
    fail(names->local_rank, " is ", e.local_rank, ", but ", names->rank, " is ", e.rank);
  if (e.local_world_size > e.world_size)
    fail("there are ", e.local_world_size, " ranks on this node, but ", names->world_size, " is ",
         e.world_size);
  if (e.local_world_size >= 0 && e.local_rank >= e.local_world_size)
    fail(names->local_rank, " is ", e.local_rank, ", but there are ", e.local_world_size,
         " ranks on this node");

  if (names == &kOpenMpi) e.job_id = v.text_of({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}, e.job_id);
  if (names != &kTorchrun && e.local_world_size == e.world_size) e.master_addr = "127.0.0.1";

  // These variables override the values derived above.
  e.master_addr = v.text_of({"MASTER_ADDR"}, e.master_addr);
  e.master_port = v.number_of({"MASTER_PORT"}, 1, 65535, e.master_port);
  e.master_port_is_set = v.has("MASTER_PORT");
  e.restart_count = v.number_of({"TORCHELASTIC_RESTART_COUNT"}, 0, kMaxRanks, 0);
  e.max_restarts = v.number_of({"TORCHELASTIC_MAX_RESTARTS"}, 0, kMaxRanks, 0);
  e.job_id = v.text_of({"GRADUS_JOB_ID", "TORCHELASTIC_RUN_ID"}, e.job_id);
  e.token = v.text_of({"GRADUS_TOKEN"}, "");
  e.store = v.text_of({"GRADUS_STORE"}, "");
  e.torchrun_store = e.store.empty() && v.text_of({"TORCHELASTIC_USE_AGENT_STORE"}, "") == "True";
  e.error_file = v.text_of({"GRADUS_ERROR_FILE", "TORCHELASTIC_ERROR_FILE"}, "");
  if (!e.store.empty() && !is_host_and_port(e.store))
    fail("GRADUS_STORE is ", quoted(e.store), ", not host:port");
  return e;
}

void check_joined(std::string_view op) {
  if (Context::current().job || Job::of_process()) return;
  // Read once, because single-process training calls this in every step.
  static const std::string rank_in_job = [] {
    const std::optional<Environment> e = read_environment();
    if (!e || e->world_size == 1) return std::string();
    return concat("rank ", e->rank, " of ", e->world_size, ", as ",
                  e->source == "RANK" ? "RANK and WORLD_SIZE say" : e->source + " says");
  }();
  if (!rank_in_job.empty())
    throw StateError(op, "this process is ", rank_in_job,
                     ", but it is in no job: call dist::launcher or dist::init_process_group first. (A "
                     "program that runs alone is started without these variables)");
}

}  // namespace gradus
