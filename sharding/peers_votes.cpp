// Votes on the watch's lines: process 0 counts what each process says, and tells all what came of it.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "sharding/peers.h"

namespace tessera::detail {
namespace {

constexpr int patience = 10;  // timeouts between the first vote and the last

struct Vote {
  uint64_t box = 0, number = 0;
  std::string text;  // or words, of a verdict
};

Vote vote_in(const std::string& line) {
  std::istringstream in(line);
  std::string verb;
  Vote vote;
  in >> verb >> vote.box >> vote.number;
  in.get();  // the space before the text
  std::getline(in, vote.text);
  return vote;
}

std::string difference(const std::map<int, std::string>& texts) {
  for (const auto& [process, text] : texts)
    if (text != texts.at(0)) return fmt::format("process 0 has {}, process {} has {}", texts.at(0), process, text);
  return "";
}

}  // namespace

void Peers::vote(uint64_t box, uint64_t number, const std::string& text) {
  post(fmt::format("vote {} {} {}", box, number, text));
}

std::optional<std::string> Peers::verdict(uint64_t box, uint64_t number, Duration longest) {
  std::unique_lock lock(mutex_);
  settled_.wait_for(lock, longest, [&] { return verdicts_.contains({box, number}) || loss_; });
  const auto found = verdicts_.extract(std::pair(box, number));
  return found ? std::optional(found.mapped()) : std::nullopt;
}

void Peers::count_vote(int process, const std::string& line) {
  Vote vote = vote_in(line);
  const auto is_of_it = [&](const Tally& tally) { return tally.box == vote.box && tally.number == vote.number; };
  auto tally = std::find_if(tallies_.begin(), tallies_.end(), is_of_it);
  if (tally == tallies_.end()) tally = tallies_.insert(tally, {vote.box, vote.number, Clock::now(), {}});
  tally->texts[process] = std::move(vote.text);
  if (static_cast<int>(tally->texts.size()) < count_) return;
  const std::string verdict = fmt::format("voted {} {} {}", vote.box, vote.number, difference(tally->texts));
  tallies_.erase(tally);
  tell(verdict);
  settle(verdict);
}

void Peers::settle(const std::string& line) {
  Vote verdict = vote_in(line);
  {
    std::lock_guard lock(mutex_);
    verdicts_[{verdict.box, verdict.number}] = std::move(verdict.text);
  }
  settled_.notify_all();
}

void Peers::watch_votes(Clock::time_point now) {
  for (const Tally& tally : tallies_) {
    if (now - tally.since < timeout_ * patience) continue;
    int missing = 0;
    while (tally.texts.contains(missing)) ++missing;
    lose(missing,
         fmt::format("has not come to it within {:.1f} s", std::chrono::duration<double>(timeout_ * patience).count()));
  }
}

}  // namespace tessera::detail
