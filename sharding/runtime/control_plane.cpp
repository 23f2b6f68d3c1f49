// Writes and reads heartbeats, and finds lost processes by missing heartbeats.
#include "sharding/runtime/control_plane.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "sharding/base/error.h"
#include "sharding/base/text.h"
#include "sharding/runtime/restart_status.h"

namespace tessera::detail {
namespace {

using namespace std::chrono_literals;

std::string prefix_of(const WaitContext& waiting) {
  const std::source_location& where = waiting.where;
  std::string text = fmt::format("[{}] ", waiting.operation);
  if (*where.file_name()) text += fmt::format("{}:{}: ", where.file_name(), where.line());
  if (waiting.what) text += fmt::format("{}: ", *waiting.what);
  if (waiting.axes) text += fmt::format("mesh axis \"{}\": ", *waiting.axes);
  return text;
}

// Returns the prefix without the trailing separator.
std::string place_of(const WaitContext& waiting) {
  std::string text = prefix_of(waiting);
  return text.substr(0, text.find_last_not_of(": ") + 1);
}

int64_t milliseconds_now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

template <class Duration>
int64_t whole_seconds(Duration time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

constexpr const char* is_child =
    "this is a child of fork(), which is not one of the processes of the run. Communicate in the parent, or call exec.";
constexpr const char* has_ended =
    "the program is ending, and its connections to the other processes are closed. Communicate before main returns, "
    "not in the destructor of a static object.";

}  // namespace

ControlPlane::ControlPlane(Store beating, Store looking, int index, int count, Duration timeout, std::string keeper)
    : beating_(std::move(beating)),
      looking_(std::move(looking)),
      index_(index),
      count_(count),
      timeout_(timeout),
      period_(std::min<Duration>(1s, timeout / 5)),
      keeper_(std::move(keeper)),
      beats_(static_cast<size_t>(count), Beat{{.time = milliseconds_now()}, Clock::now()}) {
  if (index == 0) beating_.set("loss", "");
  for (int process = 0; process < count; ++process) keys_.push_back(fmt::format("beat/{}", process));
  keys_.push_back("loss");
  beat();
  thread_ = std::thread([this] { run(); });
}

// ---- Heartbeats of this process

void ControlPlane::run() {
  for (bool is_over = false; !is_over;) {
    try {
      beat();
    } catch (const std::exception&) {  // the store does not answer: a wait for another process will report it
    }
    look_after_watched();
    std::unique_lock lock(mutex_);
    is_over = stopped_.wait_for(lock, period_, [this] { return is_stopped_; });
  }
}

void ControlPlane::beat() {
  const std::lock_guard lock(beating_mutex_);
  const Standing now = standing();
  const int64_t seconds = whole_seconds(Clock::now() - now.since);
  std::string description = now.words;
  if (now.state == ProcessState::waits)
    description = fmt::format("has been waiting in {} for {} s", now.words, seconds);
  if (now.state == ProcessState::computes)
    description =
        fmt::format("has been computing for {} s{}{}", seconds, now.words.empty() ? "" : ", after ", now.words);
  beating_.set(keys_[index_], format_heartbeat({++number_, milliseconds_now(), now.verbs, now.state, description}));
}

// Sets the state that heartbeats report. Only the main thread's state is reported; `left` is final.
void ControlPlane::stand(ProcessState state, std::string words) {
  const std::lock_guard lock(mutex_);
  if (state == ProcessState::failed ||
      (std::this_thread::get_id() == computing_ && standing_.state != ProcessState::left))
    standing_ = {state, std::move(words), Clock::now(), standing_.verbs + (state == ProcessState::waits ? 1 : 0)};
}

void ControlPlane::leave(const std::string& exit_reason) {
  const bool is_well = exit_reason.empty();
  {
    const std::lock_guard lock(mutex_);
    if (standing_.state == ProcessState::failed || standing_.state == ProcessState::ended) return;
    standing_ = {is_well ? ProcessState::left : ProcessState::ended, exit_reason, Clock::now(), standing_.verbs};
  }
  try {
    beat();
    if (!is_well) linger();
  } catch (const std::exception&) {  // no process is left to read it
  }
}

void ControlPlane::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ControlPlane::check_here(const WaitContext& waiting) const {
  // Before the lock: in a child of fork(), a thread that the child does not have may hold it.
  if (::getpid() != pid_) throw Error(ErrorKind::other, prefix_of(waiting) + is_child);
  const std::lock_guard lock(mutex_);
  if (is_stopped_) throw Error(ErrorKind::stopped, prefix_of(waiting) + has_ended);
}

// ---- Heartbeats of the others

// Reads all heartbeats. Returns the loss that another process has already found, or "". Ignores texts that are not
// heartbeats.
std::string ControlPlane::look() {
  const std::vector<std::string> texts = looking_.get(keys_);
  const Clock::time_point now = Clock::now();
  for (int process = 0; process < count_; ++process) {
    Beat& last = beats_[process];
    std::optional<Heartbeat> beat = parse_heartbeat(texts[process]);
    if (!beat || beat->number == last.number) continue;
    const bool has_just_left = beat->state == ProcessState::left && last.state != ProcessState::left;
    last = {std::move(*beat), now, has_just_left ? now : last.left};
  }
  return texts.back();
}

// Returns a message about a lost process ("process 2 ..."). Without evidence, a process is lost if it sends no
// heartbeat for most of the timeout; with evidence, for 2.5 heartbeat periods. If several are silent, they are checked
// again, unless this is the last look.
std::optional<std::string> ControlPlane::loss_of(const std::vector<int>& members, const WaitContext& waiting,
                                                 Evidence evidence, bool is_last_look) {
  const std::lock_guard lock(looking_mutex_);
  const Duration allowed = evidence == Evidence::none ? std::max(timeout_ * 4 / 5, period_ * 3) : period_ * 5 / 2;
  const Clock::time_point asked = Clock::now();
  try {
    std::string loss = look();
    silent_since_.reset();
    has_store_ = true;
    if (!loss.empty()) return loss;
  } catch (const std::exception& error) {
    has_store_ = false;
    const bool is_silent = std::string_view(error.what()).find("imeout") != std::string_view::npos;
    if (!silent_since_) silent_since_ = asked;
    if (is_silent && evidence == Evidence::none && Clock::now() - *silent_since_ <= allowed) return std::nullopt;
    return fmt::format("{}, which hosts the store of all processes, {}", keeper_,
                       is_silent ? "does not answer: it is stopped, or its machine cannot be reached" : "is gone");
  }
  const Clock::time_point now = Clock::now();
  std::vector<int> silent;
  for (int process = 0; process < count_; ++process) {
    const Beat& beat = beats_[process];
    if (process == index_ || beat.state == ProcessState::failed) continue;
    if (beat.state == ProcessState::ended) return fmt::format("process {} {}", process, beat.description);
    if (now - beat.since > allowed) silent.push_back(process);
  }
  if (silent.size() == 1 || (!silent.empty() && (is_last_look || evidence == Evidence::none)))
    return fmt::format(
        "process {} has {}", fmt::join(silent, ", process "),
        evidence == Evidence::broken
            ? "ended without an error message: it was killed, or it crashed"
            : fmt::format("not been heard from for {} s: it was killed or stopped, or its machine cannot be reached",
                          std::max(int64_t{0}, milliseconds_now() - beats_[silent[0]].time) / 1000));
  if (waiting.longest != Duration::max())
    for (const int member : members)
      if (const Beat& beat = beats_[member]; member != index_ && beat.state == ProcessState::left &&
                                             now - beat.left > std::min<Duration>(timeout_ / 4, 1s))
        return fmt::format("process {} has ended its program, while others wait for it", member);
  return std::nullopt;
}

// Returns a message about the processes that have started fewer collectives than this one; if there are none, about
// those that wait in another one.
std::string ControlPlane::who_is_elsewhere(const std::vector<int>& members, const WaitContext& waiting) {
  const std::lock_guard lock(looking_mutex_);
  const std::string here = place_of(waiting);
  const std::thread::id me = std::this_thread::get_id();
  if (me != computing_ && me != thread_.get_id())
    return fmt::format(
        "not all processes have reached {} within {:.1f} s, where a thread other than the computing thread waits", here,
        std::chrono::duration<double>(longest_of(waiting)).count());
  const int64_t mine = standing().verbs;
  constexpr size_t max_named = 8;  // more do not fit into a message
  std::vector<std::string> behind, elsewhere;
  for (const int member : members) {
    const Beat& beat = beats_[member];
    const bool is_here =
        beat.collectives >= mine && beat.description.starts_with("has been waiting in " + here + " for");
    if (member == index_ || is_here) continue;
    (beat.collectives < mine ? behind : elsewhere)
        .push_back(fmt::format("process {} has not reached {} within {:.1f} s; it {}", member, here,
                               std::chrono::duration<double>(longest_of(waiting)).count(), beat.description));
  }
  constexpr const char* advice =
      "If the processes run different code, give all the same arguments; TESSERA_CHECK=1 on all processes finds the "
      "line";
  if (auto& absent = behind.empty() ? elsewhere : behind; !absent.empty()) {
    const size_t others = absent.size() - std::min(absent.size(), max_named);
    absent.resize(absent.size() - others);
    return fmt::format("{}{}. {}", fmt::join(absent, "; "), others ? fmt::format("; {} more", others) : "", advice);
  }
  return fmt::format("all processes have arrived, but nothing was communicated for {} s. {}",
                     whole_seconds(longest_of(waiting)), advice);
}

ControlPlane::Standing ControlPlane::standing() const {
  const std::lock_guard lock(mutex_);
  return standing_;
}

// ---- Waiting

ControlPlane::Duration ControlPlane::longest_of(const WaitContext& waiting) const {
  return waiting.longest == Duration::zero() ? timeout_ : waiting.longest;
}

void ControlPlane::wait(const WaitContext& waiting, const std::vector<int>& members, const IsDone& is_done) {
  const Duration longest = longest_of(waiting), look_every = period_ + Duration(10) * count_;
  const Clock::time_point from = Clock::now();
  const auto waited = [&] { return std::chrono::duration_cast<Duration>(Clock::now() - from); };
  const std::string place = place_of(waiting);
  stand(ProcessState::waits, place);
  for (bool done = false; !done;) {
    try {
      done = is_done(std::clamp<Duration>(longest - waited(), 1ms, look_every));
    } catch (const std::exception& error) {
      diagnose(waiting, members, error.what());
    }
    if (!done) look_around(waiting, members, waited());
  }
  stand(ProcessState::computes, place);
}

void ControlPlane::watch(const WaitContext& waiting, const std::vector<int>& members, IsDone is_done) {
  const std::lock_guard lock(mutex_);
  watched_.push_back({waiting, &members, std::move(is_done), Clock::now()});
}

void ControlPlane::look_after_watched() try {
  std::unique_lock lock(mutex_);
  while (!watched_.empty() && watched_.front().is_done(Duration::zero())) {
    watched_.pop_front();
    if (!watched_.empty()) watched_.front().since = Clock::now();
  }
  if (watched_.empty() || standing_.state == ProcessState::failed || is_stopped_) return;
  const Watched first = watched_.front();
  lock.unlock();
  look_around(first.waiting, *first.members, std::chrono::duration_cast<Duration>(Clock::now() - first.since));
} catch (const Error& error) {
  std::unique_lock lock(mutex_);
  if (stopped_.wait_for(lock, std::min<Duration>(timeout_ / 4, 1s), [this] { return is_stopped_; })) return;
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", error.what());
  ::_exit(restart_status);
}

void ControlPlane::look_around(const WaitContext& waiting, const std::vector<int>& members, Duration waited) {
  if (waited >= longest_of(waiting)) diagnose(waiting, members, nullptr);
  if (const auto loss = loss_of(members, waiting, Evidence::none, true)) fail_with(waiting, *loss);
}

// Reads heartbeats until the lost process is known, and throws.
void ControlPlane::diagnose(const WaitContext& waiting, const std::vector<int>& members, const char* words_of_failure) {
  const Evidence evidence = words_of_failure ? Evidence::broken : Evidence::late;
  const Clock::time_point from = Clock::now();
  for (bool is_last_look = false; !is_last_look; std::this_thread::sleep_for(period_ / 10)) {
    is_last_look = Clock::now() - from > period_ * 7 / 2;
    if (const auto loss = loss_of(members, waiting, evidence, is_last_look)) fail_with(waiting, *loss);
    if (std::this_thread::get_id() == thread_.get_id()) beat();
  }
  if (!words_of_failure) fail_with(waiting, who_is_elsewhere(members, waiting));
  fail_with(waiting, fmt::format("a connection was lost ({}), but all processes still send heartbeats",
                                 first_line(words_of_failure)));
}

void ControlPlane::fail_with(const WaitContext& waiting, const std::string& loss) {
  std::string said = loss;
  stand(ProcessState::failed, loss);
  try {
    if (has_store_) said = looking_.first("loss", loss);
    if (has_store_) beat();
    if (has_store_) linger();
  } catch (const std::exception&) {  // the store is gone by now: reports this process's finding
  }
  const std::string here = "reached " + place_of(waiting);
  if (const size_t at = said.find(here); at != std::string::npos) said.replace(at, here.size(), "reached it");
  if (const std::string me = fmt::format("process {} has", index_); said.starts_with(me))
    said.replace(0, me.size(), "this process has");
  throw Error(ErrorKind::lost_process,
              escaped(fmt::format("{}{}. This is process {} of {}.", prefix_of(waiting), said, index_, count_)));
}

// Waits until the others have read the reason, if this process keeps the store: the store ends with it.
void ControlPlane::linger() {
  if (keeper_ != "process 0" || index_ != 0) return;
  const std::lock_guard lock(looking_mutex_);
  const auto knows = [&](const Beat& beat) {
    return beat.state == ProcessState::failed || beat.state == ProcessState::ended ||
           Clock::now() - beat.since > period_ * 5 / 2;
  };
  for (const Clock::time_point from = Clock::now(); Clock::now() - from < period_ * 4;) {
    look();
    if (std::all_of(beats_.begin() + 1, beats_.end(), knows)) return;
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
