// MPI as a transport: point to point on one communicator, nothing that waits. The one file that knows mpi.h.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "sharding/error.h"
#include "sharding/transport.h"

namespace tessera::detail {
namespace {

constexpr int64_t most_bytes = int64_t{1} << 30;  // MPI counts with an int

void check(int result) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(result, text, &length);
  throw Error(ErrorKind::other, fmt::format("MPI says: {}", text));
}

// Of "MPICH Version:      4.3.2\nMPICH Release date: ...", or "Open MPI v4.1.4, package: ...", as words of a sentence.
std::string first_words(std::string_view text) {
  std::string words;
  for (const char c : text.substr(0, text.find_first_of("\n,")))
    if (c != ' ' && c != ':')
      words += c;
    else if (!words.ends_with(' '))
      words += ' ';
  return words;
}

// MPI is entered by one thread at a time.
std::mutex& entrance() {
  static std::mutex mutex;
  return mutex;
}

class Mpi : public Transport {
 public:
  Mpi() {
    const std::lock_guard alone(entrance());
    int initialized = 0, provided = 0;
    MPI_Initialized(&initialized);
    begun_here_ = !initialized;
    if (begun_here_) {
      MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
      for (MPI_Comm comm : {MPI_COMM_WORLD, MPI_COMM_SELF})  // to which MPICH turns with errors of requests
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &world_);
    MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(world_, &index_);
    MPI_Comm_size(world_, &count_);
  }
  ~Mpi() override {
    const std::lock_guard alone(entrance());
    MPI_Comm_free(&world_);
    if (begun_here_) MPI_Finalize();
  }
  int index() const override { return index_; }
  int count() const override { return count_; }

  std::unique_ptr<Transport> second() override {
    int provided = 0;
    MPI_Query_thread(&provided);
    return provided >= MPI_THREAD_SERIALIZED ? std::make_unique<Mpi>() : nullptr;
  }

  void start(const std::vector<Parcel>& sends, const std::vector<Parcel>& receives) override {
    const std::lock_guard alone(entrance());
    for (const Parcel& parcel : receives)
      in_chunks(parcel, [&](char* data, int bytes, MPI_Request* request) {
        expected_.push_back(bytes);
        return MPI_Irecv(data, bytes, MPI_BYTE, parcel.process, 0, world_, request);
      });
    for (const Parcel& parcel : sends)
      in_chunks(parcel, [&](char* data, int bytes, MPI_Request* request) {
        return MPI_Isend(data, bytes, MPI_BYTE, parcel.process, 0, world_, request);
      });
  }

  void start_barrier() override {
    const std::lock_guard alone(entrance());
    check(MPI_Ibarrier(world_, &requests_.emplace_back()));
  }

  bool is_done() override {
    const std::lock_guard alone(entrance());
    int done = 0;
    statuses_.resize(requests_.size());
    const int result = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses_.data());
    if (result != MPI_SUCCESS) check_truncated();
    check(result);
    if (!done) return false;
    check_received();
    requests_.clear();
    expected_.clear();
    return true;
  }

  std::string name() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(text, &length);
    return first_words(text);
  }

 private:
  // A message that is longer than expected is an error of MPI's, which tells no length.
  void check_truncated() const {
    for (size_t i = 0; i < expected_.size(); ++i) {
      int kind = MPI_SUCCESS;
      MPI_Error_class(statuses_[i].MPI_ERROR, &kind);
      if (kind == MPI_ERR_TRUNCATE)
        throw Error(ErrorKind::inconsistent, different_sizes(statuses_[i].MPI_SOURCE, std::nullopt, expected_[i]));
    }
  }

  // Receives come first among the requests.
  void check_received() const {
    for (size_t i = 0; i < expected_.size(); ++i) {
      int bytes = 0;
      MPI_Get_count(&statuses_[i], MPI_BYTE, &bytes);
      if (bytes != expected_[i])
        throw Error(ErrorKind::inconsistent, different_sizes(statuses_[i].MPI_SOURCE, bytes, expected_[i]));
    }
  }

  template <typename Begin>
  void in_chunks(const Parcel& parcel, Begin begin) {
    for (int64_t at = 0; at < parcel.bytes; at += most_bytes) {
      const int bytes = static_cast<int>(std::min(most_bytes, parcel.bytes - at));
      check(begin(static_cast<char*>(parcel.data) + at, bytes, &requests_.emplace_back()));
    }
  }

  bool begun_here_ = false;
  MPI_Comm world_ = MPI_COMM_NULL;
  int index_ = 0, count_ = 1;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<int> expected_;  // bytes of each receive
};

}  // namespace

std::unique_ptr<Transport> join_by_mpi() { return std::make_unique<Mpi>(); }

}  // namespace tessera::detail
