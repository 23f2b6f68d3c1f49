// Sockets by the system's calls, and nothing of them elsewhere.
#include "sharding/sockets.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>
#include <utility>

#include "sharding/error.h"

namespace tessera::detail {
namespace {

void make_prompt(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

int listen_at(int family) {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  sockaddr_storage address{};
  address.ss_family = static_cast<sa_family_t>(family);
  const int off = 0;
  if (family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  const socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 && ::listen(fd, 4096) == 0) return fd;
  ::close(fd);
  return -1;
}

bool is_writable(int fd, std::chrono::milliseconds longest) {
  pollfd wait{.fd = fd, .events = POLLOUT, .revents = 0};
  if (::poll(&wait, 1, static_cast<int>(longest.count())) != 1) return false;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

}  // namespace

LineSocket::LineSocket(LineSocket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), in_(std::move(other.in_)), out_(std::move(other.out_)) {}

void LineSocket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  out_.clear();
}

void LineSocket::say(std::string_view line) {
  if (fd_ < 0) return;
  for (char c : line) out_ += c == '\n' ? ' ' : c;
  out_ += '\n';
  send();
}

void LineSocket::send() {
  while (fd_ >= 0 && !out_.empty()) {
    const ssize_t sent = ::send(fd_, out_.data(), out_.size(), MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return out_.clear();  // the end is heard, by hear()
    out_.erase(0, static_cast<size_t>(sent));
  }
}

std::vector<std::string> LineSocket::hear() {
  char buffer[4096];
  while (fd_ >= 0) {
    const ssize_t got = ::recv(fd_, buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got <= 0) {
      close();
      break;
    }
    in_.append(buffer, static_cast<size_t>(got));
  }
  std::vector<std::string> lines;
  for (size_t end; (end = in_.find('\n')) != std::string::npos; in_.erase(0, end + 1))
    lines.push_back(in_.substr(0, end));
  return lines;
}

std::string LineSocket::hear_one(std::chrono::milliseconds longest) {
  const auto until = std::chrono::steady_clock::now() + longest;
  while (fd_ >= 0 && std::chrono::steady_clock::now() < until) {
    pollfd wait{.fd = fd_, .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, 20);
    std::vector<std::string> lines = hear();
    if (!lines.empty()) return lines.front();
  }
  return {};
}

Listener listen_anywhere() {
  int fd = listen_at(AF_INET6);
  if (fd < 0) fd = listen_at(AF_INET);
  if (fd < 0)
    fail(ErrorKind::other, "initialize", std::string("no socket to listen at: ") + std::strerror(errno) + ".");
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  const in_port_t port = address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                                       : reinterpret_cast<sockaddr_in*>(&address)->sin_port;
  return {fd, ntohs(port)};
}

int accept_one(int listener) {
  const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) make_prompt(fd);
  return fd;
}

bool is_host(const std::string& name) {
  addrinfo* found = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, nullptr, &found) != 0) return false;
  ::freeaddrinfo(found);
  return true;
}

std::string new_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

std::string own_machine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char space[64] = {};
  [[maybe_unused]] const ssize_t length = ::readlink("/proc/self/ns/pid", space, sizeof space - 1);
  return boot + space;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses{"127.0.0.1"};
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return addresses;
  for (const ifaddrs* one = all; one; one = one->ifa_next) {
    if (!one->ifa_addr || !(one->ifa_flags & IFF_UP) || (one->ifa_flags & IFF_LOOPBACK)) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    char host[NI_MAXHOST] = {};
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (::getnameinfo(one->ifa_addr, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    if (std::string_view(host).find('%') == std::string_view::npos) addresses.emplace_back(host);  // not link-local
  }
  ::freeifaddrs(all);
  return addresses;
}

int connect_to(const std::string& address, int port, std::chrono::milliseconds longest) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return -1;
  int connected = -1;
  for (const addrinfo* one = found; one && connected < 0; one = one->ai_next) {
    const int fd = ::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool begun = fd >= 0 && (::connect(fd, one->ai_addr, one->ai_addrlen) == 0 || errno == EINPROGRESS);
    if (begun && is_writable(fd, longest))
      connected = fd;
    else if (fd >= 0)
      ::close(fd);
  }
  ::freeaddrinfo(found);
  if (connected >= 0) make_prompt(connected);
  return connected;
}

}  // namespace tessera::detail
