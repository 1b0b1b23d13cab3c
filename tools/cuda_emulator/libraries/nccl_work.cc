// The two halves of an emulated NCCL work, when they run in their stream, and the detection of deadlocks.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <type_traits>
#include <utility>

#include "gradus/tools/cuda_emulator/libraries/library_operand.h"
#include "gradus/tools/cuda_emulator/libraries/nccl.h"

namespace gradus::cuda::emulated {
namespace {

// Indexed by ncclDataType_t. Signed and unsigned integers are alike but for minima, maxima and averages.
constexpr DType kDTypes[] = {DType::kI8,  DType::kU8,  DType::kI32, DType::kI32, DType::kI64,
                             DType::kI64, DType::kF16, DType::kF32, DType::kF64, DType::kBF16};

uint64_t bytes_of(const NcclRecord& r) { return r.count * static_cast<uint64_t>(size_of(kDTypes[r.dtype])); }

// The bytes that a rank sends and receives. A record of a message has its peer as the root.
uint64_t send_bytes(const NcclRecord& r, int rank, int ranks) {
  if (r.function == NcclFunction::kRecv || (r.function == NcclFunction::kBroadcast && rank != r.root))
    return 0;
  return bytes_of(r) * (r.function == NcclFunction::kReduceScatter ? static_cast<uint64_t>(ranks) : 1);
}
uint64_t receive_bytes(const NcclRecord& r, int rank, int ranks) {
  if (r.function == NcclFunction::kSend || (r.function == NcclFunction::kReduce && rank != r.root)) return 0;
  return bytes_of(r) * (r.function == NcclFunction::kAllGather ? static_cast<uint64_t>(ranks) : 1);
}

// Files that queued works of this process will publish.
std::set<std::string>& queued_files() {
  static auto& files = *new std::set<std::string>;
  return files;
}
// Works of which the first half has run, and the second has not.
std::vector<std::weak_ptr<NcclWork>>& waiting_works() {
  static auto& works = *new std::vector<std::weak_ptr<NcclWork>>;
  return works;
}
// The latest work of each device whose first half has run.
std::map<int, std::weak_ptr<NcclWork>>& latest() {
  static auto& works = *new std::map<int, std::weak_ptr<NcclWork>>;
  return works;
}

// ---- memory

struct Range {
  const char* name;
  const char* p;
  uint64_t bytes;

  char* data() const { return device_that_holds(p)->for_kernels(p); }
  Byte* state() const { return device_that_holds(p)->state(device_that_holds(p)->offset(data())); }
  std::string read() const { return bytes ? std::string(data(), bytes) : ""; }
  void write(const std::string& from) const {
    if (!bytes) return;
    std::memcpy(data(), from.data(), bytes);
    std::memset(state(), static_cast<int>(Byte::kWritten), bytes);
  }
  void fill(Byte known) const {
    if (!bytes) return;
    write(std::string(bytes, char(0xff)));
    std::memset(state(), static_cast<int>(known), bytes);
  }
};
Range input_of(const NcclWork& w, const NcclCall& call) {
  const NcclCommunicator& c = *w.communicator;
  return {"sendbuff", static_cast<const char*>(call.send), send_bytes(call.record, c.rank, c.ranks)};
}
Range output_of(const NcclWork& w, const NcclCall& call) {
  const NcclCommunicator& c = *w.communicator;
  return {"recvbuff", static_cast<const char*>(call.receive), receive_bytes(call.record, c.rank, c.ranks)};
}

[[noreturn]] void stop(const NcclWork& w, const NcclCall& call, FaultKind kind, const std::string& what,
                       const void* p = nullptr) {
  stop(LibraryCall{call.record.name(), w.op}, kind, what, p);
}

// Checks that the buffers lie within allocations of the communicator's device, and overlap only in place.
void check_buffers(const NcclWork& w, const NcclCall& call) {
  const NcclRecord& r = call.record;
  const Range input = input_of(w, call), output = output_of(w, call);
  for (const Range& range : {input, output}) {
    if (!range.bytes) continue;
    const auto count = static_cast<int64_t>(range.bytes) / size_of(kDTypes[r.dtype]);
    const DeviceMemory& memory =
        check_place({r.name(), w.op}, {range.name, range.p, kDTypes[r.dtype], {count}, {1}});
    if (const int device = device_number(&memory); device != w.communicator->device)
      stop(w, call, FaultKind::kHostMemory,
           std::string(range.name) + " is memory of device " + std::to_string(device) +
               ", the communicator's is device " + std::to_string(w.communicator->device),
           range.p);
  }
  const auto block = static_cast<std::ptrdiff_t>(bytes_of(r)) * w.communicator->rank;
  const std::ptrdiff_t in_place = r.function == NcclFunction::kAllGather       ? block
                                  : r.function == NcclFunction::kReduceScatter ? -block
                                                                               : 0;
  if (input.bytes && output.bytes && input.p < output.p + output.bytes && output.p < input.p + input.bytes &&
      input.p - output.p != in_place)
    stop(w, call, FaultKind::kRace, "recvbuff overlaps sendbuff, and the call is not in place", output.p);
}

void check_written(const NcclWork& w, const NcclCall& call) {
  const Range input = input_of(w, call);
  if (!input.bytes) return;
  const Byte *const begin = input.state(), *const end = begin + input.bytes;
  const Byte* const found = std::find_if(begin, end, [](Byte b) { return b != Byte::kWritten; });
  if (found != end)
    stop(w, call, FaultKind::kUnwritten, "sendbuff was not written", input.p + (found - begin));
}

// Between the halves no other work may write the input, or touch the output.
void check_unchanged(const NcclWork& w, const NcclCall& call) {
  const Range input = input_of(w, call), output = output_of(w, call);
  if (input.read() != call.input)
    stop(w, call, FaultKind::kRace, "sendbuff was changed during the call", input.p);
  if (output.read() != std::string(output.bytes, char(0xff)))
    stop(w, call, FaultKind::kRace, "recvbuff was changed during the call", output.p);
}

// ---- files

struct FileHeader {
  static constexpr uint32_t kMagic = 0x6e63636c;
  uint32_t magic, is_invalid;  // is_invalid: the call had a fault, and sends no data
  NcclRecord record;
};

void publish(const NcclWork& w, const NcclCall& call) {
  const FileHeader header{FileHeader::kMagic, w.is_invalid, call.record};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  if (!w.is_invalid) bytes += input_of(w, call).read();
  w.communicator->exchange.publish(call.sent, bytes);
}

// Returns the input of a rank's call. Throws Stop if it does not match, or had a fault, which that rank reports.
std::string receive(const NcclWork& w, const NcclCall& call, int rank, const std::string& file) {
  const NcclCommunicator& c = *w.communicator;
  std::string bytes = c.exchange.read(file);
  FileHeader header;
  if (bytes.size() < sizeof header)
    stop(w, call, FaultKind::kCollective, "malformed file " + c.exchange.path(file));
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.is_invalid) throw Stop();
  NcclRecord expected = call.record;
  if (expected.is_message()) {
    const bool sends = expected.function == NcclFunction::kSend;
    expected.function = sends ? NcclFunction::kRecv : NcclFunction::kSend;
    expected.root = c.rank;
  }
  if (header.record != expected)
    stop(w, call, FaultKind::kCollective,
         "rank " + std::to_string(c.rank) + " calls " + call.record.describe() + ", rank " +
             std::to_string(rank) + " calls " + header.record.describe() + "\n  " + name_of(c) + ", file " +
             file);
  if (header.magic != FileHeader::kMagic ||
      bytes.size() != sizeof header + send_bytes(expected, rank, c.ranks))
    stop(w, call, FaultKind::kCollective, "malformed file " + c.exchange.path(file));
  return bytes.substr(sizeof header);
}

// ---- results

// Minima and maxima of floats are those of PTX, by fminf and __hmin in NCCL's src/device/reduce_kernel.h: NaN only if both
// operands are NaN, and -0 is less than 0.
template <class T> T combine(T a, T b, int op) {
  if constexpr (std::is_floating_point_v<T>) {
    if (op == ncclMin) return a == b ? (std::signbit(a) ? a : b) : std::fmin(a, b);
    if (op == ncclMax) return a == b ? (std::signbit(a) ? b : a) : std::fmax(a, b);
    return op == ncclProd ? a * b : a + b;
  } else {
    if (op == ncclMin) return std::min(a, b);
    if (op == ncclMax) return std::max(a, b);
    const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);  // wrap around
    return static_cast<T>(op == ncclProd ? x * y : x + y);
  }
}

// y[i] = op(x[0][i], x[1][i], ...) from left to right, for the bytes from `offset` on. Sum: the type in which
// elements of type T are accumulated.
template <class T, class Sum = T>
std::string reduce(const std::vector<std::string>& x, size_t offset, size_t bytes, int op) {
  std::string y(bytes, '\0');
  for (size_t at = 0; at < bytes; at += sizeof(T)) {
    Sum sum{};
    for (size_t rank = 0; rank < x.size(); ++rank) {
      T element;
      std::memcpy(&element, x[rank].data() + offset + at, sizeof element);
      sum = rank == 0 ? static_cast<Sum>(element) : combine(sum, static_cast<Sum>(element), op);
    }
    if (op == ncclAvg) sum = static_cast<Sum>(sum / static_cast<Sum>(x.size()));
    const T result = static_cast<T>(sum);
    std::memcpy(y.data() + at, &result, sizeof result);
  }
  return y;
}

std::string result_of(const NcclRecord& r, const std::vector<std::string>& inputs, int rank) {
  if (r.function == NcclFunction::kRecv) return inputs[0];
  if (r.function == NcclFunction::kBroadcast) return inputs[static_cast<size_t>(r.root)];
  if (r.function == NcclFunction::kAllGather) {
    std::string all;
    for (const std::string& input : inputs) all += input;
    return all;
  }
  const size_t n = bytes_of(r),
               offset = r.function == NcclFunction::kReduceScatter ? n * static_cast<size_t>(rank) : 0;
  switch (r.dtype) {
    case ncclInt8:
      return reduce<int8_t>(inputs, offset, n, r.op);
    case ncclUint8:
      return reduce<uint8_t>(inputs, offset, n, r.op);
    case ncclInt32:
      return reduce<int32_t>(inputs, offset, n, r.op);
    case ncclUint32:
      return reduce<uint32_t>(inputs, offset, n, r.op);
    case ncclInt64:
      return reduce<int64_t>(inputs, offset, n, r.op);
    case ncclUint64:
      return reduce<uint64_t>(inputs, offset, n, r.op);
    case ncclFloat16:
      return reduce<f16, float>(inputs, offset, n, r.op);
    case ncclFloat32:
      return reduce<float>(inputs, offset, n, r.op);
    case ncclFloat64:
      return reduce<double>(inputs, offset, n, r.op);
    default:
      return reduce<bf16, float>(inputs, offset, n, r.op);
  }
}

// ---- the two halves

// Checks the buffers, publishes the inputs, and fills the outputs with 0xff. After a fault it publishes the
// fault, so that other ranks do not wait. So the buffers are checked here, and not in `ranges` of the work.
void arrive(const std::shared_ptr<NcclWork>& work) {
  NcclWork& w = *work;
  for (const NcclCall& call : w.calls) queued_files().erase(w.communicator->exchange.path(call.sent));
  if (w.is_aborted()) return;
  try {
    for (const NcclCall& call : w.calls) check_buffers(w, call), check_written(w, call);
  } catch (const Stop&) {
    w.is_invalid = true;
  }
  // In reverse: the file of a group's first collective tells that those of the others exist.
  std::for_each(w.calls.rbegin(), w.calls.rend(), [&](const NcclCall& call) { publish(w, call); });
  waiting_works().push_back(work);
  if (w.is_invalid) return;
  for (const NcclCall& call : w.calls) output_of(w, call).fill(kFresh);
  for (NcclCall& call : w.calls) call.input = input_of(w, call).read();
}

// Compares the calls of the ranks, and writes the outputs. After a fault or an abort they are 0xff.
void finish(NcclWork& w) {
  NcclCommunicator& c = *w.communicator;
  w.has_finished = true;
  std::erase_if(waiting_works(),
                [&](const auto& other) { return other.expired() || other.lock().get() == &w; });
  bool is_valid = false;
  try {
    if (w.is_invalid) throw Stop();
    for (const NcclCall& call : w.calls) check_buffers(w, call);
    is_valid = true;
    if (w.is_aborted()) throw Stop();
    for (const NcclCall& call : w.calls) check_unchanged(w, call);
    for (const NcclCall& call : w.calls) {
      std::vector<std::string> inputs;
      for (const std::string& file : call.needed) {
        const int rank = call.record.is_message() ? call.record.root : static_cast<int>(inputs.size());
        inputs.push_back(receive(w, call, rank, file));
      }
      const Range output = output_of(w, call);
      if (output.bytes) output.write(result_of(call.record, inputs, c.rank));
    }
  } catch (const Stop&) {
    for (const NcclCall& call : w.calls)
      if (is_valid) output_of(w, call).fill(Byte::kWritten);
  }
  if (w.is_aborted()) return;
  // All ranks have sent their files of this work, and so have finished earlier works.
  std::vector<std::string> own_files;
  for (const NcclCall& call : w.calls) {
    if (call.record.is_message())
      c.exchange.remove(call.needed[0]);
    else
      own_files.push_back(call.sent);
  }
  if (own_files.empty()) return;
  for (const std::string& file : c.old_files) c.exchange.remove(file);
  c.old_files = std::move(own_files);
}

bool is_ready(NcclWork& w) {
  if (w.is_aborted()) return true;
  const std::vector<std::string> needed = w.needed();
  while (w.present < needed.size() && w.communicator->exchange.contains(needed[w.present])) ++w.present;
  return w.present == needed.size();
}

// Called when no work of this process can run. It is a deadlock if each work that waits needs a file that a
// queued work of this process will publish, and all other files exist or are of that kind. Reports it, and
// cancels the works that wait.
bool break_deadlock() {
  std::string text;
  std::vector<std::shared_ptr<NcclWork>> deadlocked;
  for (const auto& waiting : waiting_works()) {
    const auto w = waiting.lock();
    if (!w) continue;
    const NcclCommunicator& c = *w->communicator;
    bool is_blocked = false;
    for (const std::string& file : w->needed()) {
      if (queued_files().contains(c.exchange.path(file)))
        is_blocked = true;
      else if (!c.exchange.contains(file))
        return false;
    }
    if (!is_blocked) return false;
    text += "\n  device " + std::to_string(c.device) + " waits in " + w->calls[0].record.describe() + " of " +
            name_of(c);
    deadlocked.push_back(w);
  }
  if (deadlocked.empty()) return false;
  deliver(library_fault({"NCCL", deadlocked[0]->op}, FaultKind::kCollective,
                        "a deadlock: GPUs run calls of two communicators in opposite orders" + text));
  for (const auto& w : deadlocked) w->is_cancelled = true;
  return true;
}

// Names the files of a call by its number among the communicator's collectives, or the pair's messages.
void name_files(NcclCommunicator& c, NcclCall& call) {
  const auto join = [](char kind, uint64_t a, uint64_t b) {
    return kind + std::to_string(a) + "." + std::to_string(b);
  };
  const auto own = static_cast<uint64_t>(c.rank), peer = static_cast<uint64_t>(call.record.root);
  if (!call.record.is_message()) {
    const uint64_t number = c.collectives++;
    call.sent = join('c', number, own);
    for (int rank = 0; rank < c.ranks; ++rank)
      call.needed.push_back(join('c', number, static_cast<uint64_t>(rank)));
    return;
  }
  const bool sends = call.record.function == NcclFunction::kSend;
  const std::string number = "." + std::to_string((sends ? c.sends : c.receives)[peer]++);
  const uint64_t from = sends ? own : peer, to = sends ? peer : own;
  call.sent = join(sends ? 's' : 'r', from, to) + number;
  call.needed = {join(sends ? 'r' : 's', from, to) + number};
}

}  // namespace

const char* NcclRecord::name() const {
  constexpr const char* kNames[] = {"ncclAllReduce",     "ncclReduce", "ncclBroadcast", "ncclAllGather",
                                    "ncclReduceScatter", "ncclSend",   "ncclRecv"};
  return static_cast<size_t>(function) < std::size(kNames) ? kNames[static_cast<size_t>(function)] : "?";
}

std::string NcclRecord::describe() const {
  constexpr const char* kTypes[] = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                    "uint64", "float16", "float32", "float64", "bfloat16"};
  constexpr const char* kOps[] = {"sum", "prod", "max", "min", "avg"};
  std::string text = std::string(name()) + "(count " + std::to_string(count);
  if (static_cast<size_t>(dtype) < std::size(kTypes)) text += std::string(", ") + kTypes[dtype];
  if (static_cast<size_t>(op) < std::size(kOps)) text += std::string(", ") + kOps[op];
  if (root >= 0) text += (is_message() ? ", peer " : ", root ") + std::to_string(root);
  return text + ")" + (group_size > 1 ? " in a group of " + std::to_string(group_size) + " collectives" : "");
}

bool NcclCommunicator::has_queued_work() const {
  return std::any_of(works.begin(), works.end(), [](const auto& work) {
    const auto w = work.lock();
    return w && !w->has_finished;
  });
}

std::shared_ptr<NcclWork> running_nccl_work(int device) {
  const std::shared_ptr<NcclWork> work = latest()[device].lock();
  return work && !work->has_finished ? work : nullptr;
}

std::string name_of(const NcclCommunicator& c) {
  const std::string directory = c.exchange.path("");
  return "communicator " + directory.substr(directory.rfind('_') + 1, 6) + ", rank " +
         std::to_string(c.rank) + " of " + std::to_string(c.ranks);
}

std::vector<std::string> NcclWork::needed() const {
  std::vector<std::string> all;
  bool has_collective = false;
  for (const NcclCall& call : calls) {
    const bool is_later = !call.record.is_message() && std::exchange(has_collective, true);
    if (!is_later) all.insert(all.end(), call.needed.begin(), call.needed.end());
  }
  return all;
}

void enqueue_nccl_work(Runtime& runtime, const std::shared_ptr<NcclWork>& work) {
  NcclCommunicator& c = *work->communicator;
  runtime.on_stall = break_deadlock;
  const auto collectives = std::count_if(work->calls.begin(), work->calls.end(),
                                         [](const NcclCall& call) { return !call.record.is_message(); });
  for (NcclCall& call : work->calls)
    if (!call.record.is_message()) call.record.group_size = static_cast<int32_t>(collectives);
  // The calls that are queued, oldest first. Launches of one graph follow each other.
  const auto queued = std::make_shared<std::deque<std::shared_ptr<NcclWork>>>();
  const auto number = [work, queued] {
    NcclCommunicator& of = *work->communicator;
    const auto numbered = queued->emplace_back(std::make_shared<NcclWork>(*work));
    for (NcclCall& call : numbered->calls) {
      name_files(of, call);
      queued_files().insert(of.exchange.path(call.sent));
    }
    std::erase_if(of.works, [](const auto& w) { return w.expired(); });
    of.works.push_back(numbered);
  };
  const bool is_captured = work->stream->capture != nullptr;
  if (!is_captured) number();
  const auto begin = [queued, device = c.device] {
    latest()[device] = queued->front();
    arrive(queued->front());
  };
  const auto end = [queued] {
    finish(*queued->front());
    queued->pop_front();
  };
  Work first{.run = begin,
             .is_ready = [device = c.device] { return !running_nccl_work(device); },
             .communicator = &c};
  if (is_captured) first.on_launch = number;
  runtime.enqueue(work->stream, std::move(first));
  runtime.enqueue(work->stream, {.run = end, .is_ready = [queued] { return is_ready(*queued->front()); }});
}

}  // namespace gradus::cuda::emulated
