// Reports: an HTML page about a run, the memory and time of a step by module, and comparisons of meshes and strategies.
#pragma once

#include "nn/report/activation_summary.h"
#include "nn/report/activations.h"
#include "nn/report/capture.h"
#include "nn/report/compare_meshes.h"
#include "nn/report/measure_hardware.h"
#include "nn/report/profile.h"
#include "nn/report/report.h"
#include "nn/report/step_forecast.h"
#include "nn/report/suggest_strategies.h"
