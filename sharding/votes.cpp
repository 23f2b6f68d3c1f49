// Waiting for a verdict, or for the news that there will be none.
#include "sharding/votes.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "sharding/error.h"
#include "sharding/joined.h"

namespace tessera::detail {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t group_of_votes = 0;  // for who asks what this process does

uint64_t next_box() {
  static uint64_t boxes = 0;
  return ++boxes;
}

std::optional<Loss> news_of(const Joined& joined) {
  if (!joined.peers->has_news()) return std::nullopt;
  if (auto loss = joined.peers->loss()) return loss;
  for (int process = 0; process < joined.count; ++process)
    if (joined.peers->has_left(process)) return left_early(process);
  return std::nullopt;
}

}  // namespace

Votes::Votes(const char* verb, std::string what)
    : verb_(verb), what_(std::move(what)), box_(next_box()), maker_(std::this_thread::get_id()) {}

bool Votes::all(bool yes) { return decide(yes ? "yes" : "no").empty() && yes; }

void Votes::check_same(const std::string& mine, std::string_view what_to_do) {
  if (const std::string difference = decide(mine); !difference.empty())
    fail(ErrorKind::inconsistent, verb_, fmt::format("{}: {}. {}", what_, difference, what_to_do));
}

std::string Votes::decide(const std::string& mine) {
  const Joined& here = joined();
  if (here.count == 1) return "";
  if (const char* why = why_apart()) fail(ErrorKind::other, verb_, fmt::format("{}: {}", what_, why));
  const bool is_at_hand = std::this_thread::get_id() == maker_;
  if (is_at_hand) here.peers->begin(group_of_votes, number_, fmt::format("[{}] {}", verb_, what_));
  here.peers->vote(box_, ++number_, mine);
  std::optional<std::string> verdict;
  // All are told a verdict before any of them can leave, so where news of that is here, the verdict is.
  for (std::optional<Loss> loss; !verdict;) {
    if (loss) fail_with(*loss);
    loss = news_of(here);
    verdict = here.peers->verdict(box_, number_, loss ? 0ms : 50ms);
  }
  if (is_at_hand) here.peers->end();
  return *verdict;
}

void Votes::fail_with(const Loss& loss) const {
  joined().peers->report(loss);
  fail(ErrorKind::other, verb_, fmt::format("{}: {}", what_, words_of(loss, joined())));
}

}  // namespace tessera::detail
