// OncePtr: an object that is created on first use. Other threads may use the pointer concurrently.
#pragma once

#include <atomic>
#include <memory>

namespace tessera::detail {

template <class T>
class OncePtr {
 public:
  OncePtr() = default;
  OncePtr(const OncePtr&) = delete;
  OncePtr& operator=(const OncePtr&) = delete;
  ~OncePtr() { delete get(); }

  T& make() {
    if (T* const made = get()) return *made;
    auto ours = std::make_unique<T>();
    T* theirs = nullptr;
    return made_.compare_exchange_strong(theirs, ours.get()) ? *ours.release() : *theirs;
  }

  T* get() const { return made_.load(std::memory_order_acquire); }  // null if not created yet
  explicit operator bool() const { return get(); }
  T* operator->() const { return get(); }
  T& operator*() const { return *get(); }

 private:
  std::atomic<T*> made_ = nullptr;
};

}  // namespace tessera::detail
