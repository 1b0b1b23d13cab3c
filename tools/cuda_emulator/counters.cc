// Implementation of counters.h: groups the accesses of the lanes of a warp into requests, as a GPU's memory
// units do, and counts the sectors and passes of each request.
#include "gradus/tools/cuda_emulator/counters.h"

#include <algorithm>
#include <array>
#include <utility>

namespace gradus::cuda::emulated {
Counters* Counters::active_ = nullptr;

uint64_t Counters::sectors_of(const Request& request) {
  auto& sectors = scratch_;
  sectors.clear();
  for (const LaneAccess& a : request)
    for (uintptr_t s = a.address / kSectorBytes; s <= (a.address + a.bytes - 1) / kSectorBytes; ++s)
      sectors.push_back(s);
  std::sort(sectors.begin(), sectors.end());
  return static_cast<uint64_t>(std::unique(sectors.begin(), sectors.end()) - sectors.begin());
}

// Requests of 8 and 16 bytes per lane are served in halves and quarters of a warp. Each part takes as many
// passes as the maximal number of distinct words in one bank: 1 without bank conflicts.
void Counters::count_passes(const Request& request, Traffic* total) {
  uint32_t widest = 4;
  for (const LaneAccess& a : request) widest = std::max(widest, a.bytes);
  const uint32_t parts = widest / 4;
  for (uint32_t part = 0; part < parts; ++part) {
    auto& words = scratch_;
    words.clear();
    for (const LaneAccess& a : request)
      if (a.lane * parts / 32 == part)
        for (uintptr_t w = a.address / 4; w <= (a.address + a.bytes - 1) / 4; ++w) words.push_back(w);
    if (words.empty()) continue;
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    std::array<uint64_t, kBanks> busy{};
    for (const uintptr_t w : words) ++busy[w % kBanks];
    total->passes += *std::max_element(busy.begin(), busy.end());
    ++total->least_passes;
  }
}

void Counters::count(const SourceLocation& location, int thread, uintptr_t address, size_t bytes,
                     Access access, bool shared) {
  const bool write = access != Access::kRead;
  Site& site = sites_[2 * shared + write][location];
  site.location = location, site.shared = shared, site.write = write;
  const auto index = static_cast<size_t>(thread);
  if (site.turns.size() <= index) site.turns.resize(index + 1);
  // The k-th accesses at a location by the lanes of one warp are one request.
  const size_t number = size_t(site.turns[index]++) * 32 + index / 32;
  if (site.requests.size() <= number) site.requests.resize(number + 1);
  site.requests[number].push_back({static_cast<uint32_t>(index % 32), static_cast<uint32_t>(bytes), address});
}

void Counters::launched(const void* kernel, int64_t threads, int64_t shared_bytes) {
  Launched& l = launched_[kernel];
  ++l.launches;
  l.threads = std::max(l.threads, threads);
  l.shared_bytes = std::max(l.shared_bytes, shared_bytes);
}

void Counters::end_block() {
  for (auto& sites : sites_)
    for (auto& [location, site] : sites) {
      for (Request& request : site.requests) {
        if (request.empty()) continue;
        ++site.total.requests;
        for (const LaneAccess& a : request) site.total.bytes += a.bytes;
        if (site.shared)
          count_passes(request, &site.total);
        else
          site.total.sectors += sectors_of(request);
        request.clear();
      }
      site.turns.clear();
    }
}

std::vector<Traffic> Counters::take() {
  std::vector<Traffic> all;
  for (auto& sites : sites_) {
    for (auto& [location, site] : sites) {
      Traffic t = site.total;
      t.location = location, t.shared = site.shared, t.write = site.write;
      all.push_back(std::move(t));
    }
    sites.clear();
  }
  return all;
}

std::vector<Launched> Counters::take_launches() {
  std::vector<Launched> all;
  for (auto& [kernel, l] : launched_) {
    l.kernel = name_of_function(kernel);
    all.push_back(std::move(l));
  }
  launched_.clear();
  std::sort(all.begin(), all.end(), [](const Launched& a, const Launched& b) { return a.kernel < b.kernel; });
  return all;
}

CounterScope::CounterScope() : counters_(std::make_unique<Counters>()) {
  Counters::active_ = counters_.get();
}
CounterScope::~CounterScope() { Counters::active_ = nullptr; }
std::vector<Traffic> CounterScope::take() { return counters_->take(); }
std::vector<Launched> CounterScope::take_launches() { return counters_->take_launches(); }

}  // namespace gradus::cuda::emulated
