// ByteSource: reads small files into one buffer and maps large ones; number and stride of windows over a source.
#include "data/sources/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <iterator>
#include <numeric>
#include <utility>

#include "data/sources/decompress.h"
#include "data/sources/file_list.h"
#include "data/sources/file_watch.h"
#include "data/sources/windows.h"
#include "sharding/base/error.h"
#include "sharding/base/fail.h"
#include "sharding/files/file.h"

namespace tessera::data {

namespace {

template <class... Args>
[[noreturn]] void invalid_file(const std::string& path, fmt::format_string<Args...> what, Args&&... args) {
  fail(ErrorKind::invalid_file, "open", "{}: {}", path, fmt::format(what, std::forward<Args>(args)...));
}

// Opens a file and checks that it has its listed size.
File opened(const FileEntry& listed) {
  File file = File::try_open(listed.path, "open");
  if (!file.is_open()) invalid_file(listed.path, "{}; the file must be readable", std::strerror(errno));
  if (file.size() != listed.size) invalid_file(listed.path, "the file changed while it was opened");
  return file;
}

uint64_t hashed(uint64_t hash, std::span<const uint8_t> bytes) {  // FNV-1a
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

}  // namespace

void detail::check_range(const char* what, int64_t offset, size_t count, int64_t size) {
  if (offset >= 0 && offset <= size && count <= static_cast<size_t>(size - offset)) return;
  fail(ErrorKind::invalid_argument, "read", "{} {} from {} on, of a source of {}", count, what, offset, size);
}

struct ByteSource::Impl {
  // A mapped file that is watched for changes.
  struct Map {
    explicit Map(const FileEntry& listed) : watch(listed.path) {
      const File file = opened(listed);
      bytes = file.map(static_cast<size_t>(listed.size));
      if (!bytes)
        invalid_file(listed.path,
                     "cannot be mapped: {}; with very many files raise ByteSourceOptions::map_from or vm.max_map_count",
                     std::strerror(errno));
      if (watch.size() != listed.size) invalid_file(listed.path, "the file changed while it was opened");
    }

    detail::FileWatch watch;
    std::shared_ptr<const void> bytes;
  };

  struct Piece {
    int64_t begin;
    int64_t size;
    const uint8_t* data;
    const Map* map;  // nullptr for a part of the buffer
  };

  std::unique_ptr<uint8_t[]> buffer;
  std::vector<detail::DecompressedPiece> decompressed;
  std::deque<Map> maps;
  std::vector<Piece> pieces;
  std::vector<SourceFile> files;
  int64_t size = 0;

  void append(const FileEntry& file, const uint8_t* data, const Map* map = nullptr) {
    files.push_back({file.path, size, file.size});
    if (file.size == 0) return;
    if (!map && !pieces.empty() && !pieces.back().map && pieces.back().data + pieces.back().size == data) {
      pieces.back().size += file.size;
    } else {
      pieces.push_back({size, file.size, data, map});
    }
    size += file.size;
  }

  // Appends the decompressed bytes of a file as one file.
  void append_decompressed(const FileEntry& listed, int64_t max_bytes) {
    std::vector<uint8_t> compressed(static_cast<size_t>(listed.size));
    opened(listed).read_at(std::as_writable_bytes(std::span(compressed)), 0);
    SourceFile file{listed.path, size, 0};
    for (auto& piece : detail::decompressed(compressed, listed.path, max_bytes)) {
      pieces.push_back({size, piece.size, piece.bytes.get(), nullptr});
      size += piece.size;
      file.size += piece.size;
      decompressed.push_back(std::move(piece));
    }
    files.push_back(std::move(file));
  }

  template <class Visit>
  void for_each_piece(int64_t offset, size_t count, Visit visit) const {
    detail::check_range("bytes", offset, count, size);
    constexpr int64_t max_scan_bytes = 1 << 20;  // between two checks of its file
    const auto is_before = [](int64_t o, const Piece& p) { return o < p.begin; };
    while (count > 0) {
      const Piece& piece = *std::prev(std::upper_bound(pieces.begin(), pieces.end(), offset, is_before));
      if (piece.map) piece.map->watch.check();
      const int64_t skip = offset - piece.begin, rest = piece.size - skip;
      const size_t here = std::min(static_cast<size_t>(piece.map ? std::min(rest, max_scan_bytes) : rest), count);
      visit(std::span(piece.data + skip, here));
      offset += static_cast<int64_t>(here);
      count -= here;
    }
  }
};

ByteSource ByteSource::open(const std::vector<std::string>& paths, const ByteSourceOptions& options) {
  const auto files = list_files(paths, options.extensions);
  const auto holds_others = [&](const FileEntry& file) {
    return options.decompress && detail::is_compressed(file.path);
  };
  const auto is_small = [&](const FileEntry& file) {
    return !holds_others(file) && (file.size < options.map_from || file.size == 0);
  };
  const auto size_of = [&](const auto& which) {
    return std::accumulate(files.begin(), files.end(), int64_t{0},
                           [&](int64_t sum, auto& file) { return sum + (which(file) ? file.size : 0); });
  };
  const int64_t buffered = size_of(is_small);
  int64_t max_decompressed = detail::max_decompressed(options.max_decompressed_bytes, size_of(holds_others));
  auto impl = std::make_shared<Impl>();
  impl->buffer = std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(buffered));
  uint8_t* free = impl->buffer.get();
  for (const auto& file : files) {
    if (holds_others(file)) {
      impl->append_decompressed(file, max_decompressed);
      max_decompressed -= impl->files.back().size;
    } else if (is_small(file)) {
      opened(file).read_at({reinterpret_cast<std::byte*>(free), static_cast<size_t>(file.size)}, 0);
      impl->append(file, free);
      free += file.size;
    } else {
      const Impl::Map& map = impl->maps.emplace_back(file);
      impl->append(file, static_cast<const uint8_t*>(map.bytes.get()), &map);
    }
  }
  if (impl->size == 0) invalid_file(paths.front(), "no bytes in {} file(s), expected at least one byte", files.size());
  return ByteSource(std::move(impl));
}

ByteSource ByteSource::from_string(std::string bytes, std::string name) {
  if (bytes.empty()) fail(ErrorKind::invalid_argument, "from_string", "{}: no bytes, expected at least one", name);
  auto impl = std::make_shared<Impl>();
  impl->buffer = std::make_unique_for_overwrite<uint8_t[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), impl->buffer.get());
  impl->append({std::move(name), static_cast<int64_t>(bytes.size())}, impl->buffer.get());
  return ByteSource(std::move(impl));
}

int64_t ByteSource::size() const { return tessera::detail::held(impl_, "ByteSource", "source").size; }

const std::vector<SourceFile>& ByteSource::files() const {
  return tessera::detail::held(impl_, "ByteSource", "source").files;
}

void ByteSource::read(int64_t offset, std::span<uint8_t> out) const {
  const auto copy = [to = out.data()](std::span<const uint8_t> piece) mutable {
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  };
  tessera::detail::held(impl_, "ByteSource", "source").for_each_piece(offset, out.size(), copy);
}

void ByteSource::scan(int64_t offset, int64_t count, const std::function<void(std::span<const uint8_t>)>& visit) const {
  tessera::detail::held(impl_, "ByteSource", "source").for_each_piece(offset, static_cast<size_t>(count), visit);
}

std::string ByteSource::describe() const {
  constexpr int64_t sample = 4096, samples = 64, max_files = 1000;
  uint64_t hash = 0xcbf29ce484222325;
  std::array<uint8_t, sample> bytes;
  const auto add = [&](int64_t begin, int64_t count) {
    const std::span<uint8_t> piece(bytes.data(), static_cast<size_t>(std::min(count, sample)));
    read(begin, piece);
    hash = hashed(hash, piece);
  };
  int64_t seen = 0;
  for (const auto& file : files()) {
    std::memcpy(bytes.data(), &file.size, sizeof file.size);
    hash = hashed(hash, {bytes.data(), sizeof file.size});
    if (++seen > max_files) continue;
    add(file.begin, file.size);
    add(file.begin + std::max<int64_t>(0, file.size - sample), std::min(file.size, sample));
  }
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t begin = static_cast<int64_t>(static_cast<double>(size()) / samples * static_cast<double>(i));
    add(begin, size() - begin);
  }
  return detail::describe_files(files().size(), size(), hash);
}

std::string ByteSource::where(int64_t offset) const {
  detail::check_range("bytes", offset, 1, size());
  const auto& files = this->files();
  const auto file =
      std::upper_bound(files.begin(), files.end(), offset, [](int64_t o, auto& f) { return o < f.begin; }) - 1;
  return fmt::format("{}, byte {}", file->path, offset - file->begin);
}

// ---- windows --------------------------------------------------------------------------------------------------------

int64_t detail::window_stride(int64_t length, int64_t stride) {
  return stride == 0 ? std::max<int64_t>(1, length - 1) : stride;
}

int64_t detail::window_count(int64_t source_size, int64_t length, int64_t stride) {
  if (length < 1 || stride < 0)
    fail(ErrorKind::invalid_argument, "windows",
         "length {} and stride {}, expected a length of at least 1 and a stride of at least 1 (or 0 for length - 1)",
         length, stride);
  if (source_size < length)
    fail(ErrorKind::invalid_argument, "windows",
         "a source of {} values is shorter than one window of {}; use more data or shorter windows", source_size,
         length);
  return (source_size - length) / window_stride(length, stride) + 1;
}

}  // namespace tessera::data
