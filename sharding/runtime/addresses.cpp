// Resolves addresses and connects to them.
#include "sharding/runtime/addresses.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

namespace tessera::detail {

std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses_of(const std::string& host, int port, int flags) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = flags;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) found = nullptr;
  return {found, &::freeaddrinfo};
}

bool is_own(const std::string& host, int flags) {
  bool is = false;
  const auto all = addresses_of(host, 0, flags);
  for (const addrinfo* one = all.get(); one && !is; one = one->ai_next) {
    const int fd = ::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol);
    is = ::bind(fd, one->ai_addr, one->ai_addrlen) == 0;
    ::close(fd);
  }
  return is;
}

bool is_loopback(const std::string& host) {
  in_addr four{};
  in6_addr six{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  if (::inet_pton(AF_INET6, host.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
  return host == "localhost";
}

int listen_on_loopback(const std::string& host, int port) {
  const auto all = addresses_of(host, port);
  int error = EADDRNOTAVAIL;
  for (const addrinfo* one = all.get(); one && error != EADDRINUSE; one = one->ai_next) {
    const int fd = ::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol);
    const int yes = 1;  // as in c10d: allows a port whose last connections are closing
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (::bind(fd, one->ai_addr, one->ai_addrlen) == 0 && ::listen(fd, SOMAXCONN) == 0) return fd;
    error = errno;
    ::close(fd);
  }
  throw std::system_error(error, std::generic_category());
}

namespace {

// Returns the numeric address of one end of a socket's connection.
std::string address_of_end(int fd, int (*name_of)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage end{};
  socklen_t size = sizeof end;
  std::array<char, NI_MAXHOST> text{};
  auto* address = reinterpret_cast<sockaddr*>(&end);
  const bool is_known = name_of(fd, address, &size) == 0 &&
                        ::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0;
  return is_known ? text.data() : "";
}

}  // namespace

Ends ends_towards(const std::string& host, int port) {
  Ends ends;
  const auto all = addresses_of(host, port);
  for (const addrinfo* one = all.get(); one && ends.own.empty(); one = one->ai_next) {
    const int fd = ::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol);
    const timeval longest{.tv_sec = 2, .tv_usec = 0};  // for hosts that drop packets silently
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest);
    if (::connect(fd, one->ai_addr, one->ai_addrlen) == 0)
      ends = {address_of_end(fd, ::getsockname), address_of_end(fd, ::getpeername)};
    ::close(fd);
  }
  return ends;
}

}  // namespace tessera::detail
