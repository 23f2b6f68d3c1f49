// PassThread: a thread for the passes of a micro-batch. A pass is suspended between virtual stages.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <semaphore>
#include <thread>

namespace tessera::nn::detail {

// Runs one pass at a time, with the observers, meters and other thread state of the calling thread. The calling thread
// waits until the pass ends or is suspended, so only one of these threads computes at any time.
class PassThread {
 public:
  PassThread();
  ~PassThread();  // ends a suspended pass: suspend() throws in it
  PassThread(const PassThread&) = delete;
  PassThread& operator=(const PassThread&) = delete;

  // Starts `pass`, and returns when it ends or is suspended. Rethrows its exception.
  void start(std::function<void()> pass);
  // Continues a suspended pass in the same way.
  void resume();
  bool is_suspended() const { return pass_ != nullptr; }
  // Suspends the pass that calls it.
  void suspend();

 private:
  struct CallingThread;
  void run_pass();
  void loop();

  std::function<void()> pass_;
  std::unique_ptr<const CallingThread> caller_;
  std::exception_ptr error_;
  bool ends_ = false;
  std::binary_semaphore turn_{0}, turn_of_caller_{0};
  std::thread thread_;
};

}  // namespace tessera::nn::detail
