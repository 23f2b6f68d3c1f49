// Waits: spin, yield, sleep; and who is missing when it takes too long.
#include "sharding/wait.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <string_view>
#include <thread>

#include "sharding/background.h"
#include "sharding/error.h"

namespace tessera::detail {
namespace {

using namespace std::chrono_literals;

constexpr int patience = 4;  // timeouts that all are given who have come

uint64_t name_of(const std::vector<int>& members, std::string_view kind) {
  uint64_t hash = 14695981039346656037u;
  for (int member : members) hash = (hash ^ static_cast<uint64_t>(member + 1)) * 1099511628211u;
  for (unsigned char c : kind) hash = (hash ^ c) * 1099511628211u;
  return hash;
}

std::string place_of(const Waiting& waiting) {
  const std::source_location& where = waiting.where;
  std::string text;
  if (*where.file_name()) text += fmt::format("{}:{}: ", where.file_name(), where.line());
  if (waiting.mesh && waiting.axes) text += fmt::format("mesh axis \"{}\": ", waiting.mesh->names(waiting.axes));
  return text;
}

}  // namespace

std::string different_sizes(int sender, std::optional<int64_t> sent, int64_t expected) {
  return fmt::format(
      "process {} sent {} bytes where {} were expected: the processes do not run the same program on the "
      "same data (TESSERA_CHECK=1 on all finds the first line that differs)",
      sender, sent ? std::to_string(*sent) : "more", expected);
}

Waits::Waits(const Joined& joined, std::vector<int> members, std::string_view kind, bool in_background)
    : joined_(joined), members_(std::move(members)), in_background_(in_background), group_(name_of(members_, kind)) {}

void Waits::pause(Clock::duration waited) const {
  if (in_background_ && !is_awaited())
    std::this_thread::sleep_for(200us);
  else if (waited < 2ms)
    sched_yield();
  else
    std::this_thread::sleep_for(waited < 50ms ? 20us : 50us);
}

void Waits::begin(const Waiting& waiting) {
  if (const char* why = why_apart())
    throw Error(ErrorKind::other, fmt::format("[{}] {}{}", waiting.operation, place_of(waiting), why));
  ++number_;
  joined_.peers->begin(group_, number_,
                       in_background_ ? "" : fmt::format("[{}] {}", waiting.operation, place_of(waiting)));
  if (joined_.peers->has_news()) lookout().look_around(waiting, {});
}

void Waits::start(const std::vector<Parcel>& sends, const std::vector<Parcel>& receives, const Waiting& waiting) {
  try {
    joined_.transport->start(sends, receives);
  } catch (const Error& error) {
    fail_as_the_engine_does(waiting, error);
  }
}

void Waits::until_done(const Waiting& waiting) {
  const Clock::time_point from = Clock::now();
  Lookout around = lookout();
  for (int turn = 0; !is_done(waiting); ++turn) {
    if (turn < 64) continue;
    const Clock::duration waited = Clock::now() - from;
    if (joined_.peers->has_news() || waited > joined_.timeout) around.look_around(waiting, waited);
    pause(waited);
  }
  if (!in_background_) joined_.peers->end();
}

bool Waits::is_done(const Waiting& waiting) {
  try {
    return joined_.transport->is_done();
  } catch (const Error& error) {
    fail_as_the_engine_does(waiting, error);
  }
}

void Lookout::look_around(const Waiting& waiting, Clock::duration waited) {
  Peers& peers = *joined_->peers;
  if (const auto loss = peers.loss()) fail_with(waiting, *loss);
  const auto has_left = [&](int member) { return peers.has_left(member); };
  const auto left = std::find_if(members_->begin(), members_->end(), has_left);
  if (left != members_->end()) {
    // What it sent before it left may still be on its way.
    if (left_at_ == Clock::time_point{}) left_at_ = Clock::now();
    if (Clock::now() - left_at_ > std::min<Clock::duration>(joined_->timeout / 4, 1s))
      fail_with(waiting, left_early(*left));
  }
  if (waited <= joined_->timeout * (asked_ + 1)) return;
  if (asked_ == patience)
    fail_with(waiting, {-1, fmt::format("all processes are here, but nothing has moved for {} s",
                                        std::chrono::duration_cast<std::chrono::seconds>(waited).count())});
  peers.ask_who_is_missing(group_, number_, *members_);
  ++asked_;
}

void Waits::fail_as_the_engine_does(const Waiting& waiting, const Error& error) const {
  if (error.kind() == ErrorKind::inconsistent) lookout().fail_with(waiting, {-1, error.what()});
  lookout().fail_with(waiting, loss_behind(error, joined_));
}

void Lookout::fail_with(const Waiting& waiting, const Loss& loss) const {
  joined_->peers->report(loss);
  throw Error(ErrorKind::other,
              fmt::format("[{}] {}{}", waiting.operation, place_of(waiting), words_of(loss, *joined_)));
}

}  // namespace tessera::detail
