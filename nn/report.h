// Reports: an HTML page about a run, the memory of a step, what its modules keep, and a comparison of meshes.
#pragma once

#include "nn/report/activations.h"
#include "nn/report/capture.h"
#include "nn/report/compare_meshes.h"
#include "nn/report/memory_report.h"
#include "nn/report/report.h"
#include "nn/report/trace.h"
