// Scopes that forbid implicit communication, or that limit its bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera {

// Exceptions to forbid_implicit_communication.
struct CommunicationGuardOptions {
  std::vector<std::string> mesh_axes = {};  // allows collectives over subsets of these mesh axes
  bool backward = false;                    // allows it in the backward pass, and for parameter gradients
};

// The scope of forbid_implicit_communication and allow_implicit_communication, which ends with its destruction.
class CommunicationGuard {
 public:
  ~CommunicationGuard();
  CommunicationGuard(CommunicationGuard&&) noexcept;
  CommunicationGuard& operator=(CommunicationGuard&&) = delete;

 private:
  friend CommunicationGuard forbid_implicit_communication(CommunicationGuardOptions);
  friend CommunicationGuard allow_implicit_communication();
  class Watch;
  explicit CommunicationGuard(std::unique_ptr<Watch> watch);
  std::unique_ptr<Watch> watch_;
};

// Makes implicit collectives of this thread throw (forbidden) in the guard's scope, before data is communicated. The
// message has the line, the operation, the operand, the reason and a remedy.
//   const auto guard = forbid_implicit_communication({.backward = true});
//   auto [loss, grads] = nn::value_and_grad(loss_fn)(model, batch);
// The following are explicit: device_put, with_sharding_constraint, redistribute and similar functions; the collectives
// inside a shard_map; and reading a value, which includes the loss that value_and_grad returns. Conversions without
// communication are always allowed. The innermost scope counts, as in JAX's transfer_guard.
[[nodiscard]] CommunicationGuard forbid_implicit_communication(CommunicationGuardOptions allowed = {});
// Allows implicit communication in the guard's scope, even if an outer scope forbids it.
[[nodiscard]] CommunicationGuard allow_implicit_communication();

struct CommBudgetOptions {
  bool throw_on_exceed = false;  // throw (forbidden) before the collective that would exceed the budget
  std::function<void(const std::string&)> report = {};  // receives the warning; default: a line on std::clog
};

// Limits the bytes that a device may receive while the object exists, as the ledger counts them. The first collective
// that exceeds the budget is reported, with the three largest contributions:
//   [CommBudget] 5242880 bytes a device, 1048576 allowed: 4194304 at model.cpp:31 (all_gather over data for
//   matmul), 1048576 at ...
// The warning appears once per scope. Nested budgets all count. If a budget throws, no budget counts the forbidden
// collective.
class CommBudget {
 public:
  // Throws invalid_argument if `bytes` is negative.
  explicit CommBudget(int64_t bytes, CommBudgetOptions options = {});
  ~CommBudget();
  CommBudget(const CommBudget&) = delete;
  CommBudget& operator=(const CommBudget&) = delete;

  int64_t bytes() const;  // received so far

 private:
  class Watch;
  std::unique_ptr<Watch> watch_;
};

}  // namespace tessera
