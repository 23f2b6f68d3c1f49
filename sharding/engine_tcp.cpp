// TCP as a transport: connections between every two processes, nothing that waits, no launcher of its own.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <sstream>
#include <string_view>
#include <thread>

#include "sharding/error.h"
#include "sharding/rendezvous.h"
#include "sharding/sockets.h"
#include "sharding/transport.h"

namespace tessera::detail {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t barrier_mark = UINT64_MAX;  // in place of a size: no parcel, but a word of the barrier

// What is still to be moved of a parcel; its size goes before it, in eight bytes.
struct Flow {
  uint64_t head;
  char* data;
  uint64_t size, moved = 0;  // of both together
};

Flow flow_of(const Parcel& parcel) {
  const auto size = static_cast<uint64_t>(parcel.bytes);
  return {size, static_cast<char*>(parcel.data), size};
}

// The connection to one process.
class Line {
 public:
  Line() = default;
  ~Line() {
    if (fd_ >= 0) ::close(fd_);
  }
  Line(const Line&) = delete;

  int fd() const { return fd_; }
  void open(int process, int fd) {
    process_ = process;
    fd_ = fd;
  }
  void send(const Parcel& parcel) { outgoing_.push_back(flow_of(parcel)); }
  void send_mark() { outgoing_.push_back({barrier_mark, nullptr, 0}); }
  void receive(const Parcel& parcel) { incoming_.push_back(flow_of(parcel)); }

  // Moves what it can; whether all is done.
  bool is_done() {
    while (!outgoing_.empty() && goes_on(outgoing_.front())) outgoing_.pop_front();
    while (!incoming_.empty() && comes_in(incoming_.front())) incoming_.pop_front();
    return outgoing_.empty() && incoming_.empty();
  }

  // Whether the process has come to the barrier.
  bool is_marked() {
    while (!marks_ && has_head() && take_mark()) {
    }
    return marks_ > 0;
  }

 private:
  // Each is true once the whole parcel is moved.
  bool goes_on(Flow& flow) const {
    while (flow.moved < sizeof flow.head + flow.size) {
      const uint64_t head = std::min<uint64_t>(flow.moved, sizeof flow.head), body = flow.moved - head;
      std::array<iovec, 2> rest{
          {{.iov_base = reinterpret_cast<char*>(&flow.head) + head, .iov_len = sizeof flow.head - head},
           {.iov_base = flow.data + body, .iov_len = flow.size - body}}};
      msghdr message{};
      message.msg_iov = rest.data();
      message.msg_iovlen = rest.size();
      const uint64_t sent = moved_by(::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT));
      if (sent == 0) return false;
      flow.moved += sent;
    }
    return true;
  }

  bool comes_in(Flow& flow) {
    while (flow.moved == 0) {
      if (!has_head()) return false;
      if (take_mark()) continue;
      if (head_ != flow.size)
        throw Error(ErrorKind::inconsistent,
                    different_sizes(process_, static_cast<int64_t>(head_), static_cast<int64_t>(flow.size)));
      head_heard_ = 0;
      flow.moved = sizeof head_;
    }
    while (flow.moved < sizeof head_ + flow.size) {
      const uint64_t body = flow.moved - sizeof head_;
      const uint64_t got = moved_by(::recv(fd_, flow.data + body, flow.size - body, MSG_DONTWAIT));
      if (got == 0) return false;
      flow.moved += got;
    }
    return true;
  }

  bool has_head() {
    while (head_heard_ < sizeof head_) {
      const uint64_t got = moved_by(
          ::recv(fd_, reinterpret_cast<char*>(&head_) + head_heard_, sizeof head_ - head_heard_, MSG_DONTWAIT));
      if (got == 0) return false;
      head_heard_ += got;
    }
    return true;
  }

  bool take_mark() {
    if (head_ != barrier_mark) return false;
    head_heard_ = 0;
    ++marks_;
    return true;
  }

  // 0: it would have to wait.
  uint64_t moved_by(ssize_t result) const {
    if (result > 0) return static_cast<uint64_t>(result);
    if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return 0;
    throw Error(ErrorKind::other, fmt::format("process {} has ended: its connection is closed{}", process_,
                                              result == 0 ? "" : fmt::format(" ({})", std::strerror(errno))));
  }

  int process_ = -1, fd_ = -1;
  std::deque<Flow> outgoing_, incoming_;
  uint64_t head_ = 0, head_heard_ = 0;  // of the next parcel that comes in
  int marks_ = 0;
};

class Tcp : public Transport {
 public:
  Tcp(int index, std::array<std::vector<Line>, 2> lines)
      : index_(index), lines_(std::move(lines[0])), spare_(std::move(lines[1])) {}

  int index() const override { return index_; }
  int count() const override { return static_cast<int>(lines_.size()); }
  std::string name() const override { return "TCP"; }
  std::unique_ptr<Transport> second() override {
    return std::make_unique<Tcp>(index_, std::array<std::vector<Line>, 2>{std::move(spare_), {}});
  }

  void start(const std::vector<Parcel>& sends, const std::vector<Parcel>& receives) override {
    for (const Parcel& parcel : receives) lines_[parcel.process].receive(parcel);
    for (const Parcel& parcel : sends) lines_[parcel.process].send(parcel);
    move_all();
  }

  // By dissemination: in each round everyone hears, by one process, from twice as many.
  void start_barrier() override {
    distance_ = 1;
    lines_[next(1)].send_mark();
  }

  bool is_done() override {
    bool done = move_all();
    while (done && distance_ > 0 && lines_[next(-distance_)].is_marked()) {
      distance_ *= 2;
      if (distance_ >= count()) distance_ = 0;
      if (distance_ > 0) lines_[next(distance_)].send_mark();
      done = move_all();
    }
    return done && distance_ == 0;
  }

 private:
  int next(int by) const { return (index_ + count() + by) % count(); }

  bool move_all() {
    bool done = true;
    for (Line& line : lines_) done &= line.is_done();
    return done;
  }

  int index_;
  std::vector<Line> lines_, spare_;  // what second() has
  int distance_ = 0;                 // of the barrier's round; 0: it has not begun
};

// ---- How the connections are made
// ------------------------------------------------------------------------------------

// What a process says of itself to all: where it listens, and what whoever connects must know.
struct Card {
  int port = 0;
  std::string token, machine;
  std::vector<std::string> addresses;

  std::string text() const { return fmt::format("{} {} {} {}", port, token, machine, fmt::join(addresses, " ")); }
};

// Of another machine the loopback comes last: it leads there only where two machines are parts of one.
Card card_in(const std::string& text) {
  std::istringstream in(text);
  Card card;
  in >> card.port >> card.token >> card.machine;
  for (std::string address; in >> address;) card.addresses.push_back(address);
  if (card.machine != own_machine())
    std::rotate(card.addresses.begin(), card.addresses.begin() + 1, card.addresses.end());
  return card;
}

// What a process says first on a connection that it has made; the answer is one byte.
struct Greeting {
  std::array<char, 32> token{};
  int32_t process = -1, set = 0;
};

// One process's connections to all others, in two sets: made to those before it, accepted from those after it.
class Connections {
 public:
  Connections(int index, const std::string& token, int listener, const std::vector<std::string>& cards)
      : index_(index), token_(token), listener_(listener), tried_(cards.size()) {
    for (std::vector<Line>& set : lines_) set = std::vector<Line>(cards.size());
    for (const std::string& card : cards) cards_.push_back(card_in(card));
  }

  // Waits for ever: a deadline ends the program.
  std::array<std::vector<Line>, 2> made() {
    std::vector<std::array<int, 2>> to(static_cast<size_t>(index_));
    for (int process = 0; process < index_; ++process)
      for (const int set : {0, 1}) to[process][set] = greeted(process, set);
    accept_all();  // before any answer is waited for, so that nobody waits in a circle
    for (int process = 0; process < index_; ++process)
      for (const int set : {0, 1}) {
        while (!is_answered(to[process][set])) {
          ::close(to[process][set]);
          ++tried_[process];
          to[process][set] = greeted(process, set);
        }
        lines_[set][process].open(process, to[process][set]);
      }
    return std::move(lines_);
  }

 private:
  // Connects to the first of its addresses, of those left, where somebody listens, and says who this is.
  int greeted(int process, int set) {
    const Card& card = cards_[process];
    for (size_t& next = tried_[process]; next < card.addresses.size(); ++next) {
      const int fd = connect_to(card.addresses[next], card.port, 2000ms);
      if (fd < 0) continue;
      Greeting greeting{.process = index_, .set = set};
      card.token.copy(greeting.token.data(), greeting.token.size());
      if (::send(fd, &greeting, sizeof greeting, MSG_NOSIGNAL) == sizeof greeting) return fd;
      ::close(fd);
    }
    fail(ErrorKind::other, "initialize",
         fmt::format("process {} does not answer process {} at any of its addresses: {}, port {}. See what it has "
                     "said last, or open the network between the machines.",
                     process, index_, fmt::join(card.addresses, " "), card.port));
  }

  static bool is_answered(int fd) {
    pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
    while (::poll(&wait, 1, -1) < 0 && errno == EINTR) {
    }
    char answer = 0;
    return ::recv(fd, &answer, 1, 0) == 1;
  }

  void accept_all() {
    struct Guest {
      int fd;
      Greeting greeting;
      size_t heard = 0;
    };
    std::vector<Guest> guests;
    for (int missing = 2 * (static_cast<int>(cards_.size()) - 1 - index_); missing > 0;
         std::this_thread::sleep_for(200us)) {
      for (int fd; (fd = accept_one(listener_)) >= 0;) guests.push_back({fd, {}});
      std::erase_if(guests, [&](Guest& guest) {
        const ssize_t got = ::recv(guest.fd, reinterpret_cast<char*>(&guest.greeting) + guest.heard,
                                   sizeof guest.greeting - guest.heard, 0);
        if (got < 0 && errno == EAGAIN) return false;
        if (got > 0 && (guest.heard += static_cast<size_t>(got)) < sizeof guest.greeting) return false;
        const bool is_taken = got > 0 && take(guest.fd, guest.greeting);
        missing -= is_taken;
        if (!is_taken) ::close(guest.fd);
        return true;
      });
    }
  }

  bool take(int fd, const Greeting& greeting) {
    const std::string_view token(greeting.token.data(), greeting.token.size());
    const int process = greeting.process, set = greeting.set;
    if (token != token_ || process <= index_ || process >= static_cast<int>(cards_.size()) || set < 0 || set > 1 ||
        lines_[set][process].fd() >= 0)
      return false;
    const char answer = 1;
    if (::send(fd, &answer, 1, MSG_NOSIGNAL) != 1) return false;
    lines_[set][process].open(process, fd);
    return true;
  }

  int index_;
  std::string token_;
  int listener_;
  std::vector<Card> cards_;
  std::array<std::vector<Line>, 2> lines_;
  std::vector<size_t> tried_;  // how many of each one's addresses have not led there
};

}  // namespace

std::unique_ptr<Transport> join_by_tcp(int index, Rendezvous& rendezvous) {
  const Listener listener = listen_anywhere();
  const std::string token = new_token();
  const Card mine{.port = listener.port, .token = token, .machine = own_machine(), .addresses = own_addresses()};
  Connections connections(index, token, listener.fd, rendezvous.meet(mine.text()));
  auto joined = std::make_unique<Tcp>(index, connections.made());
  ::close(listener.fd);
  return joined;
}

}  // namespace tessera::detail
