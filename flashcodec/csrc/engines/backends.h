// The kinds of engines of this build.
#pragma once

#include <span>

#include "engines/backend.h"

namespace flashcodec {

std::span<const Backend* const> backends();

}  // namespace flashcodec
