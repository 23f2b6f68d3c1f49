// Heartbeats, and what their silence says.
#include "sharding/control_plane.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "sharding/error.h"

namespace tessera::detail {
namespace {

using namespace std::chrono_literals;

constexpr auto answer_within = 4s;  // what the store is asked while somebody is already late

std::string prefix_of(const Waiting& waiting) {
  const std::source_location& where = waiting.where;
  std::string text = fmt::format("[{}] ", waiting.operation);
  if (*where.file_name()) text += fmt::format("{}:{}: ", where.file_name(), where.line());
  if (waiting.what) text += fmt::format("{}: ", *waiting.what);
  if (waiting.mesh && waiting.axes) text += fmt::format("mesh axis \"{}\": ", waiting.mesh->names(waiting.axes));
  return text;
}

// Without what joins it to the words that follow.
std::string place_of(const Waiting& waiting) {
  std::string text = prefix_of(waiting);
  return text.substr(0, text.find_last_not_of(": ") + 1);
}

int64_t unix_milliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

template <class Duration>
int64_t whole_seconds(Duration time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

constexpr const char* is_child =
    "this is a child of fork(), which is none of the processes. Communicate in the parent, or call exec.";
constexpr const char* has_ended =
    "the program has come to its end, and what joined its processes with it. Communicate before main returns, not in "
    "the destructor of a static object.";

}  // namespace

ControlPlane::ControlPlane(const Store& store, int index, int count, Duration timeout, std::string keeper)
    : beating_(store.another(answer_within)),
      looking_(store.another(answer_within)),
      index_(index),
      count_(count),
      timeout_(timeout),
      period_(std::min<Duration>(1s, timeout / 5)),
      keeper_(std::move(keeper)),
      pid_(::getpid()),
      computing_(std::this_thread::get_id()),
      beats_(static_cast<size_t>(count)) {
  if (index == 0) beating_.set("loss", "");
  for (int process = 0; process < count; ++process) keys_.push_back(fmt::format("beat/{}", process));
  keys_.push_back("loss");
  beat();
  thread_ = std::thread([this] { run(); });
}

// ---- What this process says of itself

void ControlPlane::run() try {
  while (true) {
    beat();
    std::unique_lock lock(standing_mutex_);
    if (stopped_.wait_for(lock, period_, [this] { return is_stopped_; })) return;
  }
} catch (const std::exception&) {  // the store is gone: whoever waits for a process will say so
}

void ControlPlane::beat() {
  const std::lock_guard lock(standing_mutex_);
  const auto [sign, words, since] = standing_;
  std::string said = words;
  const int64_t seconds = whole_seconds(Clock::now() - since);
  if (sign == Sign::waits) said = fmt::format("has been waiting in {} for {} s", words, seconds);
  if (sign == Sign::computes)
    said = fmt::format("has been computing for {} s{}{}", seconds, words.empty() ? "" : ", after ", words);
  beating_.set(keys_[index_],
               fmt::format("{} {} {} {}", ++number_, unix_milliseconds(), static_cast<char>(sign), said));
}

// Threads beside the one that computes stand nowhere, and who has left stays so.
void ControlPlane::stand(Sign sign, std::string words) {
  const std::lock_guard lock(standing_mutex_);
  if (sign != Sign::failed && (std::this_thread::get_id() != computing_ || standing_.sign == Sign::left)) return;
  standing_ = {sign, std::move(words), Clock::now()};
}

void ControlPlane::leave(const std::string& last_words) {
  const bool is_well = last_words.empty();
  {
    const std::lock_guard lock(standing_mutex_);
    if (standing_.sign == Sign::failed || standing_.sign == Sign::ended) return;
    standing_ = {is_well ? Sign::left : Sign::ended, last_words, Clock::now()};
  }
  try {
    beat();
    if (!is_well) linger();
  } catch (const std::exception&) {  // nobody is there any more who could be told
  }
}

void ControlPlane::stop() {
  {
    const std::lock_guard lock(standing_mutex_);
    is_stopped_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// ---- What it hears of the others

// What somebody has found out already, or nothing.
std::string ControlPlane::look() {
  const std::vector<std::string> texts = looking_.get(keys_);
  const Clock::time_point now = Clock::now();
  for (int process = 0; process < count_; ++process) {
    const std::string& text = texts[process];
    Beat& beat = beats_[process];
    int64_t number = 0;
    const char* rest = std::from_chars(text.data(), text.data() + text.size(), number).ptr + 1;
    if (number == beat.number) continue;
    beat.number = number;
    rest = std::from_chars(rest, text.data() + text.size(), beat.time).ptr + 1;
    beat.sign = static_cast<Sign>(*rest);
    beat.words = rest + 2;
    beat.since = now;
  }
  return texts.back();
}

// "process 2 ..." Without evidence a process must be silent for most of the timeout; with it, for longer than its period.
// Several that are silent are asked once more, unless this is the last look.
std::optional<std::string> ControlPlane::loss_of(const std::vector<int>& members, const Waiting& waiting,
                                                 Evidence evidence, bool is_last_look) {
  const std::lock_guard lock(looking_mutex_);
  try {
    if (std::string loss = look(); !loss.empty()) return loss;
  } catch (const std::exception& error) {
    has_store_ = false;
    const bool is_silent = std::string_view(error.what()).find("imeout") != std::string_view::npos;
    return fmt::format("{}, which keeps the store of all processes, {}", keeper_,
                       is_silent ? "does not answer: it is stopped, or its machine cannot be reached" : "is gone");
  }
  const Clock::time_point now = Clock::now();
  const Duration allowed = evidence == Evidence::none ? std::max(timeout_ * 4 / 5, period_ * 3) : period_ * 5 / 2;
  std::vector<int> silent;
  for (int process = 0; process < count_; ++process) {
    const Beat& beat = beats_[process];
    if (process == index_ || beat.sign == Sign::failed) continue;
    if (beat.sign == Sign::ended) return fmt::format("process {} {}", process, beat.words);
    if (now - beat.since > allowed) silent.push_back(process);
  }
  if (silent.size() == 1 || (!silent.empty() && (is_last_look || evidence == Evidence::none)))
    return fmt::format("process {} has {}", fmt::join(silent, ", process "),
                       evidence == Evidence::broken
                           ? "ended without a word: it was killed, or it crashed"
                           : fmt::format("not been heard from for {} s: it is stopped, or its machine cannot be reached",
                                         (unix_milliseconds() - beats_[silent[0]].time) / 1000));
  const bool may_leave = waiting.longest == Duration::max();
  for (const int member : members)
    if (const Beat& beat = beats_[member]; member != index_ && beat.sign == Sign::left && !may_leave &&
                                           now - beat.since > std::min<Duration>(timeout_ / 4, 1s))
      return fmt::format("process {} has ended its program, while others wait for it", member);
  return std::nullopt;
}

std::string ControlPlane::who_is_elsewhere(const std::vector<int>& members, const Waiting& waiting, Duration waited) {
  const std::lock_guard lock(looking_mutex_);
  const std::string here = place_of(waiting);
  std::vector<std::string> elsewhere;
  for (const int member : members)
    if (const Beat& beat = beats_[member]; member != index_ && !beat.words.starts_with("has been waiting in " + here + " for"))
      elsewhere.push_back(fmt::format("process {} has not come to {} within {:.1f} s; it {}", member, here,
                                      std::chrono::duration<double>(waited).count(), beat.words));
  if (elsewhere.empty())
    return fmt::format("all processes are here, but nothing has moved for {} s", whole_seconds(waited));
  return fmt::format("{}", fmt::join(elsewhere, "; "));
}

// ---- Waiting

void ControlPlane::check_here(const Waiting& waiting) const {
  const std::lock_guard lock(standing_mutex_);
  if (const char* why = ::getpid() != pid_ ? is_child : is_stopped_ ? has_ended : nullptr)
    throw Error(ErrorKind::other, prefix_of(waiting) + why);
}

void ControlPlane::wait(const Waiting& waiting, const std::vector<int>& members, const IsDone& is_done) {
  const Duration longest = waiting.longest == Duration::zero() ? timeout_ : waiting.longest;
  const Duration look_every = period_ + Duration(10) * count_;
  const Clock::time_point from = Clock::now();
  const std::string place = place_of(waiting);
  stand(Sign::waits, place);
  for (Duration waited{}; true; waited = std::chrono::duration_cast<Duration>(Clock::now() - from)) {
    try {
      if (is_done(std::min(look_every, std::max<Duration>(longest - waited, 1ms)))) break;
    } catch (const std::exception& error) {
      diagnose(waiting, members, waited, error.what());
    }
    look_around(waiting, members, std::chrono::duration_cast<Duration>(Clock::now() - from));
  }
  stand(Sign::computes, place);
}

void ControlPlane::look_around(const Waiting& waiting, const std::vector<int>& members, Duration waited) {
  if (waited >= (waiting.longest == Duration::zero() ? timeout_ : waiting.longest))
    diagnose(waiting, members, waited, nullptr);
  if (const auto loss = loss_of(members, waiting, Evidence::none, true)) fail_with(waiting, *loss);
}

// Somebody is lost: looks until it is clear who.
void ControlPlane::diagnose(const Waiting& waiting, const std::vector<int>& members, Duration waited,
                            const char* engine_words) {
  const Evidence evidence = engine_words ? Evidence::broken : Evidence::late;
  const Clock::time_point from = Clock::now();
  for (bool is_last_look = false; !is_last_look; std::this_thread::sleep_for(period_ / 10)) {
    is_last_look = Clock::now() - from > period_ * 7 / 2;
    if (const auto loss = loss_of(members, waiting, evidence, is_last_look)) fail_with(waiting, *loss);
  }
  if (!engine_words) fail_with(waiting, who_is_elsewhere(members, waiting, waited));
  const std::string_view words = engine_words;  // LibTorch's end with a trace of calls
  fail_with(waiting, fmt::format("a connection has ended ({}), though all processes are heard from",
                                 words.substr(0, words.find('\n'))));
}

void ControlPlane::fail_with(const Waiting& waiting, const std::string& loss) {
  std::string said = loss;
  stand(Sign::failed, loss);
  try {
    if (has_store_) said = looking_.first("loss", loss);
    if (has_store_) beat();
    if (has_store_) linger();
  } catch (const std::exception&) {  // it has gone just now: what is known is said
  }
  const std::string here = "come to " + place_of(waiting);
  if (const size_t at = said.find(here); at != std::string::npos) said.replace(at, here.size(), "come to it");
  throw Error(ErrorKind::other,
              fmt::format("{}{}. This is process {} of {}.", prefix_of(waiting), said, index_, count_));
}

// The store ends with the process that keeps it, which therefore waits until the others know why.
void ControlPlane::linger() {
  if (keeper_ != "process 0" || index_ != 0) return;
  const std::lock_guard lock(looking_mutex_);
  for (const Clock::time_point from = Clock::now(); Clock::now() - from < period_ * 4;) {
    look();
    if (std::all_of(beats_.begin() + 1, beats_.end(), [&](const Beat& beat) {
          return beat.sign == Sign::failed || beat.sign == Sign::ended || Clock::now() - beat.since > period_ * 5 / 2;
        }))
      return;
    std::this_thread::sleep_for(period_ / 10);
  }
}

std::vector<int> ControlPlane::missing() const {
  std::vector<int> all;
  for (int process = 0; process < count_; ++process)
    if (!looking_.has(keys_[process])) all.push_back(process);
  return all;
}

}  // namespace tessera::detail
