// MapGuard: makes a page of a mapped file that was cut off a question to ask instead of the end of the process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tessera::data::detail {

// While it lives, a read of [begin, begin + size) beyond the file's end gives zeros, and is_broken() is true from then
// on; without it, such a read ends the process (SIGBUS). Whoever reads asks afterwards.
//
// The first guard installs a handler for SIGBUS; faults at addresses that nobody guards go to the handler before it.
// At most 65,536 maps are guarded at a time, as many as a process may hold; further ones are not.
class MapGuard {
 public:
  MapGuard(const void* begin, size_t size);
  MapGuard(const MapGuard&) = delete;
  MapGuard& operator=(const MapGuard&) = delete;
  ~MapGuard();

  bool is_broken() const;

 private:
  int slot_ = -1;
};

}  // namespace tessera::data::detail
