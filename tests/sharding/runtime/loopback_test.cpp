// Names of the loopback host, and a socket that listens only on it.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <system_error>

#include "sharding/runtime/addresses.h"

namespace tessera::detail::loopback_test {
namespace {

TEST(Loopback, AHostIsOneByItsAddressAlone) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "127.255.255.255", "::1", "localhost"})
    EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"", "0.0.0.0", "126.255.255.255", "128.0.0.1", "10.0.0.127", "::", "::2", "fe80::1",
                           "127.0.0.1.example.org", "localhost.example.org", "node1"})
    EXPECT_FALSE(is_loopback(host)) << host;
}

sockaddr_in address_of(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  return address;
}

TEST(Loopback, TheSocketListensAtThatAddressAlone) {
  for (const char* host : {"127.0.0.1", "127.0.0.2"}) {
    const int fd = listen_on_loopback(host, 0);
    const sockaddr_in address = address_of(fd);
    EXPECT_EQ(address.sin_family, AF_INET);
    EXPECT_EQ(address.sin_addr.s_addr, ::inet_addr(host));
    EXPECT_THROW(listen_on_loopback(host, ntohs(address.sin_port)), std::system_error);
    ::close(fd);
  }
}

}  // namespace
}  // namespace tessera::detail::loopback_test
