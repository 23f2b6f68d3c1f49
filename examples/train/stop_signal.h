// StopSignal: a signal that asks a training to end, noticed between two steps.
#pragma once

namespace tessera::train {

// While it lives, the signal is noted in place of what it would have done. One at a time in a program.
class StopSignal {
 public:
  explicit StopSignal(int signal);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // Whether it came to this process or to another of the program; all call this together and have the same answer.
  bool came_to_any();

 private:
  int signal_;
  void (*before_)(int);
};

}  // namespace tessera::train
