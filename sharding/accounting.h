// Accounting: what was communicated and why, what may be, and what a step would take on another mesh.
#pragma once

#include "sharding/accounting/communication_guard.h"
#include "sharding/accounting/finite_check.h"
#include "sharding/accounting/forecast.h"
#include "sharding/accounting/ledger.h"
