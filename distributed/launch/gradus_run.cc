// gradus-run, the counterpart of torchrun: starts any program on several ranks, with torchrun's options:
// gradus-run --nproc-per-node 4 PROGRAM [args]. Each rank finds RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and
// MASTER_PORT in its environment; the first failure ends all ranks. This file converts the command line to
// SupervisorOptions; supervise() (supervisor.h) runs the job. Exit code: 0 if all ranks succeeded and their
// output was written; 128 + N if signal N ended the launcher; 2 for invalid options; else 1.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gradus/distributed/base/split.h"
#include "gradus/distributed/launch/internal/log_multiplexer.h"
#include "gradus/distributed/launch/processes.h"
#include "gradus/distributed/launch/supervisor.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/parallel.h"

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::dist::internal;

namespace {

constexpr const char* kOp = "gradus-run";
constexpr int kMaxRanks = 4096, kMaxNodes = 65536;

// The values of the command line. Options that need no conversion are read into `spec`; job() converts the
// others. Times are in seconds.
struct Args {
  SupervisorOptions spec{.op = kOp, .rendezvous = {.op = kOp}};
  std::string nnodes = "1:1", nproc = "1";
  int node_rank = 0, master_port = 0;
  std::string master_addr, rdzv_backend = "static", rdzv_endpoint, rdzv_conf;
  bool standalone = false, ignored = false;  // `ignored`: of options without effect
  double monitor_interval = 0.1, shutdown_timeout = 3, exit_timeout = 600;
  std::string redirects = "0", tee = "0", filter, start_method = "spawn";
  std::string numa_binding, event_log_handler = "null";
  std::string signals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
};

template <class... Parts> [[noreturn]] void fail(const Parts&... parts) { throw ValueError(kOp, parts...); }

// spellings returns both spellings of an option: "--nproc-per-node,--nproc_per_node". variable returns
// torchrun's environment variable for it: PET_NPROC_PER_NODE. A value on the command line has precedence.
std::string spellings(const std::string& name) {
  std::string with_underscores = name;
  std::replace(with_underscores.begin(), with_underscores.end(), '-', '_');
  return name == with_underscores ? "--" + name : "--" + name + ",--" + with_underscores;
}
std::string variable(std::string name) {
  for (char& c : name) c = c == '-' ? '_' : char(std::toupper(static_cast<unsigned char>(c)));
  return "PET_" + name;
}

// Adds options to an App under both spellings and torchrun's variable.
struct Options {
  CLI::App& app;

  template <class T> CLI::Option* option(const std::string& name, T& value, const std::string& help) {
    return app.add_option(spellings(name), value, help)->envname(variable(name));
  }
  // An option whose default value is part of the help.
  template <class T> CLI::Option* shown(const std::string& name, T& value, const std::string& help) {
    return option(name, value, help)->capture_default_str();
  }
  void flag(const std::string& name, bool& value, const std::string& help) {
    app.add_flag(spellings(name), value, help)->envname(variable(name));
  }
};

void add_node_options(Options add, Args& a) {
  add.shown("nnodes", a.nnodes, "machines: N, or MIN:MAX");
  add.shown("nproc-per-node", a.nproc, "ranks on this machine: a number, auto, cpu or gpu");
  add.option("node-rank", a.node_rank, "this machine's number")->check(CLI::Range(0, kMaxNodes - 1));
  add.option("master-addr", a.master_addr, "the first machine [127.0.0.1]");
  add.option("master-port", a.master_port,
             "its port for the store [29500; on one machine: MASTER_PORT of the ranks, any free one]")
      ->check(CLI::Range(1, 65535));
  add.flag("standalone", a.standalone, "one machine, and nothing that two jobs could share");
  add.shown("rdzv-backend", a.rdzv_backend,
            "how machines find each other: static (each knows its number) or c10d (in order of arrival)");
  add.option("rdzv-endpoint", a.rdzv_endpoint, "HOST[:PORT] of the first machine");
  add.shown("rdzv-id", a.spec.run_id, "the job's name");
  add.option("rdzv-conf", a.rdzv_conf, "join_timeout=SECONDS,last_call_timeout=SECONDS");
  add.option("local-addr", a.spec.rendezvous.local_addr, "this machine's address, as others reach it");
}

void add_rank_options(Options add, Args& a) {
  add.shown("max-restarts", a.spec.rendezvous.max_restarts,
            "how often all ranks are started again after a failure")
      ->check(CLI::Range(0, 1'000'000));
  add.shown("monitor-interval", a.monitor_interval, "seconds between two looks at the ranks, at most")
      ->check(CLI::Range(0.001, 3600.0));
  add.shown("exit-timeout", a.exit_timeout,
            "seconds for which ranks may go on when another one has ended in order; 0: for ever")
      ->check(CLI::Range(0., 1e9));
  add.shown("shutdown-timeout", a.shutdown_timeout, "seconds between asking ranks to end and killing them")
      ->check(CLI::Range(0.0, 86400.0));
  add.shown("role", a.spec.role, "ROLE_NAME of the ranks");
  add.option("log-dir", a.spec.log_dir, "a folder for what the ranks write, and for their errors");
  add.app
      .add_option(
          "-r,--redirects", a.redirects,
          "to files instead of here: 0 nothing, 1 stdout, 2 stderr, 3 both; or per local rank 0:1,1:3")
      ->capture_default_str()
      ->envname("PET_REDIRECTS");
  add.app
      .add_option("-t,--tee", a.tee,
                  "to files (with --log-dir) and here, each line with its rank; values as above")
      ->capture_default_str()
      ->envname("PET_TEE");
  add.option("local-ranks-filter", a.filter, "show only these local ranks here: 0,2");
  add.shown("signals-to-handle", a.signals, "signals that end the job; the ranks get them too");
  add.option("numa-binding", a.numa_binding,
             "bind each rank to CPUs of a NUMA node, its GPU's: node, socket, exclusive (cores of its own), "
             "core-complex")
      ->check(CLI::IsMember({"node", "socket", "exclusive", "core-complex"}));
  add.shown("event-log-handler", a.event_log_handler,
            "null, or at the end a line of JSON per rank, with its state: console on stderr, exec:COMMAND to "
            "its stdin")
      ->check([](const std::string& handler) {
        const bool is_known = handler == "null" || handler == "console" || handler.starts_with("exec:");
        return is_known ? "" : "expected null, console or exec:COMMAND, got " + handler;
      });
  add.option("start-method", a.start_method, "accepted; every rank is started afresh")
      ->check(CLI::IsMember({"spawn", "fork", "forkserver"}));
  add.flag("no-python", a.ignored, "accepted; the program is always run as it is");
  add.flag("use-env", a.ignored, "accepted; ranks always find their places in the environment");
  add.app.add_flag("--pass-local-rank,--pass_local_rank", a.spec.pass_local_rank,
                   "adds --local-rank=N to the program's arguments, as torch.distributed.launch did");
}

// Options of torchrun that gradus-run refuses, with the text after "--module is not supported: ".
constexpr std::pair<const char*, const char*> kRefused[] = {
    {"-m,--module", "it starts programs; a Python module is: gradus-run ... python3 -m NAME"},
    {"--run-path,--run_path", "it starts programs; a script is: gradus-run ... python3 SCRIPT"},
    {"--logs-specs,--logs_specs", "it is an entry point of Python; see --log-dir, --redirects and --tee"},
    {"--virtual-local-rank,--virtual_local_rank", "LOCAL_RANK is always the rank's number on its machine"},
    {"--duplicate-stdout-filters,--duplicate_stdout_filters", "see --tee and --local-ranks-filter"},
    {"--duplicate-stderr-filters,--duplicate_stderr_filters", "see --tee and --local-ranks-filter"},
};

Args parse(int argc, char** argv) {
  Args a;
  CLI::App app{"Starts PROGRAM [arguments] on several ranks, with torchrun's options and environment", kOp};
  app.footer("gradus-run [options] PROGRAM [arguments]: everything from PROGRAM on is the program's own.");
  app.prefix_command();
  add_node_options({app}, a);
  add_rank_options({app}, a);
  std::string ignored_value;
  for (const auto& [names, why] : kRefused) app.add_flag(names, ignored_value)->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    std::exit(app.exit(e) == 0 ? 0 : 2);
  }
  for (const auto& [names, why] : kRefused) {
    const std::string name = std::string(names).substr(0, std::string_view(names).find(','));
    if (app.count(name)) fail(name, " is not supported: ", why);
  }
  a.spec.argv = app.remaining();
  if (!a.spec.argv.empty() && a.spec.argv[0] == "--") a.spec.argv.erase(a.spec.argv.begin());
  return a;
}

// ---- values ----

// Errors: ValueError unless `text` is a number in [low, high]. `what` names the option in the error.
int number(const char* what, std::string_view text, int low, int high) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
    fail(what, " is '", text, "'; expected a number between ", low, " and ", high);
  return value;
}

// Reads "4", "cpu" (usable cores), "gpu" (GPUs), or "auto" (GPUs, or cores without a GPU).
int ranks_per_node(const std::string& text) {
  const int gpus = gpu_count();
  if (text == "cpu") return usable_cores();
  if (text == "auto") return gpus ? gpus : usable_cores();
  if (text == "gpu") {
    if (!gpus) fail("--nproc-per-node is gpu, but this machine has no GPU");
    return gpus;
  }
  if (text.empty() || !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }))
    fail("--nproc-per-node is '", text, "'; expected a number, auto, cpu or gpu");
  return number("--nproc-per-node", text, 1, kMaxRanks);
}

// Reads "N" or "MIN:MAX".
std::pair<int, int> node_range(const std::string& text) {
  const std::vector<std::string> parts = split(text, ":");
  if (parts.empty() || parts.size() > 2 || text.back() == ':')
    fail("--nnodes is '", text, "'; expected N or MIN:MAX");
  const int low = number("--nnodes", parts[0], 1, kMaxNodes);
  const int high = parts.size() == 1 ? low : number("--nnodes", parts[1], 1, kMaxNodes);
  if (low > high) fail("--nnodes is '", text, "': the least is more than the most");
  return {low, high};
}

// Reads "3" or "0:1,1:2": per local rank a sum of kStdout (1) and kStderr (2); 0 for ranks not named.
std::vector<int> streams(const char* what, const std::string& text, int nproc) {
  if (text.find(':') == std::string::npos) return std::vector<int>(size_t(nproc), number(what, text, 0, 3));
  std::vector<int> result(size_t(nproc), 0);
  for (const std::string& part : split(text, ",")) {
    const std::vector<std::string> pair = split(part, ":");
    if (pair.size() != 2)
      fail(what, " is '", text, "'; expected 0 to 3, or rank:value pairs such as 0:1,1:3");
    result[size_t(number(what, pair[0], 0, nproc - 1))] = number(what, pair[1], 0, 3);
  }
  return result;
}

// Reads "0,2": per local rank whether its output is shown. Empty: all are shown.
std::vector<bool> shown_ranks(const std::string& text, int nproc) {
  if (text.empty()) return {};
  std::vector<bool> shown(size_t(nproc), false);
  for (const std::string& rank : split(text, ","))
    shown[size_t(number("--local-ranks-filter", rank, 0, nproc - 1))] = true;
  return shown;
}

std::vector<int> signals(const std::string& text) {
  std::vector<int> result;
  for (const std::string& name : split(text, ",")) {
    int found = 0;
    for (int s = 1; s < NSIG; ++s)
      if (signal_name(s) == name) found = s;
    if (!found) fail("--signals-to-handle has '", name, "', which is no signal's name");
    if (found == SIGKILL || found == SIGSTOP || found == SIGCHLD)
      fail("--signals-to-handle has ", name, ", which cannot be handled");
    result.push_back(found);
  }
  return result;
}

// Reads "HOST", "HOST:PORT" or "[ADDRESS]:PORT".
void read_endpoint(const std::string& text, RendezvousOptions& rendezvous) {
  const size_t colon = text.rfind(':'), bracket = text.rfind(']');
  const bool has_port = colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
  rendezvous.host = has_port ? text.substr(0, colon) : text;
  if (has_port) rendezvous.port = number("--rdzv-endpoint's port", text.substr(colon + 1), 0, 65535);
  if (rendezvous.host.starts_with('[') && rendezvous.host.ends_with(']'))
    rendezvous.host = rendezvous.host.substr(1, rendezvous.host.size() - 2);
  if (rendezvous.host.empty()) fail("--rdzv-endpoint is '", text, "'; expected HOST or HOST:PORT");
}

void read_conf(const Args& a, RendezvousOptions& rendezvous) {
  for (const std::string& part : split(a.rdzv_conf, ",")) {
    const size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    if (equals == std::string::npos) fail("--rdzv-conf has '", part, "'; expected key=value");
    const std::string value = part.substr(equals + 1);
    const auto seconds = [&] { return Milliseconds(1000LL * number("--rdzv-conf", value, 0, 1'000'000)); };
    if (key == "join_timeout" || key == "timeout")
      rendezvous.join_timeout = seconds();
    else if (key == "last_call_timeout")
      rendezvous.join_window = seconds();
    else if (key != "close_timeout" && key != "read_timeout")
      fail("--rdzv-conf has '", key, "'; known are join_timeout and last_call_timeout");
  }
}

RendezvousOptions rendezvous_options(const Args& a) {
  RendezvousOptions rendezvous = a.spec.rendezvous;
  std::tie(rendezvous.min_nodes, rendezvous.max_nodes) = node_range(a.nnodes);
  if (const char* token = std::getenv("GRADUS_TOKEN")) rendezvous.token = token;
  read_conf(a, rendezvous);
  if (a.rdzv_backend.starts_with("etcd"))
    fail("--rdzv-backend ", a.rdzv_backend,
         " is not supported: static and c10d do the same without a server");
  if (a.rdzv_backend != "static" && a.rdzv_backend != "c10d")
    fail("--rdzv-backend is '", a.rdzv_backend, "'; expected static or c10d");
  if (a.standalone) {
    if (rendezvous.multi_node()) fail("--standalone is for one machine, but --nnodes is ", a.nnodes);
    return rendezvous;  // a free port, whatever the other options are
  }
  rendezvous.host = a.master_addr.empty() ? "127.0.0.1" : a.master_addr;
  rendezvous.port = a.master_port;
  if (!a.rdzv_endpoint.empty()) read_endpoint(a.rdzv_endpoint, rendezvous);
  if (!rendezvous.multi_node()) {
    // With one machine the c10d endpoint is not used: it is where launchers meet, and not the ranks'
    // MASTER_PORT.
    if (a.rdzv_backend == "c10d") {
      rendezvous.host = "127.0.0.1";
      rendezvous.port = 0;
    }
    return rendezvous;
  }
  rendezvous.job_id = a.spec.run_id;
  if (a.rdzv_backend == "static") {
    if (rendezvous.min_nodes != rendezvous.max_nodes)
      fail("--nnodes MIN:MAX needs --rdzv-backend c10d and --rdzv-endpoint HOST:PORT");
    if (a.node_rank >= rendezvous.max_nodes)
      fail("--node-rank is ", a.node_rank, ", but --nnodes is ", a.nnodes);
    rendezvous.node_rank = a.node_rank;
    if (!rendezvous.port) rendezvous.port = 29500;
  } else {
    if (a.rdzv_endpoint.empty())
      fail("--rdzv-backend c10d needs --rdzv-endpoint HOST:PORT, the same on all machines");
    if (!rendezvous.port) rendezvous.port = 29400;
  }
  return rendezvous;
}

SupervisorOptions job(const Args& a) {
  SupervisorOptions spec = a.spec;
  if (spec.argv.empty()) fail("which program? gradus-run [options] PROGRAM [arguments]");
  if (spec.argv[0].starts_with("-")) fail("unknown option ", spec.argv[0], "; see gradus-run --help");
  spec.rendezvous = rendezvous_options(a);
  spec.nproc = ranks_per_node(a.nproc);
  spec.redirects = streams("--redirects", a.redirects, spec.nproc);
  spec.tee = streams("--tee", a.tee, spec.nproc);
  spec.shown = shown_ranks(a.filter, spec.nproc);
  if (spec.log_dir.empty() && std::ranges::any_of(spec.redirects, [](int s) { return s != 0; }))
    fail("--redirects needs --log-dir, the folder for the files");
  spec.signals = signals(a.signals);
  if (!a.numa_binding.empty())
    spec.numa_binding = a.numa_binding == "node"        ? NumaMode::kNode
                        : a.numa_binding == "socket"    ? NumaMode::kSocket
                        : a.numa_binding == "exclusive" ? NumaMode::kExclusive
                                                        : NumaMode::kCoreComplex;
  spec.rendezvous.exit_timeout = Milliseconds(int64_t(a.exit_timeout * 1000));
  spec.shutdown_timeout = Milliseconds(int64_t(a.shutdown_timeout * 1000));
  spec.monitor_interval = Milliseconds(std::max<int64_t>(1, int64_t(a.monitor_interval * 1000)));
  spec.path = find_program(kOp, spec.argv[0]);
  return spec;
}

// Returns a line of JSON for each rank, as the events that torchrun's agent records when its ranks have ended.
std::string events(const SupervisorOptions& spec, const Outcome& outcome) {
  std::string lines;
  for (const RankExit& e : outcome.exits) {
    const std::string state = e.ok() ? "SUCCEEDED" : e.ended_by_launcher ? "TERMINATED" : "FAILED";
    const nlohmann::ordered_json event = {{"name", "torchelastic.worker.status." + state},
                                          {"source", "WORKER"},
                                          {"run_id", spec.run_id},
                                          {"role", spec.role},
                                          {"global_rank", e.rank},
                                          {"local_rank", e.local_rank},
                                          {"pid", e.pid},
                                          {"state", state},
                                          {"exit_code", e.exit_code},
                                          {"signal", e.signal}};
    lines += event.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
  }
  return lines;
}

// Runs a command of the shell with the text as its input. Its failure does not change the job's result.
void pipe_to(const std::string& command, const std::string& text) {
  signal(SIGPIPE, SIG_IGN);  // a command that does not read
  FILE* const pipe = popen(command.c_str(), "w");
  if (pipe) std::fwrite(text.data(), 1, text.size(), pipe);
  const int status = pipe ? pclose(pipe) : -1;
  if (status != 0)
    write_console(2,
                  concat(kOp, ": the event log handler '", command, "' failed: wait status ", status, "\n"),
                  Milliseconds(1'000));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Args args = parse(argc, argv);
    const SupervisorOptions spec = job(args);
    const Outcome outcome = supervise(spec);
    if (args.event_log_handler == "console") write_console(2, events(spec, outcome), Milliseconds(1'000));
    if (args.event_log_handler.starts_with("exec:"))
      pipe_to(args.event_log_handler.substr(5), events(spec, outcome));
    write_console(2, failure_report(kOp, outcome), Milliseconds(1'000));
    if (outcome.ok) return outcome.lost_output.empty() ? 0 : 1;
    return outcome.signal ? 128 + outcome.signal : 1;
  } catch (const ValueError& e) {
    std::cerr << e.what() << std::endl;
    return 2;
  } catch (const std::exception& e) {
    std::cerr << e.what() << std::endl;
    return 1;
  }
}
