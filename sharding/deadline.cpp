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
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

namespace tessera::detail {
namespace {

// A name that is gone with its process.
socklen_t name_of(const std::string& run, int index, sockaddr_un& address) {
  const std::string name = fmt::format("tessera-{}-{}-{}", ::getuid(), run, index);
  address = {};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

// A connection to the process that has come so far under this index, -1 if none has. It need not answer.
int connected_to(const std::string& run, int index) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address;
  const socklen_t size = name_of(run, index, address);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), size) == 0) return fd;
  ::close(fd);
  return -1;
}

// Of the process under this index, 0 if there is none.
pid_t seen_pid(const std::string& run, int index) {
  const int fd = connected_to(run, index);
  if (fd < 0) return 0;
  ucred who{};
  socklen_t size = sizeof who;
  ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size);
  ::close(fd);
  return who.pid;
}

// Lies in the other's queue, unread, as long as the other lives.
bool send_descriptors(int to, const std::vector<int>& descriptors) {
  const size_t bytes = descriptors.size() * sizeof(int);
  char byte = 0;
  std::vector<char> control(CMSG_SPACE(bytes));
  iovec data{.iov_base = &byte, .iov_len = 1};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(bytes);
  std::memcpy(CMSG_DATA(header), descriptors.data(), bytes);
  return ::sendmsg(to, &message, MSG_NOSIGNAL) == 1;
}

// State and parent as the system's table has them; 0 where there is no such process.
std::pair<char, pid_t> state_of(const std::string& pid) {
  std::string line;
  std::getline(std::ifstream("/proc/" + pid + "/stat"), line);
  const size_t name_end = line.rfind(')');
  char state = 0;
  pid_t parent = 0;
  if (name_end != std::string::npos) std::istringstream(line.substr(name_end + 1)) >> state >> parent;
  return {state, parent};
}

// What a process was started with under this name, "" if nothing.
std::string environment_of(const std::string& pid, const std::string& name) {
  std::ifstream all("/proc/" + pid + "/environ", std::ios::binary);
  for (std::string entry; std::getline(all, entry, '\0');)
    if (entry.starts_with(name + '=')) return entry.substr(name.size() + 1);
  return "";
}

// Those that a launcher has told who they are, and what these have started, are not the launcher itself.
pid_t launcher_of(const std::string& pid) {
  const auto is_told = [](const std::string& of) {
    for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"})
      if (!environment_of(of, name).empty()) return true;
    return false;
  };
  pid_t above = state_of(pid).second;
  while (above > 1 && is_told(std::to_string(above))) above = state_of(std::to_string(above)).second;
  return above;
}

bool has_same_meeting_place(const std::string& pid) {
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"})
    if (environment_of(pid, name) != environment_of("self", name)) return false;
  return !environment_of(pid, "MASTER_PORT").empty();
}

}  // namespace

pid_t launcher_pid() { return launcher_of("self"); }

Deadline::Deadline(std::chrono::milliseconds longest, std::function<std::string()> words, std::function<void()> last)
    : thread_([this, longest, words = std::move(words), last = std::move(last)] {
        std::unique_lock lock(mutex_);
        if (done_.wait_for(lock, longest, [&] { return is_done_; })) return;
        std::fflush(stdout);
        std::fprintf(stderr, "%s\n", words().c_str());
        std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(longest / 2, std::chrono::seconds(5)));
        if (last) last();
        ::_exit(1);
      }) {}

Deadline::~Deadline() {
  {
    std::lock_guard lock(mutex_);
    is_done_ = true;
  }
  done_.notify_all();
  thread_.join();
}

void Presence::end_stopped(int count) const {
  for (int i = 0; i < count; ++i)
    if (const pid_t pid = i == index_ ? 0 : seen_pid(run_, i); pid > 0 && state_of(std::to_string(pid)).first == 'T')
      ::kill(pid, SIGKILL);
  std::error_code none;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", none);
  for (const auto& entry : std::filesystem::directory_iterator("/proc", none)) {
    const std::string pid = entry.path().filename();
    if (state_of(pid).first != 'T' || std::filesystem::read_symlink(entry.path() / "exe", none) != program) continue;
    if (has_launcher_ ? launcher_of(pid) == launcher_pid() : has_same_meeting_place(pid))
      ::kill(std::stoi(pid), SIGKILL);
  }
}

void Presence::lend(const std::vector<int>& descriptors, int count) const {
  for (int i = 1; i < count; ++i) {
    const int fd = connected_to(run_, (index_ + i) % count);
    if (fd < 0) continue;
    const bool lent = send_descriptors(fd, descriptors);
    ::close(fd);
    if (lent) return;
  }
}

Presence::Presence(std::string run, int index, bool has_launcher)
    : run_(std::move(run)),
      index_(index),
      fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      has_launcher_(has_launcher) {
  sockaddr_un address;
  const socklen_t size = name_of(run_, index, address);
  if (::bind(fd_, reinterpret_cast<sockaddr*>(&address), size) == 0) ::listen(fd_, 4096);
}

Presence::~Presence() { ::close(fd_); }

std::string Presence::words(int count) const {
  std::vector<int> seen, stopped, unseen;
  for (int i = 0; i < count; ++i) {
    const pid_t pid = i == index_ ? ::getpid() : seen_pid(run_, i);
    (pid == 0 ? unseen : state_of(std::to_string(pid)).first == 'T' ? stopped : seen).push_back(i);
  }
  return fmt::format("Seen on this host: {}{}{}; not seen: {}", fmt::join(seen, ", "),
                     stopped.empty() ? "" : "; stopped: ", fmt::join(stopped, ", "),
                     unseen.empty() ? "none" : fmt::format("{}", fmt::join(unseen, ", ")));
}

}  // namespace tessera::detail
