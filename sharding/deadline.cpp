// A thread that waits, and names in the system's table of local sockets.
#include "sharding/deadline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

namespace tessera::detail {
namespace {

// A name that is gone with its process: the launcher's own process on this host, and the index.
socklen_t name_of(int index, sockaddr_un& address) {
  const std::string name = fmt::format("tessera-{}-{}-{}", ::getuid(), ::getppid(), index);
  address = {};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool is_seen(int index) {
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address;
  const socklen_t size = name_of(index, address);
  const bool seen = ::connect(fd, reinterpret_cast<sockaddr*>(&address), size) == 0;
  ::close(fd);
  return seen;
}

}  // namespace

Deadline::Deadline(std::chrono::milliseconds longest, std::function<std::string()> words)
    : thread_([this, longest, words = std::move(words)] {
        std::unique_lock lock(mutex_);
        if (done_.wait_for(lock, longest, [&] { return is_done_; })) return;
        std::fflush(stdout);
        std::fprintf(stderr, "%s\n", words().c_str());
        std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(longest / 2, std::chrono::seconds(2)));
        ::_exit(1);  // not at once: the others look who is here
      }) {}

Deadline::~Deadline() {
  {
    std::lock_guard lock(mutex_);
    is_done_ = true;
  }
  done_.notify_all();
  thread_.join();
}

void Presence::end_stopped() const {
  std::error_code none;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", none);
  for (const auto& entry : std::filesystem::directory_iterator("/proc", none)) {
    std::string line;
    std::getline(std::ifstream(entry.path() / "stat"), line);
    const size_t name_end = line.rfind(')');
    char state = 0;
    pid_t parent = 0;
    if (name_end == std::string::npos || !(std::istringstream(line.substr(name_end + 1)) >> state >> parent)) continue;
    if (state == 'T' && parent == ::getppid() && std::filesystem::read_symlink(entry.path() / "exe", none) == program)
      ::kill(std::stoi(line), SIGKILL);
  }
}

Presence::Presence(int index) : index_(index), fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
  sockaddr_un address;
  const socklen_t size = name_of(index, address);
  [[maybe_unused]] const int bound = ::bind(fd_, reinterpret_cast<sockaddr*>(&address), size);
}

Presence::~Presence() { ::close(fd_); }

std::string Presence::words(int count) const {
  std::vector<int> seen, unseen;
  for (int i = 0; i < count; ++i) (i == index_ || is_seen(i) ? seen : unseen).push_back(i);
  return fmt::format("Seen on this host: {}; not seen: {}", fmt::join(seen, ", "),
                     unseen.empty() ? "none" : fmt::format("{}", fmt::join(unseen, ", ")));
}

}  // namespace tessera::detail
