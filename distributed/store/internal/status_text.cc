#include "gradus/distributed/store/internal/status_text.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "gradus/distributed/store/store_protocol.h"
#include "gradus/tensor/base/error.h"

namespace gradus::dist::internal {
namespace {

constexpr size_t kMost = kMaxDoingText / 2;

bool take(std::string_view& from, char mark) {
  const bool there = from.starts_with(mark);
  from.remove_prefix(there);
  return there;
}

// Returns whether all waits had room.
bool add_waits(std::string& text, const RankStatus& status) {
  for (const RankWait& wait : status.waits) {
    const std::string head =
        concat(text.empty() ? "" : " ", wait.holds ? "" : "~", wait.any ? "?" : "", wait.call, ':');
    if (text.size() + head.size() > kMost) return false;
    text += head;
    text += wait.ranks.text((kMost - text.size()) / 2);  // leaves room for the other waits
  }
  return true;
}

std::string stuck_text(const RankStatus& status) {
  char number[20];
  std::snprintf(number, sizeof number, "!%llx", (unsigned long long)status.stuck);
  std::string text = number;
  for (const auto& [group, last] : status.came) text += concat(" ^", group, '#', last);
  return text;
}

}  // namespace

std::string to_text(const RankStatus& status) {
  std::string text;
  if (status.stuck != 0) text = stuck_text(status);
  if (!add_waits(text, status) && status.stuck != 0) {
    text.clear();
    add_waits(text, status);
  }
  return concat(text, '\n', status.doing).substr(0, kMaxDoingText);
}

uint64_t read_stuck(std::string_view text) {
  uint64_t number = 0;
  if (take(text, '!')) std::from_chars(text.data(), text.data() + text.size(), number, 16);
  return number;
}

void read_text(std::string_view text, int world_size, RankStatus& status) {
  const size_t end = text.find('\n');
  status.doing = text.substr(end == std::string_view::npos ? 0 : end + 1);
  if (end == std::string_view::npos) return;
  status.stuck = read_stuck(text);
  std::string_view left = text.substr(0, end);
  while (!left.empty()) {
    std::string_view rest = left.substr(0, left.find(' '));
    left.remove_prefix(std::min(rest.size() + 1, left.size()));
    if (rest.starts_with('!')) continue;
    if (take(rest, '^')) {
      status.came[std::string(group_of(rest))] = number_of(rest);
      continue;
    }
    RankWait& wait = status.waits.emplace_back();
    wait.holds = !take(rest, '~');
    wait.any = take(rest, '?');
    const size_t colon = std::min(rest.find(':'), rest.size());
    wait.call = rest.substr(0, colon);
    if (colon < rest.size()) wait.ranks = RankSet::parse(rest.substr(colon + 1), world_size);
  }
}

}  // namespace gradus::dist::internal
