// A client of LibTorch's TCP store that never waits in it. The one file that knows c10d.
#include "sharding/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "sharding/error.h"
#include "sharding/sockets.h"

namespace tessera::detail {
namespace {

using namespace std::chrono_literals;

const char* value(const Environment& get, const char* name) {
  const char* text = get(name);
  return text && *text ? text : nullptr;
}

int port_in(const char* text) {
  const char* end = text + std::strlen(text);
  int port = 0;
  if (auto [rest, error] = std::from_chars(text, end, port);
      error != std::errc{} || rest != end || port < 1 || port > 65535)
    fail(ErrorKind::bad_argument, "initialize",
         fmt::format("MASTER_PORT=\"{}\", expected a number from 1 to 65535. Set it to a port that is free on the "
                     "machine of process 0.",
                     text));
  return port;
}

// LibTorch's errors end with a trace of calls.
std::string first_line(const std::exception& error) {
  const std::string all = error.what();
  return all.substr(0, all.find('\n'));
}

}  // namespace

std::optional<MeetingPlace> meeting_place(const Environment& get) {
  const char* host = value(get, "MASTER_ADDR");
  const char* port = value(get, "MASTER_PORT");
  if (!host && !port) return std::nullopt;
  if (!host || !port)
    fail(ErrorKind::bad_argument, "initialize",
         fmt::format("{} is set, and {} is missing. Set both, to where process 0 can be reached, or unset both.",
                     host ? "MASTER_ADDR" : "MASTER_PORT", host ? "MASTER_PORT" : "MASTER_ADDR"));
  const char* agent = value(get, "TORCHELASTIC_USE_AGENT_STORE");
  const char* attempt = value(get, "TORCHELASTIC_RESTART_COUNT");
  return MeetingPlace{.host = host,
                      .port = port_in(port),
                      .is_the_launchers = agent && std::strcmp(agent, "True") == 0,
                      .attempt = attempt ? attempt : "0"};
}

class Rendezvous::Store : public c10d::TCPStore {
 public:
  using c10d::Store::set;
  using c10d::TCPStore::TCPStore;
};

Rendezvous::Rendezvous(int index, int count, MeetingPlace place)
    : index_(index), count_(count), place_(std::move(place)), missing_(static_cast<size_t>(count)) {
  std::iota(missing_.begin(), missing_.end(), 0);
}

Rendezvous::~Rendezvous() = default;

std::string Rendezvous::name() const {
  return fmt::format("{:x}", std::hash<std::string>{}(place_.address() + "/" + place_.attempt));
}

std::string Rendezvous::key(const char* what, int process) const {
  return fmt::format("tessera/{}/{}/{}", place_.attempt, what, process);
}

// LibTorch's client complains on stderr while nobody listens, so it is made when somebody does.
void Rendezvous::connect() {
  for (int fd = -1; !is_server() && fd < 0;) {
    fd = connect_to(place_.host, place_.port, 2000ms);
    if (fd < 0) std::this_thread::sleep_for(20ms);
    if (fd < 0) continue;
    ::close(fd);
    std::lock_guard lock(mutex_);
    is_taken_ = true;
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(place_.port);
  options.isServer = is_server();
  options.waitWorkers = false;
  try {
    store_ = std::make_unique<Store>(place_.host, options);
  } catch (const std::exception& error) {
    fail(ErrorKind::other, "initialize",
         fmt::format("process {} of {} cannot {} the store at {} (MASTER_ADDR:MASTER_PORT): {} {}", index_, count_,
                     is_server() ? "open" : "use", place_.address(), first_line(error),
                     is_server() ? "Give a port that is free on the machine of process 0, and that machine's name."
                                 : "Give the port that process 0, or torchrun, has opened for it."));
  }
  std::lock_guard lock(mutex_);
  is_connected_ = true;
}

void Rendezvous::take_index() {
  const std::string mine = std::to_string(count_);
  const std::vector<uint8_t> first = store_->compareSet(key("count", 0), {}, {mine.begin(), mine.end()});
  if (const std::string others(first.begin(), first.end()); others != mine)
    fail(ErrorKind::inconsistent, "initialize",
         fmt::format("process {} has been told that there are {} processes, others that there are {}. Give all the "
                     "same WORLD_SIZE.",
                     index_, count_, others));
  if (store_->add(key("taken", index_), 1) > 1)
    fail(ErrorKind::bad_argument, "initialize",
         fmt::format("another process has come to {} as process {} before this one. Give each its own RANK, and each "
                     "run its own MASTER_PORT.",
                     place_.address(), index_));
}

std::vector<std::string> Rendezvous::gathered() {
  std::vector<std::string> cards(static_cast<size_t>(count_));
  for (std::vector<int> missing = missing_; !missing.empty(); std::this_thread::sleep_for(5ms)) {
    std::erase_if(missing, [&](int process) {
      if (!store_->check({key("card", process)})) return false;
      cards[process] = store_->get_to_str(key("card", process));
      return true;
    });
    std::lock_guard lock(mutex_);
    missing_ = missing;
  }
  return cards;
}

std::vector<std::string> Rendezvous::meet(const std::string& card) {
  connect();
  try {
    take_index();
    store_->set(key("card", index_), card);
    return gathered();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string who = words();
    fail(
        ErrorKind::other, "initialize",
        fmt::format("process {} of {} has lost the store at {} (MASTER_ADDR:MASTER_PORT), which {} keeps open: {}.{}{}",
                    index_, count_, place_.address(), place_.is_the_launchers ? "torchrun's agent" : "process 0",
                    first_line(error), who.empty() ? "" : " ", who.empty() ? "" : who + "."));
  }
}

std::string Rendezvous::words() const {
  std::lock_guard lock(mutex_);
  if (!is_connected_ && !is_host(place_.host))
    return fmt::format("No host is known by the name {} (MASTER_ADDR)", place_.host);
  if (!is_connected_ && is_server())
    return fmt::format("The store at {} (MASTER_ADDR:MASTER_PORT) is not open yet", place_.address());
  if (!is_connected_ && is_taken_)
    return fmt::format(
        "Somebody takes connections at {} (MASTER_ADDR:MASTER_PORT) and does not answer, where {} should",
        place_.address(), place_.is_the_launchers ? "torchrun's agent" : "process 0");
  if (!is_connected_)
    return fmt::format("Nobody listens at {} (MASTER_ADDR:MASTER_PORT), where {}", place_.address(),
                       place_.is_the_launchers ? "torchrun's agent should" : "process 0 should; not seen: 0");
  if (missing_.empty()) return "";
  std::vector<int> seen;
  for (int process = 0; process < count_; ++process)
    if (std::find(missing_.begin(), missing_.end(), process) == missing_.end()) seen.push_back(process);
  return fmt::format("Seen at {}: {}; not seen: {}", place_.address(), fmt::join(seen, ", "),
                     fmt::join(missing_, ", "));
}

void Rendezvous::clear() try {
  store_->deleteKey(key("count", 0));
  for (int process = 0; process < count_; ++process)
    for (const char* what : {"taken", "card"}) store_->deleteKey(key(what, process));
} catch (const std::exception&) {  // the launcher has ended, and its store with it
}

}  // namespace tessera::detail
