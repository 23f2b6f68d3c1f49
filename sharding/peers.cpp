// The watch over the processes: lines of text between process 0 and the others, by one thread in each.
//
//   hello TOKEN PROCESS PID HOST   welcome PID HOST   joined      when a process joins
//   all                                                   have joined
//   beat                                                  every period
//   left PROCESS                                          it has ended its program well
//   lost PROCESS WORDS                                    it is no more
//   stuck GROUP NUMBER MEMBERS     begun GROUP NUMBER     who has begun a verb, and the answer
//   vote BOX NUMBER TEXT           voted BOX NUMBER WORDS to process 0, and from it (peers_votes.cpp)
#include "sharding/peers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "sharding/error.h"

namespace tessera::detail {
namespace {

using namespace std::chrono_literals;

// A process that is stopped keeps its launcher waiting for ever, so whoever gives it up and lives beside it ends it.
// One that a debugger holds is not touched.
void end_if_stopped(int pid) {
  std::string line, word;
  std::ifstream status(fmt::format("/proc/{}/stat", pid));
  std::getline(status, line);
  const size_t name_end = line.rfind(')');
  if (name_end != std::string::npos && line.size() > name_end + 2 && line[name_end + 2] == 'T') ::kill(pid, SIGKILL);
}

std::string rest_of(std::istringstream& in) {
  std::string text;
  std::getline(in >> std::ws, text);
  return text;
}

std::string silence(std::chrono::steady_clock::duration lasting) {
  return fmt::format("has not been heard from for {:.1f} s: it is stopped, or its machine is cut off",
                     std::chrono::duration<double>(lasting).count());
}

Peers::Duration period_of(Peers::Duration timeout) { return std::clamp<Peers::Duration>(timeout / 10, 20ms, 2s); }

}  // namespace

Loss left_early(int process) { return {process, "has ended its program, while others wait for it here"}; }

Peers::Peers(int count, Duration timeout)
    : index_(0),
      count_(count),
      timeout_(timeout),
      period_(period_of(timeout)),
      token_(new_token()),
      left_(count),
      arrived_(count) {
  const Listener listener = listen_anywhere();
  listener_ = listener.fd;
  address_ = fmt::format("{} {} {} {}", listener.port, token_, own_machine(), fmt::join(own_addresses(), " "));
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  thread_ = std::thread([this] { run(); });
}

Peers::Peers(int index, int count, const std::string& address, Duration timeout, Duration start_timeout)
    : index_(index), count_(count), timeout_(timeout), period_(period_of(timeout)), address_(address), left_(count) {
  std::istringstream in(address);
  int port = 0;
  std::string machine;
  in >> port >> token_ >> machine;
  std::vector<std::string> hosts;
  for (std::string host; in >> host;) hosts.push_back(host);
  if (machine != own_machine()) std::rotate(hosts.begin(), hosts.begin() + 1, hosts.end());  // the loopback comes last
  while (true) {
    bool is_taken = false;
    for (auto host = hosts.begin(); links_.empty() && host != hosts.end(); ++host) {
      const int fd = connect_to(*host, port, std::min(start_timeout / 4, 2000ms));
      if (fd < 0) continue;
      is_taken = true;
      join(fd, start_timeout / 4);
    }
    if (!links_.empty()) break;
    if (!is_taken)
      fail(ErrorKind::other, "initialize",
           fmt::format("process 0 does not answer process {} at any of its addresses: {}, port {}. See what it has "
                       "said last, or open the network between the machines.",
                       index, fmt::join(hosts, " "), port));
    std::this_thread::sleep_for(20ms);
  }
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  thread_ = std::thread([this] { run(); });
}

void Peers::join(int fd, Duration longest) {
  auto link = std::make_unique<Link>(Link{.socket = LineSocket(fd), .process = 0, .is_joined = true});
  link->socket.say(fmt::format("hello {} {} {} {}", token_, index_, ::getpid(), own_machine()));
  std::istringstream answer(link->socket.hear_one(longest));
  if (std::string word; !(answer >> word >> link->pid >> link->host) || word != "welcome") return;
  link->socket.say("joined");
  links_.push_back(std::move(link));
}

Peers::~Peers() {
  stop();
  if (listener_ >= 0) ::close(listener_);
  ::close(wake_);
}

void Peers::close_in_child() {
  for (const auto& link : links_) ::close(link->socket.fd());
  if (listener_ >= 0) ::close(listener_);
}

void Peers::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  post("");
  thread_.join();
}

// ---- From the program's thread
// ---------------------------------------------------------------------------------------

void Peers::begin(uint64_t group, uint64_t number, std::string words) {
  std::lock_guard lock(mutex_);
  begun_[group] = number;
  if (!words.empty()) doing_ = std::move(words);
}

void Peers::end() {
  std::lock_guard lock(mutex_);
  doing_.clear();
}

std::optional<Loss> Peers::loss() const {
  std::lock_guard lock(mutex_);
  return loss_;
}

bool Peers::has_left(int process) const {
  std::lock_guard lock(mutex_);
  return left_[process];
}

void Peers::ask_who_is_missing(uint64_t group, uint64_t number, const std::vector<int>& members) {
  post(fmt::format("stuck {} {} {}", group, number, fmt::join(members, " ")));
}

void Peers::report(const Loss& loss) {
  {
    std::lock_guard lock(mutex_);
    if (loss_) return;
    if (index_ != 0) loss_ = loss;
  }
  news_.store(true, std::memory_order_release);
  post(fmt::format("lost {} {}", loss.process, loss.what));
}

void Peers::leave(int status, const std::string& words) {
  if (status == 0)
    post(fmt::format("left {}", index_));
  else
    post(fmt::format("lost {} {}", index_, words));
}

void Peers::post(std::string line) {
  {
    std::lock_guard lock(mutex_);
    if (!line.empty()) posted_.push_back(std::move(line));
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
}

// ---- The thread
// ------------------------------------------------------------------------------------------------------

void Peers::run() {
  turned_ = beaten_ = Clock::now();
  for (auto& link : links_) link->heard = turned_;
  while (!stopping_) serve();
  for (auto& link : links_) link->socket.send();
}

void Peers::serve() {
  std::vector<pollfd> polled{{.fd = wake_, .events = POLLIN, .revents = 0}};
  if (listener_ >= 0) polled.push_back({.fd = listener_, .events = POLLIN, .revents = 0});
  for (auto& link : links_)
    if (link->socket.fd() >= 0)
      polled.push_back({.fd = link->socket.fd(),
                        .events = static_cast<short>(POLLIN | (link->socket.has_unsent() ? POLLOUT : 0)),
                        .revents = 0});
  ::poll(polled.data(), polled.size(), static_cast<int>(period_.count()));
  const Clock::time_point now = Clock::now();
  if (now - turned_ > 3 * period_)  // this process was stopped itself, or had no processor
    for (auto& link : links_) link->heard = now;
  turned_ = now;

  uint64_t drained;
  [[maybe_unused]] const ssize_t got = ::read(wake_, &drained, sizeof drained);
  std::vector<std::string> lines;
  {
    std::lock_guard lock(mutex_);
    lines.swap(posted_);
  }
  Link self{.socket = LineSocket(-1), .process = index_};
  for (const std::string& line : lines) index_ == 0 ? hear(self, line) : tell(line);

  if (listener_ >= 0) welcome_new();
  for (size_t i = 0; i < links_.size(); ++i) {
    links_[i]->socket.send();
    read(*links_[i]);
  }
  std::erase_if(links_, [](const auto& link) { return link->socket.fd() < 0; });
  if (now - beaten_ >= period_) {
    tell("beat");
    beaten_ = now;
  }
  watch_silence(now);
  decide(now);
  watch_votes(now);
  end_if_stuck(now);
}

void Peers::welcome_new() {
  for (int fd; (fd = accept_one(listener_)) >= 0;)
    links_.push_back(std::make_unique<Link>(Link{.socket = LineSocket(fd), .heard = Clock::now()}));
}

void Peers::read(Link& link) {
  if (link.socket.fd() < 0) return;
  for (const std::string& line : link.socket.hear()) {
    link.heard = Clock::now();
    hear(link, line);
  }
  if (link.socket.fd() >= 0 || !link.is_joined || has_left(link.process)) return;
  const auto silent = Clock::now() - link.heard;
  // Another one has given it up already, and killed it.
  lose(link.process,
       silent > timeout_ * 6 / 10 ? silence(silent) : "has ended without a word: it was killed, or it crashed");
}

void Peers::hear(Link& link, const std::string& line) {
  std::istringstream in(line);
  std::string verb;
  in >> verb;
  if (link.process < 0) {
    std::string token;
    if (verb != "hello" || !(in >> token >> link.process >> link.pid >> link.host) || token != token_)
      return link.socket.close();
    link.socket.say(fmt::format("welcome {} {}", ::getpid(), own_machine()));
  } else if (verb == "joined") {
    link.is_joined = true;
    set_arrived(link.process);
  } else if (verb == "all") {
    here_ = count_ - 1;
  } else if (verb == "left") {
    int process = link.process;
    in >> process;
    set_left(process);
    if (index_ == 0) tell(line);
  } else if (verb == "lost") {
    int process = link.process;
    in >> process;
    lose(process, rest_of(in));
  } else if (verb == "stuck" && index_ == 0) {
    ask(line);
  } else if (verb == "stuck") {
    answer(line);
  } else if (verb == "begun" && index_ == 0) {
    count_answer(link.process, line);
  } else if (verb == "vote" && index_ == 0) {
    count_vote(link.process, line);
  } else if (verb == "voted") {
    settle(line);
  }
}

void Peers::tell(const std::string& line) {
  for (auto& link : links_)
    if (link->process >= 0) link->socket.say(line);
}

void Peers::lose(int process, std::string what) {
  {
    std::lock_guard lock(mutex_);
    if (loss_) return;
    loss_ = Loss{process, what};
  }
  news_.store(true, std::memory_order_release);
  if (index_ == 0) tell(fmt::format("lost {} {}", process, what));
}

void Peers::set_arrived(int process) {
  {
    std::lock_guard lock(mutex_);
    if (process <= 0 || process >= count_ || arrived_[process]) return;
    arrived_[process] = true;
  }
  if (++here_ == count_ - 1) tell("all");
}

void Peers::set_left(int process) {
  {
    std::lock_guard lock(mutex_);
    if (process >= 0 && process < count_) left_[process] = true;
  }
  news_.store(true, std::memory_order_release);
}

void Peers::watch_silence(Clock::time_point now) {
  for (auto& link : links_) {
    if (link->process < 0 || now - link->heard < timeout_ * 8 / 10 || has_left(link->process)) continue;
    lose(link->process, silence(now - link->heard));
    if (link->host == own_machine()) end_if_stopped(link->pid);
  }
}

// A process that does not come to a wait, where it would learn of a loss, does not outlive the others for long.
void Peers::end_if_stuck(Clock::time_point now) {
  std::string words;
  {
    std::lock_guard lock(mutex_);
    if (!loss_) return;
    if (known_ == Clock::time_point{}) known_ = now;
    if (now - known_ < timeout_) return;
    words =
        fmt::format("[watch] process {} {}. This is process {} of {}, which has not come to an end for {:.1f} s since.",
                    loss_->process, loss_->what, index_, count_, std::chrono::duration<double>(timeout_).count());
  }
  std::fprintf(stderr, "%s\n", words.c_str());
  ::_exit(1);
}

// ---- Who is missing
// --------------------------------------------------------------------------------------------------

void Peers::ask(const std::string& text) {
  for (const Question& open : questions_)
    if (open.text == text) return;
  std::istringstream in(text);
  std::string verb;
  uint64_t group = 0, number = 0;
  in >> verb >> group >> number;
  Question question{.text = text, .members = {}, .asked = Clock::now(), .begun = {}, .number = number};
  for (int member; in >> member;) question.members.push_back(member);
  questions_.push_back(std::move(question));
  tell(text);
  answer(text);
}

void Peers::answer(std::string_view question) {
  std::istringstream in{std::string(question)};
  std::string verb, line;
  uint64_t group = 0, number = 0;
  in >> verb >> group >> number;
  {
    std::lock_guard lock(mutex_);
    const auto begun = begun_.find(group);
    line = fmt::format("begun {} {} {} {}", group, number, begun == begun_.end() ? 0 : begun->second, doing_);
  }
  index_ == 0 ? count_answer(0, line) : tell(line);
}

void Peers::count_answer(int process, const std::string& text) {
  std::istringstream in(text);
  std::string verb, group, number;
  uint64_t begun = 0;
  in >> verb >> group >> number >> begun;
  const std::string doing = rest_of(in);
  for (Question& question : questions_)
    if (question.text.starts_with(fmt::format("stuck {} {} ", group, number))) question.begun[process] = {begun, doing};
}

void Peers::decide(Clock::time_point now) {
  for (const Question& question : questions_) {
    if (now - question.asked < period_) continue;
    for (int member : question.members) {
      const auto answer = question.begun.find(member);
      if (answer == question.begun.end() || answer->second.first >= question.number) continue;
      const std::string& doing = answer->second.second;
      lose(member,
           fmt::format("has not come to it within {:.1f} s; it {}", std::chrono::duration<double>(timeout_).count(),
                       doing.empty() ? "is computing" : "waits in " + doing));
      break;
    }
  }
  std::erase_if(questions_, [&](const Question& question) { return now - question.asked >= period_; });
}

}  // namespace tessera::detail
