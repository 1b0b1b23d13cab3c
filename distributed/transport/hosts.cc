// HostsBackend: hierarchical (two-level) collectives. all_reduce: the ranks of a host reduce into their first
// rank (the leader) through shared memory, the leaders all_reduce by messages, and each leader broadcasts the
// result on its host. exchange, broadcast and reduce (except of 16-bit floats) likewise have a step per
// level. reduce of 16-bit floats, reduce_scatter, all_gather and exchange_blocks are messages of all members.
#include "gradus/distributed/transport/hosts.h"

#include <algorithm>

#include "gradus/distributed/base/wire.h"

namespace gradus::dist::internal {
namespace {

// all_reduce adds 16-bit floats in f32, in pieces of this many elements, which bounds the temporary memory.
constexpr int64_t kWidePiece = 1 << 20;

template <class T> void widen(float* to, const void* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<const T*>(from)[i];
}
template <class T> void narrow(void* to, const float* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<T*>(to)[i] = T(from[i]);
}

class HostsBackend final : public Backend {
 public:
  explicit HostsBackend(HostsSetup setup) : setup_(std::move(setup)) {
    const std::vector<int>& host = setup_.host;
    for (size_t i = 0; i < host.size(); ++i) {
      if (size_t(host[i]) >= members_on_host_.size()) members_on_host_.resize(host[i] + 1);
      index_on_host_.push_back(int(members_on_host_[host[i]].size()));
      members_on_host_[host[i]].push_back(int(i));
    }
  }

  // The ranks of a host exchange first. Then leaders exchange the results, and pass them to their host. What
  // does not fit into the backends' exchanges travels as data.
  std::vector<std::string> exchange(const Call& call, std::string_view local) override {
    std::string records = to_wire(intra_host().exchange(call, local));
    if (is_leader()) records = to_wire(gather_any(*setup_.inter_host, call, records));
    const auto of_hosts = from_wire<std::vector<std::string>>(broadcast_any(call, records));
    std::vector<std::string> all(size());
    for (size_t h = 0; h < of_hosts.size(); ++h) {
      auto of_host = from_wire<std::vector<std::string>>(of_hosts[h]);
      for (size_t i = 0; i < of_host.size(); ++i)
        all.at(members_on_host_.at(h).at(i)) = std::move(of_host[i]);
    }
    return all;
  }

  void all_reduce(const Call& call, const void* in, void* out, int64_t n, DType dtype, ReduceOp op) override {
    if (dtype == DType::kF16) return all_reduce_wide<f16>(call, in, out, n, op);
    if (dtype == DType::kBF16) return all_reduce_wide<bf16>(call, in, out, n, op);
    reduce_to_leaders(call, in, out, n, dtype, op);
    intra_host().broadcast(call, 0, out, n * size_of(dtype));
  }

  void reduce(const Call& call, int root, const void* in, void* out, int64_t n, DType dtype,
              ReduceOp op) override {
    if (dtype == DType::kF16 || dtype == DType::kBF16)
      return all_members().reduce(call, root, in, out, n, dtype, op);
    const size_t bytes = n * size_of(dtype);
    const bool at_root = setup_.index == root;
    std::string host_sum;
    if (is_leader() && !at_root) host_sum.resize(bytes);
    void* const sum = at_root ? out : host_sum.data();
    intra_host().reduce(call, 0, in, sum, n, dtype, summed(op));
    if (is_leader()) {
      setup_.inter_host->reduce(call, host_of(root), sum, sum, n, dtype, summed(op));
      finish_reduce(sum, n, dtype, op, size());
    }
    if (host_of(root) != my_host() || index_on_host_[root] == 0) return;
    // Moves the result from the leader to the root.
    std::vector<ConstBlock> sent(members_on_host_[my_host()].size());
    std::vector<Block> received(sent.size());
    if (is_leader()) sent[index_on_host_[root]] = {sum, bytes};
    if (at_root) received[0] = {out, bytes};
    intra_host().exchange_blocks(call, sent, received);
  }

  void broadcast(const Call& call, int root, void* data, size_t bytes) override {
    const bool at_home = host_of(root) == my_host();
    if (at_home && index_on_host_[root] != 0) intra_host().broadcast(call, index_on_host_[root], data, bytes);
    if (is_leader()) setup_.inter_host->broadcast(call, host_of(root), data, bytes);
    if (!at_home || index_on_host_[root] == 0) intra_host().broadcast(call, 0, data, bytes);
  }

  void reduce_scatter(const Call& call, std::span<const ConstBlock> blocks, void* out, DType dtype,
                      ReduceOp op) override {
    all_members().reduce_scatter(call, blocks, out, dtype, op);
  }
  void all_gather(const Call& call, ConstBlock in, std::span<const Block> out) override {
    all_members().all_gather(call, in, out);
  }
  void exchange_blocks(const Call& call, std::span<const ConstBlock> in,
                       std::span<const Block> out) override {
    all_members().exchange_blocks(call, in, out);
  }

 private:
  Backend& intra_host() const { return *setup_.intra_host; }
  Backend& all_members() const { return *setup_.all_members; }
  int size() const { return int(setup_.members.size()); }
  int host_of(int member) const { return setup_.host[member]; }
  int my_host() const { return host_of(setup_.index); }
  bool is_leader() const { return index_on_host_[setup_.index] == 0; }

  // Returns kSum for the mean, which is a sum divided at the end.
  static ReduceOp summed(ReduceOp op) { return op == ReduceOp::kAvg ? ReduceOp::kSum : op; }

  void reduce_to_leaders(const Call& call, const void* in, void* out, int64_t n, DType dtype, ReduceOp op) {
    intra_host().reduce(call, 0, in, out, n, dtype, summed(op));
    if (!is_leader()) return;
    setup_.inter_host->all_reduce(call, out, out, n, dtype, summed(op));
    finish_reduce(out, n, dtype, op, size());
  }

  // Reduces in f32 and rounds to T (f16 or bf16) once at the end, as among the ranks of one host.
  template <class T>
  void all_reduce_wide(const Call& call, const void* in, void* out, int64_t n, ReduceOp op) {
    std::vector<float> wide(std::min(n, kWidePiece));
    for (int64_t begin = 0; begin < n; begin += kWidePiece) {
      const int64_t count = std::min(n - begin, kWidePiece);
      T* const piece = static_cast<T*>(out) + begin;
      widen<T>(wide.data(), static_cast<const T*>(in) + begin, count);
      reduce_to_leaders(call, wide.data(), wide.data(), count, DType::kF32, op);
      if (is_leader()) narrow<T>(piece, wide.data(), count);
      intra_host().broadcast(call, 0, piece, count * sizeof(T));
    }
  }

  // Returns all members' `local`, of any size. Short blocks travel in the exchange itself after "=", else
  // their sizes after "#", and then the blocks by all_gather.
  static std::vector<std::string> gather_any(Backend& backend, const Call& call, const std::string& local) {
    const bool fits = local.size() < kMaxExchangeBytes;
    std::vector<std::string> all =
        backend.exchange(call, fits ? "=" + local : "#" + to_wire(uint64_t(local.size())));
    if (std::ranges::all_of(all, [](const std::string& s) { return s[0] == '='; })) {
      for (std::string& block : all) block.erase(0, 1);
      return all;
    }
    for (std::string& block : all)
      block.resize(block[0] == '=' ? block.size() - 1 : from_wire<uint64_t>(block.substr(1)));
    std::vector<Block> blocks;
    for (std::string& block : all) blocks.push_back({block.data(), block.size()});
    backend.all_gather(call, {local.data(), local.size()}, blocks);
    return all;
  }

  // Returns the leader's `data` on all ranks of this host.
  std::string broadcast_any(const Call& call, const std::string& data) {
    return gather_any(intra_host(), call, is_leader() ? data : "")[0];
  }

  const HostsSetup setup_;
  std::vector<std::vector<int>> members_on_host_;  // per host: its members
  std::vector<int> index_on_host_;                 // per member: its index among the members of its host
};

}  // namespace

std::unique_ptr<Backend> make_hosts_backend(HostsSetup setup) {
  return std::make_unique<HostsBackend>(std::move(setup));
}

}  // namespace gradus::dist::internal
