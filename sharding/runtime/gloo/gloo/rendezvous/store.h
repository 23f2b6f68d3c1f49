// What c10d derives its store for Gloo from. The library makes none.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace gloo::rendezvous {

// As Gloo declares it.
class Store {
 public:
  virtual ~Store();
  virtual void set(const std::string& key, const std::vector<char>& value) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) = 0;
};

}  // namespace gloo::rendezvous
